//! The fields of a stage's specification, refused in the words that mongod has for all of them alike.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

/// A number of any type.
pub(super) const NUMBERS: &str = "types '[long, int, decimal, double']";

/// `path` is the field's whole name: `$collStats.count`.
pub(super) fn wrong_type(path: &str, found: RawValue<'_>, expected: &str) -> Error {
    Error::user(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field '{path}' is the wrong type '{}', expected {expected}",
            found.element_type().name()
        ),
    )
}

pub(super) fn unknown(path: &str) -> Error {
    Error::location(40415, format!("BSON field '{path}' is an unknown field."))
}

/// `path` is the whole name of a field that must be there.
pub(super) fn missing(path: &str) -> Error {
    Error::location(40414, format!("BSON field '{path}' is missing but a required field"))
}

/// The document that `$setWindowFields`, `$densify` and `$fill` are written as.
pub(super) fn specification<'a>(name: &str, value: RawValue<'a>) -> Result<RawDocument<'a>> {
    value.as_document().ok_or_else(|| {
        let found = value.element_type().name();
        let message = format!("The {name} stage specification must be an object, found {found}");
        Error::user(ErrorCode::FailedToParse, message)
    })
}

/// The fields that are given: a null means absent.
pub(super) fn given<'a>(spec: RawDocument<'a>) -> impl Iterator<Item = (&'a str, RawValue<'a>)> {
    spec.iter().filter(|(_, value)| !matches!(value, RawValue::Null | RawValue::Undefined))
}
