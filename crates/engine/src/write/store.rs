//! The record and the counts of a change.

use std::sync::atomic::Ordering;

use kilim_error::Result;

use crate::catalog::Collection;
use crate::change::Change;
use crate::ids::RecordId;
use crate::records::{self, RowId};
use crate::unit::Unit;

/// The row that a new document gets.
pub(super) fn new_row(collection: &Collection) -> RowId {
    RecordId(collection.shared.next_record.fetch_add(1, Ordering::Relaxed)).into()
}

/// Stores a change by the shape of its collection.
pub(super) fn store(unit: &mut Unit<'_>, change: &Change<'_>, row: RowId) -> Result<()> {
    let home = change.collection.home();
    let before = match change.stored_before() {
        Some(before) if home.shape.is_plain() => Some(before.as_bytes().len()),
        Some(_) => {
            let in_snapshot = unit.is_transaction();
            Some(records::stored_bytes(unit.transaction(), &home, row, in_snapshot)?)
        }
        None => None,
    };
    records::store(unit.transaction(), &home, row, before, change.after);
    Ok(())
}
