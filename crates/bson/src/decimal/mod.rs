//! Decimal128: IEEE 754 decimals of 34 digits in the binary-integer encoding (BID) of BSON.
//!
//! A finite decimal is a sign, a coefficient below 10³⁴ and a power of ten. `1.0` and `1.00` are equal
//! but not identical: the exponent is part of what is stored, and arithmetic picks it by IEEE's rules.
//! `arithmetic` and `transcendental` compute, `text` parses and prints, `convert` goes to and from other numbers,
//! `double` compares with doubles.
//!
//! Invariant: any sixteen bytes are a decimal. Coefficients out of range read as zero, as IEEE says.

mod arithmetic;
mod convert;
mod double;
mod text;
mod transcendental;

use std::cmp::Ordering;

pub use arithmetic::Rounding;
pub(crate) use double::{compare_decimal_to_double, compare_magnitudes};
pub use text::ParseDecimalError;

/// Digits of a coefficient.
const DIGITS_MAX: u32 = 34;
const COEFFICIENT_MAX: u128 = 10u128.pow(DIGITS_MAX) - 1;
const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;

/// IEEE 754 decimal in the binary-integer encoding (BID) of BSON, little-endian, as stored.
///
/// `==` is identity of bytes; numeric order is [`Decimal128::compare`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128([u8; 16]);

/// A decimal taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    Finite { negative: bool, coefficient: u128, exponent: i32 },
    Infinity { negative: bool },
    NaN { negative: bool },
}

impl Decimal128 {
    pub const ZERO: Decimal128 = Decimal128::finite(false, 0, 0);
    pub const INFINITY: Decimal128 = Decimal128((0x78u128 << 120).to_le_bytes());
    pub const NEG_INFINITY: Decimal128 = Decimal128((0xF8u128 << 120).to_le_bytes());
    pub const NAN: Decimal128 = Decimal128((0x7Cu128 << 120).to_le_bytes());

