//! Bits of ints and longs: `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`.
//!
//! Ints among longs are widened with their sign.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::Arguments::{Any, Exactly};
use super::{Call, Env, Evaluated, Fold, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$bitAnd", "the bits that all arguments have", Any, |call, env| {
        combine(call, env, -1, |left, right| left & right)
    })
    .folds(Fold::AssociativeCommutative),
    Operator::new("$bitNot", "the bits that an argument has not", Exactly(1), bit_not),
    Operator::new("$bitOr", "the bits that any argument has", Any, |call, env| {
        combine(call, env, 0, |left, right| left | right)
    })
    .folds(Fold::AssociativeCommutative),
    Operator::new("$bitXor", "the bits that an odd number of arguments have", Any, |call, env| {
        combine(call, env, 0, |left, right| left ^ right)
    })
    .folds(Fold::AssociativeCommutative),
];

fn combine<'a>(
    call: &'a Call,
    env: &Env<'a>,
    neutral: i32,
    with: fn(i64, i64) -> i64,
) -> Result<Evaluated<'a>> {
    let mut bits = i64::from(neutral);
    let mut long = false;
    for value in call.each(env) {
        let value = value?;
        match value.raw() {
            Some(RawValue::Int32(int)) => bits = with(bits, int.into()),
            Some(RawValue::Int64(wide)) => {
                long = true;
                bits = with(bits, wide);
            }
            _ if value.is_nullish() => return Ok(Evaluated::NULL),
            _ => {
                let message = format!("{} only supports int and long operands.", call.operator.name);
                return Err(Error::user(ErrorCode::TypeMismatch, message));
            }
        }
    }
    // Of ints alone the upper half repeats the sign, so nothing is cut off.
    Ok(if long { bits.into() } else { (bits as i32).into() })
}

fn bit_not<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    match value.raw() {
        Some(RawValue::Int32(int)) => Ok((!int).into()),
        Some(RawValue::Int64(long)) => Ok((!long).into()),
        Some(RawValue::Double(_) | RawValue::Decimal128(_)) => {
            let message = format!("$bitNot only supports int and long, not: {}.", value.type_name());
            Err(Error::user(ErrorCode::TypeMismatch, message))
        }
        _ if value.is_nullish() => Ok(Evaluated::NULL),
        _ => {
            let message = format!("$bitNot only supports numeric types, not {}", value.type_name());
            Err(Error::location(28_765, message))
        }
    }
}
