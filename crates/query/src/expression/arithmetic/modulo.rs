//! `$mod`: the remainder with the dividend's sign.

use kilim_error::{Error, Result};

use super::{Number, Pair};
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    let right = call.argument(1, env)?;
    let (Some(dividend), Some(divisor)) = (Number::of_evaluated(&left), Number::of_evaluated(&right)) else {
        if left.is_nullish() || right.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let message =
            format!("$mod only supports numeric types, not {} and {}", left.type_name(), right.type_name());
        return Err(Error::location(16_611, message));
    };
    Ok(remainder(dividend, divisor)?.into())
}

fn remainder(dividend: Number, divisor: Number) -> Result<Number> {
    let by_zero = |code| Error::location(code, "can't $mod by zero");
    // A double that is a small whole number counts as an int, if it is the divisor.
    let divisor = match divisor {
        Number::Double(value) if is_int(value) && matches!(dividend, Number::Int(_) | Number::Long(_)) => {
            Number::Int(value as i32)
        }
        other => other,
    };
    Ok(match Pair::of(dividend, divisor) {
        Pair::Decimals(_, right) if right.is_zero() => return Err(by_zero(5_733_415)),
        Pair::Decimals(left, right) => Number::Decimal(left.remainder(right)),
        Pair::Doubles(_, 0.0) | Pair::Longs(_, 0) | Pair::Ints(_, 0) => return Err(by_zero(16_610)),
        Pair::Doubles(left, right) => Number::Double(left % right),
        Pair::Longs(left, right) => Number::Long(left.wrapping_rem(right)),
        Pair::Ints(left, right) => Number::Int(left.wrapping_rem(right)),
    })
}

fn is_int(value: f64) -> bool {
    value == value.trunc() && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)
}
