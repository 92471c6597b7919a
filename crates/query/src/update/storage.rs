//! What may be stored: names with a dollar, the type of `_id`, nesting.

use kilim_bson::{RawDocument, RawValue, STORED_DEPTH_MAX};
use kilim_error::{Error, ErrorCode, Result};

/// Refuses a top-level name that looks like an operator.
pub(super) fn check_top_level_name(name: &str) -> Result<()> {
    if !name.starts_with('$') {
        return Ok(());
    }
    let message = format!(
        "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's \
         replacement document. Consider using an aggregation pipeline with $replaceWith."
    );
    Err(Error::user(ErrorCode::DollarPrefixedFieldName, message))
}

/// Refuses what cannot be an `_id`.
pub(super) fn check_id(id: RawValue<'_>) -> Result<()> {
    match id {
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => {
            Err(id_of_type(id.element_type().name()))
        }
        RawValue::Document(document) => check_names_within_id(document),
        _ => Ok(()),
    }
}

pub(super) fn id_of_type(kind: &str) -> Error {
    Error::user(ErrorCode::InvalidIdField, format!("The '_id' value cannot be of type {kind}"))
}

pub(super) fn id_would_change(path: &str) -> Error {
    let message = format!("Performing an update on the path '{path}' would modify the immutable field '_id'");
    Error::user(ErrorCode::ImmutableField, message)
}

/// What mongod says of an array where `_id` was, if it built the array itself.
pub(super) fn array_as_id(field: &str) -> Error {
    let message = format!(
        "After applying the update to the document, the {field} '_id' was found to be an array or array descendant."
    );
    Error::user(ErrorCode::NotSingleValueField, message)
}

fn check_names_within_id(document: RawDocument<'_>) -> Result<()> {
    for (name, value) in document {
        if name.starts_with('$') {
            let message =
                format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.");
            return Err(Error::user(ErrorCode::DollarPrefixedFieldName, message));
        }
        match value {
            RawValue::Document(inner) => check_names_within_id(inner)?,
            RawValue::Array(inner) => check_names_within_id(inner.as_document())?,
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a value that would lie too deep: `depth` documents enclose it already.
pub(super) fn check_depth(value: RawValue<'_>, depth: usize) -> Result<()> {
    if depth + nesting(value) > STORED_DEPTH_MAX {
        return Err(too_deep());
    }
    Ok(())
}

pub(super) fn too_deep() -> Error {
    let message = format!("Document exceeds maximum nesting depth of {STORED_DEPTH_MAX}");
    Error::user(ErrorCode::Overflow, message)
}

/// How many containers lie within each other. Recursion is bounded: the bytes were validated.
fn nesting(value: RawValue<'_>) -> usize {
    let within =
        |document: RawDocument<'_>| 1 + document.iter().map(|(_, value)| nesting(value)).max().unwrap_or(0);
    match value {
        RawValue::Document(document) => within(document),
        RawValue::Array(array) => within(array.as_document()),
        _ => 0,
    }
}
