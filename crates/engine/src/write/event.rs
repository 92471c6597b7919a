//! The last step of a change: its event.
//!
//! A change is counted, and its record becomes part of its commit, for the change log.

use crate::change::{Cause, Change};
use crate::change_log::{self, Told};
use crate::limits;
use crate::records::{self, RowId};
use crate::unit::Unit;

/// `row` is where the change was stored.
pub(super) fn tell(unit: &mut Unit<'_>, change: &Change<'_>, row: RowId) {
    let metrics = &unit.engine.metrics;
    match (change.before, change.after) {
        (None, _) => metrics.documents_inserted.add(1),
        (Some(_), Some(_)) => {
            metrics.documents_updated.add(1);
            unit.figures.changed += 1;
        }
        (Some(_), None) => metrics.documents_deleted.add(1),
    }
    match change.cause {
        Cause::Pattern(patterns) => {
            patterns.iter().take(1).for_each(|first| first.counters.maintained.add(1));
            unit.caused.maintained += 1;
        }
        Cause::Expiry => unit.engine.expiry.removed.add(1),
        Cause::User | Cause::Eviction | Cause::Import | Cause::Copy | Cause::Job => {}
    }
    let is_told = unit.engine.store.logs() && !matches!(change.cause, Cause::Copy);
    if is_told && change_log::is_logged(&change.collection.namespace) {
        let session = unit.transaction_of();
        let buffer = std::mem::take(&mut unit.buffers.record);
        if let Some(Told { head, document }) = change_log::of_change(change, session, buffer) {
            match document {
                Some(document) => {
                    let (_, record) = records::lock_key(change.collection.id, row);
                    unit.transaction().log_with_document(&head, document.as_bytes(), &record);
                }
                None => unit.transaction().log(&head[..]),
            }
            if head.capacity() <= limits::BUFFER_BYTES_KEPT {
                unit.buffers.record = head;
            }
        }
    }
}
