//! Fields of a declaration, with errors that say which one is wrong and what it could be.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

fn wrong_type(place: &str, name: &str, value: RawValue<'_>, expected: &str) -> Error {
    Error::user(
        ErrorCode::TypeMismatch,
        format!("'{place}.{name}' must be {expected}, not of type {}", value.element_type().name()),
    )
}

pub(crate) fn text<'a>(place: &str, name: &str, value: RawValue<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(place, name, value, "a text"))
}

pub(crate) fn document<'a>(place: &str, name: &str, value: RawValue<'a>) -> Result<RawDocument<'a>> {
    value.as_document().ok_or_else(|| wrong_type(place, name, value, "a document"))
}

pub(crate) fn boolean(place: &str, name: &str, value: RawValue<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(place, name, value, "true or false"))
}

/// A whole number within bounds.
pub(crate) fn whole(place: &str, name: &str, value: RawValue<'_>, least: i64, most: i64) -> Result<i64> {
    let number = match value {
        RawValue::Int32(number) => Some(i64::from(number)),
        RawValue::Int64(number) => Some(number),
        RawValue::Double(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
            Some(number as i64)
        }
        RawValue::Double(_) | RawValue::Decimal128(_) => None,
        _ => return Err(wrong_type(place, name, value, "a whole number")),
    };
    number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        Error::user(
            ErrorCode::BadValue,
            format!("'{place}.{name}' must be a whole number from {least} to {most}"),
        )
    })
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(
    place: &str,
    name: &str,
    value: RawValue<'_>,
    choices: &[(&str, T)],
) -> Result<T> {
    let given = text(place, name, value)?;
    choices.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("'{word}'")).collect();
        Error::user(
            ErrorCode::BadValue,
            format!("'{place}.{name}' is '{given}', but can be {} only", words.join(" or ")),
        )
    })
}

pub(crate) fn unknown(place: &str, name: &str) -> Error {
    Error::location(40415, format!("BSON field '{place}.{name}' is an unknown field."))
}

pub(crate) fn missing(place: &str, name: &str) -> Error {
    Error::location(40414, format!("BSON field '{place}.{name}' is missing but a required field"))
}

/// A number above 0 and up to 1.
pub(crate) fn share(place: &str, name: &str, value: RawValue<'_>) -> Result<f64> {
    let number = match value {
        RawValue::Double(number) => number,
        RawValue::Int32(number) => f64::from(number),
        RawValue::Int64(number) => number as f64,
        _ => return Err(wrong_type(place, name, value, "a number")),
    };
    if number > 0.0 && number <= 1.0 {
        return Ok(number);
    }
    Err(Error::user(ErrorCode::BadValue, format!("'{place}.{name}' must be above 0 and at most 1")))
}
