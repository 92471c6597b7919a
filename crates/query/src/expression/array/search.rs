//! Values sought in an array: `$in`, `$indexOfArray`.

use std::collections::HashSet;

use kilim_bson::{RawArray, encode_value};
use kilim_error::{Error, Result};

use super::integral;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Expression};

/// Constant lists shorter than this are searched in turn: that costs less than making a key of the value.
const INDEXED_LEN_MIN: usize = 8;

/// A constant array's values by their keys: equal values have equal keys.
struct Indexed(HashSet<Box<[u8]>>);

pub(super) fn prepare_in(call: &mut Call) -> Result<()> {
    let Some(Expression::Constant(list)) = call.expression(1) else { return Ok(()) };
    let Some(list) = list.as_raw().as_array() else { return Ok(()) };
    if list.len() >= INDEXED_LEN_MIN {
        let keys = list.iter().map(|value| {
            let mut key = Vec::new();
            encode_value(&mut key, value, false);
            key.into_boxed_slice()
        });
        let indexed = Indexed(keys.collect());
        call.prepare(indexed);
    }
    Ok(())
}

pub(super) fn is_in<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    if let (Some(Indexed(keys)), Some(value)) = (call.prepared(), value.raw()) {
        let mut key = Vec::new();
        encode_value(&mut key, value, false);
        return Ok(keys.contains(&*key).into());
    }
    let array = call.argument(1, env)?;
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            40_081,
            format!("$in requires an array as a second argument, found: {found}"),
        ));
    };
    Ok(position(elements, &value, 0, usize::MAX, env)?.is_some().into())
}

pub(super) fn index_of_array<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    if array.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            40_090,
            format!("$indexOfArray requires an array as a first argument, found: {found}"),
        ));
    };
    let value = call.argument(1, env)?;
    let start = bound(call, 2, "starting", env)?.unwrap_or(0);
    let end = bound(call, 3, "ending", env)?.unwrap_or(usize::MAX);
    Ok(position(elements, &value, start, end, env)?.map_or(-1, |index| index as i32).into())
}

/// The first place from `start` up to `end` at which the value is.
fn position(
    elements: RawArray<'_>,
    value: &Evaluated<'_>,
    start: usize,
    end: usize,
    env: &Env<'_>,
) -> Result<Option<usize>> {
    for (index, element) in elements.iter().enumerate().take(end).skip(start) {
        env.tick()?;
        if value.compare(&element.into()).is_eq() {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// An optional argument that is an index.
pub(in crate::expression) fn bound(
    call: &Call,
    argument: usize,
    which: &str,
    env: &Env<'_>,
) -> Result<Option<usize>> {
    let Some(expression) = call.expression(argument) else { return Ok(None) };
    let value = expression.evaluate(env)?;
    let name = call.operator.name;
    match value.raw().and_then(integral) {
        Some(index) if index >= 0 => Ok(Some(index as usize)),
        Some(index) => Err(Error::location(
            40_097,
            format!("{name} requires a nonnegative {which} index, found: {index}"),
        )),
        None => Err(Error::location(
            40_096,
            format!(
                "{name}requires an integral {which} index, found a value of type: {}, with value: {}",
                value.type_name(),
                value.raw().map_or_else(|| "MISSING".to_owned(), show)
            ),
        )),
    }
}
