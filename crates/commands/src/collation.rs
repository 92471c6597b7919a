//! The collation that a command or a statement names.

use kilim_bson::{RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::Argument;
use crate::command::find;

/// The collation that a command or a statement names; the inner one is none where that is the simple one. An empty
/// document names nothing.
pub fn named(document: Option<RawDocument<'_>>) -> Result<Option<Option<Collation>>> {
    match document {
        Some(document) if !document.is_empty() => Collation::parse(document).map(Some),
        _ => Ok(None),
    }
}

/// A command's `collation`, as a document.
pub fn argument<'a>(command: &'static str, value: Option<RawValue<'a>>) -> Result<Option<RawDocument<'a>>> {
    match value {
        None => Ok(None),
        // Alone among commands, find takes null for a value here, and words the error like this.
        Some(value) if command == find::NAME => value.as_document().map(Some).ok_or_else(|| {
            Error::user(ErrorCode::TypeMismatch, "Expected field collationto be of type object")
        }),
        Some(RawValue::Null | RawValue::Undefined) => Ok(None),
        Some(value) => Argument { command, name: "collation", value }.document().map(Some),
    }
}
