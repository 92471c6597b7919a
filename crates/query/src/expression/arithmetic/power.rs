//! `$pow`: whole numbers stay whole while they fit.

use kilim_error::{Error, Result};

use super::{Number, Pair};
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    let right = call.argument(1, env)?;
    if left.is_nullish() || right.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(base) = Number::of_evaluated(&left) else {
        let message = format!("$pow's base must be numeric, not {}", left.type_name());
        return Err(Error::location(28_762, message));
    };
    let Some(exponent) = Number::of_evaluated(&right) else {
        let message = format!("$pow's exponent must be numeric, not {}", right.type_name());
        return Err(Error::location(28_763, message));
    };
    Ok(power(base, exponent)?.into())
}

fn power(base: Number, exponent: Number) -> Result<Number> {
    let check = |zero_base: bool, negative_exponent: bool| {
        if zero_base && negative_exponent {
            return Err(Error::location(28_764, "$pow cannot take a base of 0 and a negative exponent"));
        }
        Ok(())
    };
    let pair = Pair::of(base, exponent);
    if let Pair::Decimals(base, exponent) = pair {
        check(base.is_zero(), exponent.is_negative())?;
        return Ok(Number::Decimal(base.power(exponent)));
    }
    let doubles = (base.to_f64(), exponent.to_f64());
    check(doubles.0 == 0.0, doubles.1 < 0.0)?;
    let whole = match pair {
        Pair::Ints(base, exponent) => whole_power(base.into(), exponent.into()).map(Number::int_or_long),
        Pair::Longs(base, exponent) => whole_power(base, exponent).map(Number::Long),
        Pair::Doubles(..) | Pair::Decimals(..) => None,
    };
    Ok(whole.unwrap_or_else(|| Number::Double(doubles.0.powf(doubles.1))))
}

/// None where the result is no long.
fn whole_power(base: i64, exponent: i64) -> Option<i64> {
    match base {
        1 => Some(1),
        -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        0 => Some(i64::from(exponent == 0)),
        _ => base.checked_pow(u32::try_from(exponent).ok()?),
    }
}
