//! The record and the counts of a change.

use std::sync::atomic::Ordering;

use kilim_error::Result;
use kilim_patterns::{Bucketing, Place};

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
        Some(before) if home.shape.counts_rows() => Some(before.as_bytes().len()),
        Some(_) => {
            let in_snapshot = unit.reads_transaction_snapshot();
            Some(records::stored_bytes(unit.transaction(), &home, row, in_snapshot)?)
        }
        None => None,
    };
    let left = match before {
        Some(_) => records::leave_bucket(unit.transaction(), &home, row)?,
        None => None,
    };
    records::store(unit.transaction(), &home, row, before, change.after);
    if let Some(bucketing) = home.shape.bucketing() {
        note_open(&mut unit.buffers.place, change, row, bucketing, left);
    }
    Ok(())
}

/// Tells whoever seals measurements of one that is open from here on. `left`: the bucket that it lay in before.
fn note_open(place: &mut Place, change: &Change<'_>, row: RowId, bucketing: &Bucketing, left: Option<u64>) {
    let open_rows = &change.collection.shared.open_rows;
    left.into_iter().for_each(|bucket| open_rows.note_worn(bucket));
    let Some(after) = change.after else { return };
    bucketing.find_place(after, place);
    // An open measurement that stays where it belongs is known already.
    let is_known =
        left.is_none() && change.stored_before().is_some_and(|before| bucketing.place(before) == *place);
    if !is_known {
        open_rows.note(place, row.record, after.as_bytes().len());
    }
}
