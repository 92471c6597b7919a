//! Capped collections: of a bounded size, the oldest documents make room for new ones.
//!
//! Inserts into one capped collection follow each other: whoever inserts holds the collection's counter until its
//! batch is handed in. So sizes are exact, records become visible in the order of their numbers, and a tailable
//! cursor that has seen a record never misses one before it.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Direction, Durability, Space};

use crate::catalog::{Collection, RecordId};
use crate::ddl::{forget, save};
use crate::engine::Engine;
use crate::layout;
use crate::maintenance::see_newest;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::ExecContext;
use crate::records::{self, Sight};
use crate::write::{Before, Unit, insert};

/// How much a capped collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capped {
    pub bytes_max: i64,
    /// None where only the size counts.
    pub documents_max: Option<i64>,
}

impl Capped {
    /// What a collection's options say.
    pub fn of(options: RawDocument<'_>) -> Option<Capped> {
        let number = |name| match options.get(name) {
            Some(RawValue::Int32(number)) => Some(i64::from(number)),
            Some(RawValue::Int64(number)) => Some(number),
            _ => None,
        };
        match options.get("capped") {
            Some(RawValue::Bool(true)) => {
                Some(Capped { bytes_max: number("size")?, documents_max: number("max") })
            }
            _ => None,
        }
    }

    fn is_exceeded_by(self, bytes: i64, documents: i64) -> bool {
        bytes > self.bytes_max || self.documents_max.is_some_and(|max| documents > max)
    }
}

/// A document that goes for a new one.
pub(crate) struct Evicted {
    pub record: RecordId,
    pub stored: Document,
    /// What users saw of it, where patterns had not come to write it yet.
    seen: Option<Document>,
}

impl Evicted {
    pub fn before(&self) -> Before<'_> {
        let stored = self.stored.as_raw();
        Before { stored, seen: self.seen.as_ref().map_or(stored, Document::as_raw) }
    }
}

/// Takes the place that a new document needs: the oldest ones that must go for it, held, as they are now.
pub(crate) fn make_room(
    unit: &mut Unit<'_>,
    collection: &Collection,
    capped: Capped,
    document: RawDocument<'_>,
) -> Result<Vec<Evicted>> {
    unit.hold_for_batch(Space::Meta, &layout::counter_key(collection.id))?;
    let snapshot = unit.newest_snapshot()?;
    let counted = collection.home().counts(&snapshot)?;
    let mut documents = counted.count + 1;
    let mut bytes = counted.bytes + document.as_bytes().len() as i64;
    let mut oldest = Vec::new();
    if !capped.is_exceeded_by(bytes, documents) {
        return Ok(oldest);
    }
    // With nothing written yet, the unit sees what is published: the first record there is the oldest for good, since
    // new ones come behind and the counter is held.
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

/// What MongoDB refuses inside a transaction.
pub(crate) fn not_in_transaction(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::OperationNotSupportedInTransaction,
        format!(
            "Collection '{namespace}' is a capped collection. Writes in transactions are not allowed on capped \
             collections."
        ),
    )
}

/// The same for removals.
pub(crate) fn no_removal_in_transaction(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::IllegalOperation,
        format!("Cannot remove from a capped collection in a multi-document transaction: {namespace}"),
    )
}

/// What a collection is called while it is filled.
const TEMPORARY: &str = "tmp.agg_out.";

/// `convertToCapped`: a capped collection with the newest documents of another takes its place, with no index but
/// `_id`'s.
pub fn convert(unit: &mut Unit<'_>, namespace: &Namespace, options: Document) -> Result<()> {
    let engine = unit.engine;
    let operation = unit.operation.clone();
    let temporary = Namespace {
        database: namespace.database.clone(),
        collection: format!("{TEMPORARY}{:016x}", rand::random::<u64>()),
    };
    // No writer comes in before the other is in its place.
    let (source, _held) = engine.hold(&operation, namespace)?;
    if engine
        .patterns()
        .iter()
        .any(|pattern| pattern.target == *namespace || pattern.source.as_ref() == Some(namespace))
    {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            format!("{namespace} cannot be converted while patterns are declared on it: drop them first"),
        ));
    }
    engine.create_temporary(&temporary, options)?;
    let copied =
        copy(unit, namespace, &temporary).and_then(|()| engine.put_in_place(&operation, &temporary, &source));
    if copied.is_err() {
        let _ = unit.settle();
        let _ = engine.drop_collection(&operation, &temporary);
    }
    copied
}

/// `cloneCollectionAsCapped`: the same beside the other.
pub fn clone_as_capped(
    unit: &mut Unit<'_>,
    from: &Namespace,
    to: &Namespace,
    options: Document,
) -> Result<()> {
    unit.engine.create_collection(to, options)?;
    copy(unit, from, to)
}

impl Engine {
    /// Gives a collection the name and place of another, which the caller holds.
    fn put_in_place(&self, operation: &Operation, new: &Namespace, old: &Collection) -> Result<()> {
        let (new, _held) = self.hold(operation, new)?;
        let _ids = self.ids.lock();
        let renamed = Collection { namespace: old.namespace.clone(), temporary: false, ..(*new).clone() };
        let mut transaction = self.store.begin();
        forget(&mut transaction, old);
        save(&mut transaction, &renamed);
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| {
            catalog.remove(&new.namespace);
            catalog.insert(Arc::new(renamed));
        });
        self.cursors.close_of_collection(old.id);
        old.end_builds();
        Ok(())
    }
}

fn copy(unit: &mut Unit<'_>, from: &Namespace, to: &Namespace) -> Result<()> {
    let operation: Arc<Operation> = unit.operation.clone();
    let request = crate::planner::ReadRequest::new(Arc::new(kilim_query::filter::Filter::True));
    let mut executor = crate::read::plan(unit, from, request)?.execute();
    unit.bypass_validation = true;
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    while let Some(row) = executor.next_document(&mut context)? {
        let outcome = insert(unit, to, &[row.document()], true, |_| 0)?;
        if let Some((_, error)) = outcome.errors.into_iter().next() {
            return Err(error);
        }
    }
    unit.settle()
}
