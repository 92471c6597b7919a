//! `$exp`, `$ln`, `$log`, `$log10` and `$sqrt`: doubles, or decimals if a decimal is among the arguments.

use kilim_bson::Decimal128;
use kilim_error::{Error, Result};

use super::{Number, Pair, unary};
use crate::expression::{Call, Env, Evaluated};
use crate::filter::number::short;

pub(super) fn exp<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    unary(call, env, |number| {
        Ok(match number {
            Number::Decimal(value) => Number::Decimal(value.exp()),
            other => Number::Double(other.to_f64().exp()),
        })
    })
}

pub(super) fn ln<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    logarithm(call, env, 28_766, f64::ln, Decimal128::ln)
}

pub(super) fn log10<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    logarithm(call, env, 28_761, f64::log10, Decimal128::log10)
}

pub(super) fn sqrt<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    unary(call, env, |number| {
        let refused = || Error::location(28_714, "$sqrt's argument must be greater than or equal to 0");
        match number {
            Number::Decimal(value) if value.is_negative() && !value.is_zero() && !value.is_nan() => {
                Err(refused())
            }
            Number::Decimal(value) => Ok(Number::Decimal(value.sqrt())),
            other if other.to_f64() < 0.0 => Err(refused()),
            other => Ok(Number::Double(other.to_f64().sqrt())),
        }
    })
}

/// `$log: [number, base]`.
pub(super) fn log<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    let right = call.argument(1, env)?;
    if left.is_nullish() || right.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(number) = Number::of_evaluated(&left) else {
        let message = format!("$log's argument must be numeric, not {}", left.type_name());
        return Err(Error::location(28_756, message));
    };
    let Some(base) = Number::of_evaluated(&right) else {
        let message = format!("$log's base must be numeric, not {}", right.type_name());
        return Err(Error::location(28_757, message));
    };
    if let Pair::Decimals(number, base) = Pair::of(number, base)
        && is_above_zero(number)
        && is_above_zero(base)
        && base.compare(1.into()).is_ne()
    {
        return Ok(decimal_log(number, base).into());
    }
    let (number, base) = (number.to_f64(), base.to_f64());
    if number <= 0.0 {
        let message = format!("$log's argument must be a positive number, but is {}", short(number));
        return Err(Error::location(28_758, message));
    }
    if base <= 0.0 || base == 1.0 {
        let message = format!("$log's base must be a positive number not equal to 1, but is {}", short(base));
        return Err(Error::location(28_759, message));
    }
    Ok((number.ln() / base.ln()).into())
}

/// Bases two and ten have functions of their own. Any other base divides the natural logarithm by itself
/// instead of by its logarithm: that is what mongod answers, and clients see the same from both.
fn decimal_log(number: Decimal128, base: Decimal128) -> Decimal128 {
    if base.compare(2.into()).is_eq() {
        number.log2()
    } else if base.compare(10.into()).is_eq() {
        number.log10()
    } else {
        number.ln().divide(base)
    }
}

fn logarithm<'a>(
    call: &'a Call,
    env: &Env<'a>,
    code: i32,
    double: fn(f64) -> f64,
    decimal: fn(Decimal128) -> Decimal128,
) -> Result<Evaluated<'a>> {
    unary(call, env, |number| {
        if let Number::Decimal(value) = number
            && is_above_zero(value)
        {
            return Ok(Number::Decimal(decimal(value)));
        }
        // A decimal NaN comes here too, and goes out as a double.
        let value = number.to_f64();
        if value <= 0.0 {
            let message = format!(
                "{}'s argument must be a positive number, but is {}",
                call.operator.name,
                short(value)
            );
            return Err(Error::location(code, message));
        }
        Ok(Number::Double(double(value)))
    })
}

fn is_above_zero(value: Decimal128) -> bool {
    !value.is_nan() && !value.is_negative() && !value.is_zero()
}
