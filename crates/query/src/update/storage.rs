//! What may be stored: names with a dollar, the type of `_id`, nesting.

use kilim_bson::{ElementType, RawDocument, RawValue, STORED_DEPTH_MAX};
use kilim_error::{Error, ErrorCode, Result};

use crate::interrupt::{self, BYTES_PER_TICK};

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
pub fn check_id(id: RawValue<'_>) -> Result<()> {
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
    match STORED_DEPTH_MAX.checked_sub(depth) {
        Some(levels) if !is_deeper(value, levels) => Ok(()),
        _ => Err(too_deep()),
    }
}

pub(super) fn too_deep() -> Error {
    let message = format!("Document exceeds maximum nesting depth of {STORED_DEPTH_MAX}");
    Error::user(ErrorCode::Overflow, message)
}

/// The least that one document within another adds: its type, an empty name, its length, its end.
const LEVEL_BYTES: usize = 1 + 1 + 4 + 1;

/// Whether more than so many containers lie within each other. What was computed may be deeper than anything
/// that was validated, so no more is looked at.
pub(crate) fn is_deeper(value: RawValue<'_>, levels: usize) -> bool {
    let Some(content) = value.as_container() else { return false };
    if levels == 0 {
        return true;
    }
    if content.as_bytes().len() <= levels * LEVEL_BYTES {
        return false;
    }
    // What is said from here on counts for nothing.
    if !interrupt::goes_on(1 + content.as_bytes().len() / BYTES_PER_TICK) {
        return false;
    }
    let mut elements = content.iter();
    while let Some(element) = elements.next_element() {
        if matches!(element.element_type(), ElementType::Document | ElementType::Array)
            && is_deeper(element.value(), levels - 1)
        {
            return true;
        }
    }
    false
}
