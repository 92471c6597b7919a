//! What date operators take: values with a date in them, time zones, whole numbers.

use std::borrow::Cow;

use kilim_bson::RawValue;
use kilim_error::{Error, Result};

use super::format::Format;
use super::zone::Zone;
use crate::expression::{Call, Env, Evaluated, Operator};

/// Milliseconds since 1970 of a date, or of what carries a time: a timestamp, an identifier.
pub fn millis(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::DateTime(millis) => Some(millis),
        RawValue::Timestamp(time) => Some(i64::from(time.seconds) * 1000),
        RawValue::ObjectId(id) => {
            let [a, b, c, d, ..] = id.to_bytes();
            // Signed, as MongoDB reads it.
            Some(i64::from(i32::from_be_bytes([a, b, c, d])) * 1000)
        }
        _ => None,
    }
}

/// The date of an argument that most operators insist on.
pub fn require_millis(value: &Evaluated<'_>) -> Result<i64> {
    value.raw().and_then(millis).ok_or_else(|| {
        Error::location(16_006, format!("can't convert from BSON type {} to Date", value.type_name()))
    })
}

/// Seconds and milliseconds since 1970, the latter from 0 to 999.
pub fn split(millis: i64) -> (i64, i64) {
    (millis.div_euclid(1000), millis.rem_euclid(1000))
}

/// What was made of constant arguments.
#[derive(Debug, Default)]
pub struct Prepared {
    pub zone: Option<Zone>,
    pub format: Option<Format>,
}

/// Resolves a time zone that no document influences. One that cannot be is left to the evaluation, since
/// whether it is looked at depends on the other arguments.
pub fn prepare_zone_at(call: &mut Call, index: usize) -> Result<()> {
    let zone = constant_text(call, index).and_then(|name| Zone::parse(name).ok());
    call.prepare(Prepared { zone, format: None });
    Ok(())
}

pub fn constant_text(call: &Call, index: usize) -> Option<&str> {
    call.expression(index)?.as_constant()?.as_raw().as_str()
}

/// The time zone of a call: UTC where it was left out, none where it is null.
pub fn zone<'a>(call: &'a Call, index: usize, env: &Env<'a>) -> Result<Option<Cow<'a, Zone>>> {
    zone_or(call, index, env, |value| {
        Error::location(40_517, format!("timezone must evaluate to a string, found {}", value.type_name()))
    })
}

/// The same, where a wrong type has words of its own.
pub fn zone_or<'a>(
    call: &'a Call,
    index: usize,
    env: &Env<'a>,
    wrong_type: impl FnOnce(&Evaluated<'a>) -> Error,
) -> Result<Option<Cow<'a, Zone>>> {
    if let Some(Prepared { zone: Some(zone), .. }) = call.prepared() {
        return Ok(Some(Cow::Borrowed(zone)));
    }
    if !call.is_given(index) {
        return Ok(Some(Cow::Borrowed(&Zone::UTC)));
    }
    let value = call.argument(index, env)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let name = value.as_str().ok_or_else(|| wrong_type(&value))?;
    Zone::parse(name).map(|zone| Some(Cow::Owned(zone)))
}

/// `$op only supports an object as its argument`, as most of them say it.
pub fn only_an_object(code: i32, operator: &Operator) -> Error {
    Error::location(code, format!("{} only supports an object as its argument", operator.name))
}

pub fn unrecognized(code: i32, operator: &Operator, name: &str) -> Error {
    Error::location(code, format!("Unrecognized argument to {}: {name}", operator.name))
}

pub fn missing(code: i32, operator: &Operator, name: &str) -> Error {
    Error::location(code, format!("Missing '{name}' parameter to {}", operator.name))
}
