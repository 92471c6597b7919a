//! Checks that need nothing but the change and its collection.

use kilim_bson::RawDocument;
use kilim_collation::collator;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::time_series::{Bucket, TimeSeries};

use super::capped;
use crate::change::Change;
use crate::limits;
use crate::namespace::Namespace;
use crate::patterns::{owned_pages, refuse_change};
use crate::records::Shape;
use crate::unit::Unit;

/// Whether documents of this collection may be changed in this way.
pub(super) fn check_admitted(unit: &Unit<'_>, change: &Change<'_>) -> Result<()> {
    let namespace = &change.collection.namespace;
    if change.cause.is_of_user() {
        check_not_blocked(unit, namespace)?;
    }
    if matches!(change.collection.shape, Shape::Pages) {
        return Err(owned_pages(namespace));
    }
    if namespace.holds_definitions() && change.before.is_some() {
        return Err(refuse_change(namespace));
    }
    if let Some(series) = &change.collection.time_series {
        check_bucket(unit, change, series)?;
    }
    if change.collection.capped.is_some() && unit.is_transaction() {
        return Err(match change.after {
            Some(_) => capped::not_in_transaction(namespace),
            None => capped::no_removal_in_transaction(namespace),
        });
    }
    Ok(())
}

/// Refuses a bucket that does not hold what its bounds say: readers pass over buckets by their bounds. Buckets that were made of
/// measurements here are as they must be.
fn check_bucket(unit: &Unit<'_>, change: &Change<'_>, series: &TimeSeries) -> Result<()> {
    if unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("{} holds buckets, which no transaction changes", change.collection.namespace),
        ));
    }
    let Some(document) = change.after.filter(|_| !unit.writes_measurements) else { return Ok(()) };
    match Bucket::is_sound(series, document, collator(&change.collection.collation)) {
        true => Ok(()),
        false => Err(Error::user(
            ErrorCode::BadValue,
            "not a bucket of version 1, 2 or 3 whose bounds are those of its measurements",
        )),
    }
}

/// Refuses what users write while `setUserWriteBlockMode` is on. What the database itself writes goes on.
pub(super) fn check_not_blocked(unit: &Unit<'_>, namespace: &Namespace) -> Result<()> {
    let blocked = unit.engine.settings.user_writes_blocked() && !unit.bypasses_write_block;
    match blocked && !namespace.is_internal() {
        true => Err(user_writes_blocked()),
        false => Ok(()),
    }
}

/// The refusal of a write while `setUserWriteBlockMode` is on.
pub fn user_writes_blocked() -> Error {
    Error::user(ErrorCode::UserWritesBlocked, "User writes blocked")
}

/// Whether a document may be stored: its size and its depth.
pub(super) fn check_storable(change: &Change<'_>) -> Result<()> {
    let Some(document) = change.after else { return Ok(()) };
    check_size(document)?;
    document.check_stored_depth()
}

/// Refuses a document that is too large to be stored.
pub(super) fn check_size(document: RawDocument<'_>) -> Result<()> {
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
    Ok(())
}
