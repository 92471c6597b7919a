//! `$divide`.

use kilim_error::{Error, ErrorCode, Result};

use super::{Number, Pair};
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    divide(&call.argument(0, env)?, &call.argument(1, env)?)
}

/// One number divided by another.
pub(crate) fn divide(left: &Evaluated<'_>, right: &Evaluated<'_>) -> Result<Evaluated<'static>> {
    let (Some(dividend), Some(divisor)) = (Number::of_evaluated(left), Number::of_evaluated(right)) else {
        if left.is_nullish() || right.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let message = format!(
            "$divide only supports numeric types, not {} and {}",
            left.type_name(),
            right.type_name()
        );
        return Err(Error::user(ErrorCode::TypeMismatch, message));
    };
    let zero = match divisor {
        Number::Decimal(value) => value.is_zero(),
        other => other.to_f64() == 0.0,
    };
    if zero {
        return Err(Error::user(ErrorCode::BadValue, "can't $divide by zero"));
    }
    Ok(match Pair::of(dividend, divisor) {
        Pair::Decimals(left, right) => left.divide(right).into(),
        _ => (dividend.to_f64() / divisor.to_f64()).into(),
    })
}
