//! Elements of an array by their place, parts of it, and its size.

use kilim_bson::{RawArray, RawValue};
use kilim_error::{Error, Result};

use super::{Building, integral};
use crate::expression::{Call, Env, Evaluated};
use crate::filter::number::{short, to_f64};

pub(super) fn array_elem_at<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    let place = call.argument(1, env)?;
    if array.is_nullish() || place.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    if array.as_array().is_none() {
        return Err(not_array("$arrayElemAt's first", &array));
    }
    let place = place.raw_or_null();
    if !place.is_number() {
        let found = place.element_type().name();
        return Err(Error::location(
            28_690,
            format!("$arrayElemAt's second argument must be a numeric value, but is {found}"),
        ));
    }
    let Some(index) = integral(place) else {
        let found = short(to_f64(place));
        return Err(Error::location(
            28_691,
            format!("$arrayElemAt's second argument must be representable as a 32-bit integer: {found}"),
        ));
    };
    Ok(element_of(array, index))
}

pub(super) fn first<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    end("$first's", call.argument(0, env)?, 0)
}

pub(super) fn last<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    end("$last's", call.argument(0, env)?, -1)
}

fn end<'a>(name: &str, array: Evaluated<'a>, index: i32) -> Result<Evaluated<'a>> {
    if array.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    if array.as_array().is_none() {
        return Err(not_array(name, &array));
    }
    Ok(element_of(array, index))
}

fn not_array(whose: &str, found: &Evaluated<'_>) -> Error {
    let found = found.type_name();
    Error::location(28_689, format!("{whose} argument must be an array, but is {found}"))
}

/// The element at an index, which counts from the end where it is negative.
fn element_of<'a>(array: Evaluated<'a>, index: i32) -> Evaluated<'a> {
    match array {
        Evaluated::Raw(RawValue::Array(array)) => at(array, index).into(),
        other => Evaluated::from(other.as_array().and_then(|array| at(array, index))).into_owned(),
    }
}

fn at(array: RawArray<'_>, index: i32) -> Option<RawValue<'_>> {
    let magnitude = index.unsigned_abs() as usize;
    if index >= 0 { array.get(magnitude) } else { array.get(array.len().checked_sub(magnitude)?) }
}

pub(super) fn slice<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    // How many from the front or the end; with a third argument, where to begin.
    let second = call.argument(1, env)?;
    if array.is_nullish() || second.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            28_724,
            format!("First argument to $slice must be an array, but is of type: {found}"),
        ));
    };
    let second = slice_number(&second, "Second", 28_725, "must be a numeric value, but is of type")?;
    let count = elements.len();
    let magnitude = second.unsigned_abs() as usize;
    let range = if !call.is_given(2) {
        if second >= 0 { 0..magnitude.min(count) } else { count.saturating_sub(magnitude)..count }
    } else {
        let start = if second >= 0 { magnitude.min(count) } else { count.saturating_sub(magnitude) };
        let third = call.argument(2, env)?;
        if third.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let third = slice_number(&third, "Third", 28_727, "must be numeric, but is of type")?;
        if third <= 0 {
            return Err(Error::location(
                28_729,
                format!("Third argument to $slice must be positive: {third}"),
            ));
        }
        start..count.min(start + third as usize)
    };
    if range == (0..count) {
        return Ok(array);
    }
    let mut part = Building::new();
    for element in elements.iter().skip(range.start).take(range.len()) {
        part.push(element)?;
    }
    Ok(part.finish())
}

fn slice_number(value: &Evaluated<'_>, which: &str, code: i32, not_number: &str) -> Result<i32> {
    let value = value.raw_or_null();
    if !value.is_number() {
        let found = value.element_type().name();
        return Err(Error::location(code, format!("{which} argument to $slice {not_number}: {found}")));
    }
    integral(value).ok_or_else(|| {
        let found = short(to_f64(value));
        Error::location(
            code + 1,
            format!("{which} argument to $slice can't be represented as a 32-bit integer: {found}"),
        )
    })
}

pub(super) fn size<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            17_124,
            format!("The argument to $size must be an array, but was of type: {found}"),
        ));
    };
    // A document's bytes bound the count far below.
    Ok((elements.len() as i32).into())
}

pub(super) fn is_array<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(call.argument(0, env)?.as_array().is_some().into())
}
