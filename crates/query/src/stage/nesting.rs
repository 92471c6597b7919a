//! How deep the documents between stages may get.
//!
//! `{$replaceWith: {a: "$$ROOT"}}` adds a level, and a pipeline has room for a thousand of them. What walks values
//! relies on a bound, so every stage that makes documents is held to the one that mongod has for results.

use kilim_bson::{DEPTH_MAX, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::interrupt::{self, BYTES_PER_TICK};

/// Refuses a document that was made too deep.
pub fn check_nesting(document: RawDocument<'_>) -> Result<()> {
    // Every document that a stage makes comes by here: copying it has taken about as long as walking it will.
    interrupt::spend(document.as_bytes().len() / BYTES_PER_TICK)?;
    if !crate::update::is_deeper(RawValue::Document(document), DEPTH_MAX) {
        return interrupt::settled();
    }
    Err(Error::user(
        ErrorCode::Overflow,
        format!(
            "cannot convert document to BSON because it exceeds the limit of {DEPTH_MAX} levels of nesting"
        ),
    ))
}
