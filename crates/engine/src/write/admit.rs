//! What a change is refused for before anything is looked up for it.

use kilim_error::{Error, ErrorCode, Result};

use super::capped;
use crate::change::Change;
use crate::limits;
use crate::patterns::refuse_change;
use crate::unit::Unit;

/// Whether documents of this collection may be changed in this way.
pub(super) fn check_admitted(unit: &Unit<'_>, change: &Change<'_>) -> Result<()> {
    let namespace = &change.collection.namespace;
    if namespace.holds_definitions() && change.before.is_some() {
        return Err(refuse_change(namespace));
    }
    if change.collection.capped.is_some() && unit.is_transaction() {
        return Err(match change.after {
            Some(_) => capped::not_in_transaction(namespace),
            None => capped::no_removal_in_transaction(namespace),
        });
    }
    Ok(())
}

/// Whether a document may be stored: its size and its depth.
pub(super) fn check_storable(change: &Change<'_>) -> Result<()> {
    let Some(document) = change.after else { return Ok(()) };
    let size = document.as_bytes().len();
    if size > limits::DOCUMENT_BYTES_MAX {
        return Err(Error::user(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {}(16MB)",
                limits::DOCUMENT_BYTES_MAX + limits::DOCUMENT_BYTES_SLACK
            ),
        ));
    }
    document.check_stored_depth()
}
