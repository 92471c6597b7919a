//! Capped collections: of a bounded size, the oldest documents make room for new ones.
//!
//! Inserts into one capped collection follow each other: a unit that inserts holds the collection's counter until its
//! batch is handed in. So sizes are exact, records become visible in the order of their numbers, and a tailable
//! cursor that has seen a record never misses an earlier one.

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Direction, Space};

use crate::change::{Before, Change};
use crate::ids::RecordId;
use crate::layout;
use crate::namespace::Namespace;
use crate::patches::see_newest;
use crate::records::{self, Sight};
use crate::unit::Unit;

/// A document that is deleted to make room for a new one.
pub(crate) struct Evicted {
    pub record: RecordId,
    pub stored: Document,
    /// What users saw, if something is pending for the document.
    seen: Option<Document>,
}

impl Evicted {
    pub fn before(&self) -> Before<'_> {
        let stored = self.stored.as_raw();
        Before { stored, seen: self.seen.as_ref().map_or(stored, Document::as_raw) }
    }
}

/// Finds the oldest documents that must be deleted so that a new one fits into a capped collection. They are held, and read
/// as of the newest commit.
pub(crate) fn make_room(unit: &mut Unit<'_>, change: &Change<'_>) -> Result<Vec<Evicted>> {
    let collection = change.collection;
    let (Some(capped), None, Some(document)) = (collection.capped, change.before, change.after) else {
        return Ok(Vec::new());
    };
    unit.hold_for_batch(Space::Meta, &layout::counter_key(collection.id))?;
    let snapshot = unit.newest_snapshot()?;
    let counted = collection.home().counts(&snapshot)?;
    let mut documents = counted.count + 1;
    let mut bytes = counted.bytes + document.as_bytes().len() as i64;
    let mut oldest = Vec::new();
    if !capped.is_exceeded_by(bytes, documents) {
        return Ok(oldest);
    }
    // If the unit has written nothing yet, it sees what is published. The first record there stays the oldest: the counter
    // is held, and new records come after it.
    let publishes = unit.transaction().is_empty();
    let from = collection.oldest_in(&snapshot);
    for record in records::ids(&snapshot, collection.id, from.., Direction::Forward) {
        if !capped.is_exceeded_by(bytes, documents) {
            break;
        }
        let record = record?;
        if publishes && oldest.is_empty() {
            collection.note_oldest(record, snapshot.commit_time());
        }
        let Some(newest) = unit.lock_record(collection, record.into())? else { continue };
        let stored = newest.document();
        documents -= 1;
        bytes -= stored.as_bytes().len() as i64;
        let seen = match see_newest(unit, &collection.namespace, stored)? {
            Sight::AsStored | Sight::Gone => None,
            Sight::Other(seen) => Some(seen),
        };
        oldest.push(Evicted { record, stored: stored.to_document(), seen });
        unit.operation.check()?;
    }
    Ok(oldest)
}

/// MongoDB's error for an insert or update inside a transaction.
pub(crate) fn not_in_transaction(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::OperationNotSupportedInTransaction,
        format!(
            "Collection '{namespace}' is a capped collection. Writes in transactions are not allowed on capped \
             collections."
        ),
    )
}

/// MongoDB's error for a removal inside a transaction.
pub(crate) fn no_removal_in_transaction(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::IllegalOperation,
        format!("Cannot remove from a capped collection in a multi-document transaction: {namespace}"),
    )
}
