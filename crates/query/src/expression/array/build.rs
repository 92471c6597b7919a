//! Arrays made of arrays or of nothing: `$concatArrays`, `$reverseArray`, `$range`.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::{Building, integral};
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated};

/// What `$range` may take, as mongod counts it.
const RANGE_BYTES_MAX: i64 = 100 << 20;

pub(super) fn concat_arrays<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut all = Building::new();
    for argument in call.each(env) {
        let argument = argument?;
        if argument.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let Some(elements) = argument.as_array() else {
            let found = argument.type_name();
            return Err(Error::location(28_664, format!("$concatArrays only supports arrays, not {found}")));
        };
        for element in elements.iter() {
            env.tick()?;
            all.push(element)?;
        }
    }
    Ok(all.finish())
}

pub(super) fn reverse_array<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    if array.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            34_435,
            format!("The argument to $reverseArray must be an array, but was of type: {found}"),
        ));
    };
    let elements: Vec<_> = elements.iter().collect();
    let mut reversed = Building::new();
    for element in elements.into_iter().rev() {
        reversed.push(element)?;
    }
    Ok(reversed.finish())
}

pub(super) fn range<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let first = call.argument(0, env)?;
    let end = call.argument(1, env)?;
    let start =
        range_number(&first, "a numeric starting value, found value of type: ", 34_443, "a starting")?;
    let end = range_number(&end, "a numeric ending value, found value of type: ", 34_445, "an ending")?;
    let mut step = 1;
    if call.is_given(2) {
        let third = call.argument(2, env)?;
        step = range_number(&third, "a numeric step value, found value of type:", 34_447, "a step")?;
        if step == 0 {
            return Err(Error::location(34_449, "$range requires a non-zero step value"));
        }
    }
    let steps = (end - start) / step;
    let count = if steps >= 0 { steps + 1 } else { 0 };
    let value_bytes = if matches!(first.raw(), Some(RawValue::Decimal128(_))) { 48 } else { 16 };
    let bytes = 24 + count * value_bytes;
    if bytes >= RANGE_BYTES_MAX {
        return Err(Error::user(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "$range would use too much memory ({bytes} bytes) and cannot spill to disk. \
                 Memory limit: {RANGE_BYTES_MAX} bytes"
            ),
        ));
    }
    let mut numbers = Building::new();
    let mut next = start;
    while if step > 0 { next < end } else { next > end } {
        env.tick()?;
        // Between two 32-bit integers.
        numbers.push(RawValue::Int32(next as i32))?;
        next += step;
    }
    Ok(numbers.finish())
}

/// A 32-bit integer, widened so that nothing overflows.
fn range_number(value: &Evaluated<'_>, not_number: &str, code: i32, which: &str) -> Result<i64> {
    match value.raw() {
        Some(number) if number.is_number() => integral(number).map(i64::from).ok_or_else(|| {
            let found = show(number);
            Error::location(
                code + 1,
                format!(
                    "$range requires {which} value that can be represented as a 32-bit integer, found value: {found}"
                ),
            )
        }),
        _ => Err(Error::location(code, format!("$range requires {not_number}{}", value.type_name()))),
    }
}
