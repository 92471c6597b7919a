//! The record and the counts of a change.

use std::sync::atomic::Ordering;

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
pub(super) fn store(unit: &mut Unit<'_>, change: &Change<'_>, row: RowId) {
    let home = change.collection.home();
    records::store(unit.transaction(), home, row, change.stored_before(), change.after);
}
