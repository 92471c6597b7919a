//! Operators of one number: null for null, an error for what is no number.

use kilim_bson::Rounding;
use kilim_error::{Error, Result};

use super::{Number, only_numbers};
use crate::expression::{Call, Env, Evaluated};

/// Evaluates the one argument and computes with it.
#[inline]
pub(in crate::expression) fn unary<'a>(
    call: &'a Call,
    env: &Env<'a>,
    compute: impl FnOnce(Number) -> Result<Number>,
) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    match Number::of_evaluated(&value) {
        Some(number) => Ok(compute(number)?.into()),
        None if value.is_nullish() => Ok(Evaluated::NULL),
        None => Err(only_numbers(28_765, call.operator, &value)),
    }
}

pub(super) fn abs<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    unary(call, env, |number| {
        Ok(match number {
            Number::Int(value) => Number::int_or_long(i64::from(value).abs()),
            Number::Long(value) => Number::Long(
                value
                    .checked_abs()
                    .ok_or_else(|| Error::location(28_680, "can't take $abs of long long min"))?,
            ),
            Number::Double(value) => Number::Double(value.abs()),
            Number::Decimal(value) => Number::Decimal(value.abs()),
        })
    })
}

pub(super) fn ceil<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    to_whole(call, env, f64::ceil, Rounding::Ceiling)
}

pub(super) fn floor<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    to_whole(call, env, f64::floor, Rounding::Floor)
}

fn to_whole<'a>(
    call: &'a Call,
    env: &Env<'a>,
    double: fn(f64) -> f64,
    decimal: Rounding,
) -> Result<Evaluated<'a>> {
    unary(call, env, |number| {
        Ok(match number {
            Number::Double(value) => Number::Double(double(value)),
            Number::Decimal(value) => Number::Decimal(value.round_to_whole(decimal)),
            whole => whole,
        })
    })
}
