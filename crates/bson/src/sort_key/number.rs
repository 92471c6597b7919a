//! Numbers of all four types in one order.
//!
//! A number is its lead, which holds sign and size, and the magnitude:
//! - *whole*, from 1 to 2⁶³: the whole part shifted left by one, in as few bytes as it needs. The
//!   freed bit says that a fraction follows: 55 bits of it, and one bit that says that more follows.
//!   Doubles of this size have 52 bits of fraction at most.
//! - *small* and *large*: the bits of the double at or next below, shifted left by one (its sign bit
//!   is clear), and again one bit that says that more follows.
//!
//! Only decimals that no double equals have more: the place of their first digit and their digits,
//! filled up to 34. Two such with the same bytes before are ordered by these alone.
//! The body of a negative number is inverted.

use super::decode::{CorruptKey, KeyReader};
use super::type_bits::{Note, TypeBitsWriter};
use super::{invert, lead};
use crate::decimal::{Parts, compare_magnitudes, digits, power_of_ten};
use crate::{Decimal128, RawValue, Value};

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const FRACTION_BITS: u32 = 55;
const FRACTION_SCALE: f64 = (1u64 << FRACTION_BITS) as f64;

/// Digits of a decimal coefficient.
const DIGITS_MAX: u32 = 34;
/// Makes the place of a decimal's first digit (-6175 to 6145) positive.
const PLACE_BIAS: i32 = 0x4000;
/// Two bytes of place, fifteen of digits.
const MORE_BYTES: usize = 17;

#[inline]
pub(super) fn encode(out: &mut Vec<u8>, types: &mut TypeBitsWriter, value: RawValue<'_>) {
    match value {
        RawValue::Int32(value) => {
            types.default_type();
            encode_int(out, value.into());
        }
        RawValue::Int64(value) => {
            if i32::try_from(value).is_ok() || value == i64::MIN {
                types.note(Note::Int64);
            } else {
                types.default_type();
            }
            encode_int(out, value);
        }
        RawValue::Double(value) => {
            if value == 0.0 && value.is_sign_negative() {
                types.note(Note::NegativeZero);
            } else if value.is_nan() && value.to_bits() != f64::NAN.to_bits() {
                types.note(Note::OddNan(value.to_bits()));
            } else if value.trunc() == value && value.abs() < TWO_63 {
                types.note(Note::Double);
            } else {
                types.default_type();
            }
            encode_double(out, value);
        }
        RawValue::Decimal128(value) => {
            types.note(Note::Decimal(value));
            encode_decimal(out, value);
        }
        _ => unreachable!("the caller passes numbers only"),
    }
}

fn encode_int(out: &mut Vec<u8>, value: i64) {
    let magnitude = value.unsigned_abs();
    if value == 0 {
        out.push(lead::ZERO);
    } else if value == i64::MIN {
        encode_bits(out, lead::LARGE, true, TWO_63, None);
    } else {
        encode_whole(out, value < 0, magnitude, 0, None);
    }
}

fn encode_double(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    let negative = value < 0.0;
    if value.is_nan() {
        out.push(lead::NAN);
    } else if value == 0.0 {
        out.push(lead::ZERO);
    } else if magnitude < 1.0 {
        encode_bits(out, lead::SMALL, negative, magnitude, None);
    } else if magnitude < TWO_63 {
        let whole = magnitude.trunc();
        let fraction = ((magnitude - whole) * FRACTION_SCALE) as u64;
        encode_whole(out, negative, whole as u64, fraction, None);
    } else {
        encode_bits(out, lead::LARGE, negative, magnitude, None);
    }
}

fn encode_decimal(out: &mut Vec<u8>, value: Decimal128) {
    let (negative, coefficient, exponent) = match value.parts() {
        Parts::NaN { .. } => return out.push(lead::NAN),
        Parts::Infinity { negative } => {
            return encode_bits(out, lead::LARGE, negative, f64::INFINITY, None);
        }
        Parts::Finite { coefficient: 0, .. } => return out.push(lead::ZERO),
        Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
    };
    let places = digits(coefficient) as i32 + exponent;
    if (1..=19).contains(&places) {
        // At most 19 digits before the point: the whole part may be below 2⁶³.
        let (whole, mut rest, unit) = if exponent >= 0 {
            (coefficient * power_of_ten(exponent as u32), 0, 1)
        } else {
            let unit = power_of_ten(-exponent as u32);
            (coefficient / unit, coefficient % unit, unit)
        };
        if whole < 1 << 63 {
            let mut fraction = 0;
            for _ in 0..FRACTION_BITS {
                rest *= 2;
                fraction = fraction << 1 | u64::from(rest >= unit);
                if rest >= unit {
                    rest -= unit;
                }
            }
            let more = (rest != 0).then(|| more_bytes(coefficient, exponent));
            return encode_whole(out, negative, whole as u64, fraction, more);
        }
    }
    let (double, exact) = double_at_or_below(coefficient, exponent);
    let more = (!exact).then(|| more_bytes(coefficient, exponent));
    let lead = if places <= 0 { lead::SMALL } else { lead::LARGE };
    encode_bits(out, lead, negative, double, more);
}

