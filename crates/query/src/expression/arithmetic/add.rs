//! `$add`.

use kilim_bson::{RawValue, Rounding};
use kilim_error::{Error, ErrorCode, Result};

use super::{Number, Pair, Summation};
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    sum_of(call.each(env))
}

/// The sum of two numbers, or of a date and a number, in the wider of their types: a double counts with its fifteen
/// digits beside a decimal.
pub(crate) fn add(left: &Evaluated<'_>, right: &Evaluated<'_>) -> Result<Evaluated<'static>> {
    if let (Some(left), Some(right)) = (Number::of_evaluated(left), Number::of_evaluated(right)) {
        return Ok(match Pair::of(left, right) {
            Pair::Ints(left, right) => Number::int_or_long(i64::from(left) + i64::from(right)),
            Pair::Longs(left, right) => {
                left.checked_add(right).map_or(Number::Double(left as f64 + right as f64), Number::Long)
            }
            Pair::Doubles(left, right) => Number::Double(left + right),
            Pair::Decimals(left, right) => Number::Decimal(left.add(right)),
        }
        .into());
    }
    sum_of([Ok(left.clone()), Ok(right.clone())].into_iter())
}

fn sum_of<'v>(values: impl Iterator<Item = Result<Evaluated<'v>>>) -> Result<Evaluated<'static>> {
    let mut sum = Summation::new();
    let mut has_date = false;
    for value in values {
        let value = value?;
        match value.raw() {
            Some(RawValue::DateTime(millis)) => {
                if has_date {
                    return Err(Error::location(16_612, "only one date allowed in an $add expression"));
                }
                has_date = true;
                sum.add_date(millis);
            }
            raw => match raw.and_then(Number::of) {
                Some(number) => sum.add(number),
                // The first null decides; what comes after it is not looked at.
                None if value.is_nullish() => return Ok(Evaluated::NULL),
                None => {
                    let message =
                        format!("$add only supports numeric or date types, not {}", value.type_name());
                    return Err(Error::location(16_554, message));
                }
            },
        }
    }
    if !has_date {
        return Ok(sum.total().into());
    }
    let millis = if sum.is_decimal() {
        // Out of range is the lowest date there is, as conversion of such decimals goes.
        sum.to_decimal().round_to_whole(Rounding::HalfEven).to_i64().unwrap_or(i64::MIN)
    } else {
        sum.binary().to_i64().ok_or_else(|| Error::user(ErrorCode::Overflow, "date overflow in $add"))?
    };
    Ok(RawValue::DateTime(millis).into())
}