    pub fn from_bytes(bytes: [u8; 16]) -> Decimal128 {
        Decimal128(bytes)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The coefficient and exponent must be in range.
    pub(crate) const fn finite(negative: bool, coefficient: u128, exponent: i32) -> Decimal128 {
        debug_assert!(coefficient <= COEFFICIENT_MAX);
        debug_assert!(exponent >= EXPONENT_MIN && exponent <= EXPONENT_MAX);
        let exponent = (exponent - EXPONENT_MIN) as u128;
        Decimal128(((negative as u128) << 127 | exponent << 113 | coefficient).to_le_bytes())
    }

    pub(crate) fn parts(self) -> Parts {
        let bits = u128::from_le_bytes(self.0);
        let negative = bits >> 127 != 0;
        let top = (bits >> 122) as u8 & 0x1F;
        if top == 0x1F {
            return Parts::NaN { negative };
        }
        if top == 0x1E {
            return Parts::Infinity { negative };
        }
        // The other layout begins with two ones and holds coefficients of 10³⁴ and above only.
        if top >> 3 == 0b11 {
            let exponent = (bits >> 111) as i32 & 0x3FFF;
            return Parts::Finite { negative, coefficient: 0, exponent: exponent + EXPONENT_MIN };
        }
        let exponent = (bits >> 113) as i32 & 0x3FFF;
        let coefficient = bits & ((1 << 113) - 1);
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Parts::Finite { negative, coefficient, exponent: exponent + EXPONENT_MIN }
    }

    /// Sign, coefficient and exponent of a finite decimal.
    pub fn to_parts(self) -> Option<(bool, u128, i32)> {
        match self.parts() {
            Parts::Finite { negative, coefficient, exponent } => Some((negative, coefficient, exponent)),
            Parts::Infinity { .. } | Parts::NaN { .. } => None,
        }
    }

    pub fn is_nan(self) -> bool {
        matches!(self.parts(), Parts::NaN { .. })
    }

    pub fn is_infinite(self) -> bool {
        matches!(self.parts(), Parts::Infinity { .. })
    }

    pub fn is_finite(self) -> bool {
        matches!(self.parts(), Parts::Finite { .. })
    }

    pub fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    /// The sign bit, which zeros and NaN have too.
    pub fn is_negative(self) -> bool {
        self.0[15] & 0x80 != 0
    }

    pub fn negate(self) -> Decimal128 {
        let mut bytes = self.0;
        bytes[15] ^= 0x80;
        Decimal128(bytes)
    }

    pub fn abs(self) -> Decimal128 {
        if self.is_negative() { self.negate() } else { self }
    }

    /// Numeric order: all zeros are equal, all NaN are equal and below everything.
    pub fn compare(self, other: Decimal128) -> Ordering {
        match (self.parts(), other.parts()) {
            (Parts::NaN { .. }, Parts::NaN { .. }) => Ordering::Equal,
            (Parts::NaN { .. }, _) => Ordering::Less,
            (_, Parts::NaN { .. }) => Ordering::Greater,
            (left, right) => {
                let (left_sign, right_sign) = (left.signum(), right.signum());
                left_sign.cmp(&right_sign).then_with(|| match left_sign {
                    0 => Ordering::Equal,
                    1 => left.compare_magnitude(right),
                    _ => right.compare_magnitude(left),
                })
            }
        }
    }
}

impl Parts {
    /// -1, 0 or 1. NaN has no sign that counts.
    pub(crate) fn signum(self) -> i8 {
        match self {
            Parts::NaN { .. } | Parts::Finite { coefficient: 0, .. } => 0,
            Parts::Finite { negative, .. } | Parts::Infinity { negative } => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Neither is zero nor NaN.
    fn compare_magnitude(self, other: Parts) -> Ordering {
        match (self, other) {
            (
                Parts::Finite { coefficient: left, exponent: left_exponent, .. },
                Parts::Finite { coefficient: right, exponent: right_exponent, .. },
            ) => {
                let (left_digits, right_digits) = (digits(left), digits(right));
                let left_top = left_digits as i32 + left_exponent;
                let right_top = right_digits as i32 + right_exponent;
                // With the same first digit's place, both fit 34 digits at the lower exponent.
                left_top.cmp(&right_top).then_with(|| {
                    let lower = left_exponent.min(right_exponent);
                    let at_lower = |coefficient: u128, exponent: i32| {
                        coefficient * power_of_ten((exponent - lower) as u32)
                    };
                    at_lower(left, left_exponent).cmp(&at_lower(right, right_exponent))
                })
            }
            (Parts::Infinity { .. }, Parts::Infinity { .. }) => Ordering::Equal,
            (Parts::Infinity { .. }, _) => Ordering::Greater,
            _ => Ordering::Less,
        }
    }
}

/// Decimal digits of a number; zero has none.
pub(crate) fn digits(number: u128) -> u32 {
    number.checked_ilog10().map_or(0, |log| log + 1)
}

pub(crate) fn power_of_ten(exponent: u32) -> u128 {
    const POWERS: [u128; 39] = {
        let mut powers = [1; 39];
        let mut at = 1;
        while at < 39 {
            powers[at] = powers[at - 1] * 10;
            at += 1;
        }
        powers
    };
    POWERS[exponent as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_mongod_reads_them() {
        let cases = [
            ("1", Ok("1")),
            ("1.10", Ok("1.10")),
            ("1E3", Ok("1E+3")),
            (".5", Ok("0.5")),
            ("5.", Ok("5")),
            ("+1", Ok("1")),
            ("-0E+2", Ok("-0E+2")),
            ("1E-7", Ok("1E-7")),
            ("0.000001", Ok("0.000001")),
            ("-iNf", Ok("-Infinity")),
            ("nan", Ok("NaN")),
            ("12345678901234567890123456789012345", Ok("1.234567890123456789012345678901234E+34")),
            ("1E6144", Ok("1.000000000000000000000000000000000E+6144")),
            ("0E9999", Ok("0E+6111")),
            ("0E-9999", Ok("0E-6176")),
            ("10E-6177", Ok("1E-6176")),
            ("", Err(ParseDecimalError::Empty)),
            ("1e", Err(ParseDecimalError::Malformed)),
            (" 1", Err(ParseDecimalError::Malformed)),
            ("1 ", Err(ParseDecimalError::Malformed)),
            ("-", Err(ParseDecimalError::Malformed)),
            ("é", Err(ParseDecimalError::Malformed)),
            ("1.2.3", Err(ParseDecimalError::Malformed)),
            ("infinit", Err(ParseDecimalError::Malformed)),
            ("1E7000", Err(ParseDecimalError::Overflow)),
            ("1E99999999999999999999", Err(ParseDecimalError::Overflow)),
            ("15E-6177", Err(ParseDecimalError::Underflow)),
        ];
        for (text, expected) in cases {
            let read = Decimal128::parse(text).map(|decimal| decimal.to_string());
            assert_eq!(read, expected.map(str::to_owned), "{text}");
        }
        assert!(Decimal128::parse_exact("1234567890123456789012345678901234.5").is_err());
        assert!(Decimal128::parse_exact("1234567890123456789012345678901234.0").is_ok());
    }

    #[test]
    fn coefficients_out_of_range_are_zero() {
        for bytes in [[0xFF; 16], [0x77; 16], [0x6F; 16]] {
            let decimal = Decimal128::from_bytes(bytes);
            assert!(decimal.is_nan() || decimal.is_infinite() || decimal.is_zero());
        }
    }

    #[test]
    fn doubles_become_fifteen_or_all_digits() {
        assert_eq!(Decimal128::from_f64(0.1).to_string(), "0.100000000000000");
        assert_eq!(Decimal128::from_f64(-1e22).to_string(), "-1.00000000000000E+22");
        let third = Decimal128::from_f64_all_digits(1.0 / 3.0);
        assert_eq!(third.to_string(), "0.3333333333333333148296162562473910");
    }
}