/// The largest double not above a positive decimal, and whether they are equal.
fn double_at_or_below(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest = Decimal128::finite(false, coefficient, exponent).to_f64();
    if nearest == 0.0 {
        return (0.0, false);
    }
    if nearest.is_infinite() {
        return (f64::MAX, false);
    }
    match compare_magnitudes(coefficient, exponent, nearest) {
        std::cmp::Ordering::Less => (nearest.next_down(), false),
        order => (nearest, order.is_eq()),
    }
}

fn more_bytes(coefficient: u128, exponent: i32) -> [u8; MORE_BYTES] {
    let count = digits(coefficient);
    let place = (count as i32 + exponent + PLACE_BIAS) as u16;
    let filled = coefficient * power_of_ten(DIGITS_MAX - count);
    let mut bytes = [0; MORE_BYTES];
    bytes[..2].copy_from_slice(&place.to_be_bytes());
    bytes[2..].copy_from_slice(&filled.to_be_bytes()[1..]);
    bytes
}

fn encode_whole(
    out: &mut Vec<u8>,
    negative: bool,
    whole: u64,
    fraction: u64,
    more: Option<[u8; MORE_BYTES]>,
) {
    let has_fraction = fraction != 0 || more.is_some();
    let shifted = whole << 1 | u64::from(has_fraction);
    let count = 8 - shifted.leading_zeros() as usize / 8;
    push_lead(out, lead::WHOLE + count as u8, negative);
    let body = out.len();
    out.extend_from_slice(&shifted.to_be_bytes()[8 - count..]);
    if has_fraction {
        let shifted = fraction << 1 | u64::from(more.is_some());
        out.extend_from_slice(&shifted.to_be_bytes()[1..]);
        out.extend(more.into_iter().flatten());
    }
    if negative {
        invert(&mut out[body..]);
    }
}

fn encode_bits(out: &mut Vec<u8>, lead: u8, negative: bool, double: f64, more: Option<[u8; MORE_BYTES]>) {
    push_lead(out, lead, negative);
    let body = out.len();
    out.extend_from_slice(&(double.to_bits() << 1 | u64::from(more.is_some())).to_be_bytes());
    out.extend(more.into_iter().flatten());
    if negative {
        invert(&mut out[body..]);
    }
}

fn push_lead(out: &mut Vec<u8>, lead: u8, negative: bool) {
    out.push(if negative { lead::ZERO - (lead - lead::ZERO) } else { lead });
}

/// Reads the body of a number whose lead has been read. `note` decides its type.
pub(super) fn decode(reader: &mut KeyReader<'_>, lead: u8, note: Option<Note>) -> Result<Value, CorruptKey> {
    let value = read(reader, lead)?;
    Ok(match (note, value) {
        (Some(Note::Decimal(decimal)), _) => Value::Decimal128(decimal),
        (Some(Note::NegativeZero), _) => Value::Double(-0.0),
        (Some(Note::OddNan(bits)), _) => Value::Double(f64::from_bits(bits)),
        (Some(Note::Int64), Magnitude::Whole(whole)) => Value::Int64(whole),
        // The one long that is as large as the large ones.
        (Some(Note::Int64), Magnitude::Double(double)) if double == -TWO_63 => Value::Int64(i64::MIN),
        (Some(Note::Double), Magnitude::Whole(whole)) => Value::Double(whole as f64),
        (None, Magnitude::Whole(whole)) => match i32::try_from(whole) {
            Ok(small) => Value::Int32(small),
            Err(_) => Value::Int64(whole),
        },
        (None, Magnitude::Double(double)) => Value::Double(double),
        _ => return Err(CorruptKey),
    })
}

/// Goes past the body of a number.
pub(super) fn skip(reader: &mut KeyReader<'_>, lead: u8) -> Result<(), CorruptKey> {
    read(reader, lead).map(drop)
}

enum Magnitude {
    Whole(i64),
    /// Exact, unless more follows; then the type bits hold the decimal.
    Double(f64),
}

fn read(reader: &mut KeyReader<'_>, lead: u8) -> Result<Magnitude, CorruptKey> {
    if lead == lead::NAN {
        return Ok(Magnitude::Double(f64::NAN));
    }
    let negative = lead < lead::ZERO;
    let size = lead.abs_diff(lead::ZERO) + lead::ZERO;
    let outer = reader.mask;
    if negative {
        reader.mask = !reader.mask;
    }
    let sign = |magnitude: f64| Magnitude::Double(if negative { -magnitude } else { magnitude });
    let number = if lead == lead::ZERO {
        Magnitude::Whole(0)
    } else if size == lead::SMALL || size == lead::LARGE {
        let shifted = reader.read_uint(8)?;
        if shifted & 1 != 0 {
            reader.skip(MORE_BYTES)?;
        }
        sign(f64::from_bits(shifted >> 1))
    } else {
        let shifted = reader.read_uint((size - lead::WHOLE) as usize)?;
        let whole = shifted >> 1;
        if shifted & 1 == 0 {
            Magnitude::Whole(if negative { -(whole as i64) } else { whole as i64 })
        } else {
            let fraction = reader.read_uint(7)?;
            if fraction & 1 != 0 {
                reader.skip(MORE_BYTES)?;
            }
            sign(whole as f64 + (fraction >> 1) as f64 / FRACTION_SCALE)
        }
    };
    reader.mask = outer;
    Ok(number)
}
