//! Decimals from and to the binary numbers.

use super::{Decimal128, Parts, Rounding, compare_decimal_to_double, power_of_ten};

impl From<i32> for Decimal128 {
    fn from(value: i32) -> Decimal128 {
        Decimal128::from(i64::from(value))
    }
}

impl From<i64> for Decimal128 {
    fn from(value: i64) -> Decimal128 {
        Decimal128::finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }
}

impl Decimal128 {
    /// A double as mongod reads one into a decimal: 15 significant digits, what a double surely
    /// holds, trailing zeros kept. `0.1` gives `0.100000000000000`.
    pub fn from_f64(value: f64) -> Decimal128 {
        from_f64_digits(value, 15)
    }

    /// A double rounded to all 34 digits, as `$add` takes it: `0.1` gives
    /// `0.1000000000000000055511151231257827`. What needs fewer digits has no more: `0.5` gives `0.5`.
    pub fn from_f64_all_digits(value: f64) -> Decimal128 {
        let all = from_f64_digits(value, 34);
        let Parts::Finite { negative, mut coefficient, mut exponent } = all.parts() else { return all };
        if compare_decimal_to_double(all, value).is_ne() {
            return all;
        }
        while exponent < 0 && coefficient % 10 == 0 {
            coefficient /= 10;
            exponent += 1;
        }
        Decimal128::finite(negative, coefficient, exponent)
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self.parts() {
            Parts::NaN { .. } => f64::NAN,
            Parts::Infinity { negative: false } => f64::INFINITY,
            Parts::Infinity { negative: true } => f64::NEG_INFINITY,
            Parts::Finite { negative, coefficient, exponent } => {
                // The standard library's parser rounds correctly over the whole range.
                let magnitude: f64 =
                    format!("{coefficient}e{exponent}").parse().expect("digits and an exponent are a number");
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The whole number left when digits behind the point are dropped; `None` outside of `i64`.
    pub fn to_i64(self) -> Option<i64> {
        match self.round_to_whole(Rounding::TowardZero).parts() {
            Parts::Finite { coefficient: 0, .. } => Some(0),
            Parts::Finite { negative, coefficient, exponent: exponent @ 0..=19 } => {
                let magnitude =
                    i128::try_from(coefficient.checked_mul(power_of_ten(exponent as u32))?).ok()?;
                i64::try_from(if negative { -magnitude } else { magnitude }).ok()
            }
            _ => None,
        }
    }

    pub fn to_i32(self) -> Option<i32> {
        self.to_i64()?.try_into().ok()
    }

    /// The value as `i64` if it is exactly that.
    pub fn to_i64_exact(self) -> Option<i64> {
        let whole = self.to_i64()?;
        self.compare(Decimal128::from(whole)).is_eq().then_some(whole)
    }
}

fn from_f64_digits(value: f64, digits: usize) -> Decimal128 {
    if value.is_nan() {
        return if value.is_sign_negative() { Decimal128::NAN.negate() } else { Decimal128::NAN };
    }
    if value.is_infinite() {
        return if value > 0.0 { Decimal128::INFINITY } else { Decimal128::NEG_INFINITY };
    }
    if value == 0.0 {
        return Decimal128::finite(value.is_sign_negative(), 0, 0);
    }
    let text = format!("{:.*e}", digits - 1, value.abs());
    Decimal128::parse(&text)
        .map(|magnitude| if value < 0.0 { magnitude.negate() } else { magnitude })
        .expect("a double's digits are within a decimal's range")
}
