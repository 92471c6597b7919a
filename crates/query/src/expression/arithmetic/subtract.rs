//! `$subtract`.

use kilim_bson::{RawValue, Rounding};
use kilim_error::{Error, ErrorCode, Result};

use super::{Number, Pair, out_of_long_range};
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    subtract(&call.argument(0, env)?, &call.argument(1, env)?)
}

/// One value less another: numbers, dates, or a date and a number.
pub(crate) fn subtract(left: &Evaluated<'_>, right: &Evaluated<'_>) -> Result<Evaluated<'static>> {
    if let (Some(left), Some(right)) = (Number::of_evaluated(left), Number::of_evaluated(right)) {
        return Ok(difference(left, right).into());
    }
    if left.is_nullish() || right.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(RawValue::DateTime(millis)) = left.raw() else {
        let message = format!("can't $subtract {} from {}", right.type_name(), left.type_name());
        return Err(Error::user(ErrorCode::TypeMismatch, message));
    };
    match (right.raw(), Number::of_evaluated(right)) {
        (Some(RawValue::DateTime(other)), _) => Ok(millis.wrapping_sub(other).into()),
        (_, Some(number)) => {
            let back = milliseconds(number)?.checked_neg().ok_or_else(|| {
                Error::user(ErrorCode::DurationOverflow, "Cannot negate the minimum duration")
            })?;
            Ok(RawValue::DateTime(millis.wrapping_add(back)).into())
        }
        _ => {
            let message = format!("can't $subtract {} from Date", right.type_name());
            Err(Error::user(ErrorCode::TypeMismatch, message))
        }
    }
}

fn difference(left: Number, right: Number) -> Number {
    match Pair::of(left, right) {
        Pair::Ints(left, right) => Number::int_or_long(i64::from(left) - i64::from(right)),
        Pair::Longs(left, right) => {
            left.checked_sub(right).map_or(Number::Double(left as f64 - right as f64), Number::Long)
        }
        Pair::Doubles(left, right) => Number::Double(left - right),
        Pair::Decimals(left, right) => Number::Decimal(left.subtract(right)),
    }
}

/// A duration: a double loses its fraction, a decimal is rounded, and one out of range is the lowest long.
fn milliseconds(number: Number) -> Result<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match number {
        Number::Int(value) => Ok(value.into()),
        Number::Long(value) => Ok(value),
        Number::Double(value) if (-LIMIT..LIMIT).contains(&value) => Ok(value as i64),
        Number::Double(value) => Err(out_of_long_range(value)),
        Number::Decimal(value) => Ok(value.round_to_whole(Rounding::HalfEven).to_i64().unwrap_or(i64::MIN)),
    }
}
