//! The door itself: a change of one document becomes its record, its index keys and its counts.
//!
//! Invariant: everything that can be refused is refused before the first byte is written, so a failed
//! change leaves the transaction as it was.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Space;

use super::capped;
use super::validity::check_valid;
use crate::catalog::{Collection, RecordId};
use crate::index::{Index, KeySet, duplicate_key, index_entry, keys_of};
use crate::maintenance::{self, carry};
use crate::unit::Unit;
use crate::{layout, limits, records};

/// A document before its change.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    /// What the record and its keys are made of.
    pub stored: RawDocument<'a>,
    /// What the change was made of: another where a pattern has not come to write the document yet.
    pub seen: RawDocument<'a>,
}

impl<'a> Before<'a> {
    /// As it is stored.
    pub(crate) fn of(stored: RawDocument<'a>) -> Before<'a> {
        Before { stored, seen: stored }
    }

    /// What is stored, where something else was seen.
    pub(crate) fn stored_apart(self) -> Option<Document> {
        (self.stored.as_bytes() != self.seen.as_bytes()).then(|| self.stored.to_document())
    }
}

/// What may be stored: size and depth.
fn check_stored_document(document: RawDocument<'_>) -> Result<()> {
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

/// Inserts a document. Where patterns shaped it, the answer tells how it was written. In a capped collection the
/// oldest documents go for it.
pub(crate) fn insert(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    document: RawDocument<'_>,
) -> Result<Option<Document>> {
    let Some(capped) = collection.capped else { return add(unit, collection, document) };
    if unit.is_transaction() {
        return Err(capped::not_in_transaction(&collection.namespace));
    }
    let oldest = capped::make_room(unit, collection, capped, document)?;
    let (saved, caused) = (unit.transaction().savepoint(), unit.caused.clone());
    let added = add(unit, collection, document).and_then(|shaped| {
        for evicted in &oldest {
            delete(unit, collection, evicted.record, evicted.before())?;
        }
        Ok(shaped)
    });
    if added.is_err() {
        unit.transaction().restore(saved);
        unit.caused = caused;
    }
    added
}

fn add(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    document: RawDocument<'_>,
) -> Result<Option<Document>> {
    if collection.namespace.holds_definitions() {
        return maintenance::adopt(unit, &collection.namespace, document).map(|()| None);
    }
    let Some(patterns) = unit.engine.patterns().concerned(&collection.namespace) else {
        check_valid(unit, collection, None, document)?;
        return put_new(unit, collection, document).map(|_| None);
    };
    Ok(carry(unit, patterns, collection, None, None, Some(document), &|_| false)?.shaped)
}

/// Replaces a document. `untouched` says which indexes need no look because the update cannot have
/// changed their keys. Where patterns shaped it, the answer tells how it was written.
pub(crate) fn update(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    record: RecordId,
    before: Before<'_>,
    after: RawDocument<'_>,
    untouched: impl Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    if collection.namespace.holds_definitions() {
        return Err(maintenance::refuse_change(&collection.namespace));
    }
    if collection.capped.is_some() && unit.is_transaction() {
        return Err(capped::not_in_transaction(&collection.namespace));
    }
    let Some(patterns) = unit.engine.patterns().concerned(&collection.namespace) else {
        check_valid(unit, collection, Some(before.stored), after)?;
        return put_changed(unit, collection, record, before.stored, after, untouched).map(|()| None);
    };
    Ok(carry(unit, patterns, collection, Some(record), Some(before), Some(after), &untouched)?.shaped)
}

pub(crate) fn delete(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    record: RecordId,
    before: Before<'_>,
) -> Result<()> {
    if collection.namespace.holds_definitions() {
        return Err(maintenance::refuse_change(&collection.namespace));
    }
    if collection.capped.is_some() && unit.is_transaction() {
        return Err(capped::no_removal_in_transaction(&collection.namespace));
    }
    let Some(patterns) = unit.engine.patterns().concerned(&collection.namespace) else {
        return put_removed(unit, collection, record, before.stored);
    };
    carry(unit, patterns, collection, Some(record), Some(before), None, &|_| false).map(drop)
}

/// A new document's record, keys and counts.
pub(crate) fn put_new(
    unit: &mut Unit<'_>,
    collection: &Collection,
    document: RawDocument<'_>,
) -> Result<RecordId> {
    check_stored_document(document)?;
    let record = RecordId(collection.shared.next_record.fetch_add(1, Ordering::Relaxed));
    let mut entries = Vec::with_capacity(collection.indexes.len());
    // Index by index, `_id` first: a key that is taken is reported before an index that cannot hold the rest.
    for index in collection.indexes.iter() {
        let keys = new_keys(unit, collection, index, document)?;
        claim(unit, collection, index, &keys, record)?;
        entries.push(keys);
    }
    touch_building(collection, record, Some(document))?;

    records::put(unit.transaction(), collection.home(), record.into(), document);
    let transaction = unit.transaction();
    let mut inserted = 0;
    for (index, keys) in collection.indexes.iter().zip(&entries) {
        for (key, type_bits) in keys.iter() {
            put_entry(transaction, index, key, type_bits, record);
            inserted += 1;
        }
    }
    transaction.add(&layout::counter_key(collection.id), 1, document.as_bytes().len() as i64);
    unit.figures.keys_inserted += inserted;
    unit.engine.metrics.documents_inserted.add(1);
    Ok(record)
}

/// A changed document's record, keys and counts.
pub(crate) fn put_changed(
    unit: &mut Unit<'_>,
    collection: &Collection,
    record: RecordId,
    before: RawDocument<'_>,
    after: RawDocument<'_>,
    untouched: impl Fn(&Index) -> bool,
) -> Result<()> {
    check_stored_document(after)?;
    let mut changes = Vec::new();
    for index in collection.indexes.iter() {
        if untouched(index) {
            continue;
        }
        let mut old = KeySet::default();
        keys_of(&index.spec, before, &mut old)?;
        let new = new_keys(unit, collection, index, after)?;
        if index.spec.refuses_duplicates() {
            for (key, type_bits) in new.iter().filter(|(key, _)| !old.contains(key)) {
                claim_key(unit, collection, index, key, type_bits, record)?;
            }
        }
        changes.push((index, old, new));
    }
    touch_building(collection, record, Some(after))?;

    records::put(unit.transaction(), collection.home(), record.into(), after);
    let transaction = unit.transaction();
    let (mut inserted, mut deleted) = (0, 0);
    for (index, old, new) in &changes {
        for (key, _) in old.iter().filter(|(key, _)| !new.contains(key)) {
            delete_entry(transaction, index, key, record);
            deleted += 1;
        }
        for (key, type_bits) in new.iter() {
            // Equal keys may still differ in type: 1 became 1.0.
            if !old.contains_with_bits(key, type_bits) {
                put_entry(transaction, index, key, type_bits, record);
                inserted += 1;
            }
        }
    }
    let grown = after.as_bytes().len() as i64 - before.as_bytes().len() as i64;
    if grown != 0 {
        transaction.add(&layout::counter_key(collection.id), 0, grown);
    }
    unit.figures.keys_inserted += inserted;
    unit.figures.keys_deleted += deleted;
    unit.figures.changed += 1;
    unit.engine.metrics.documents_updated.add(1);
    Ok(())
}

/// Takes a document's record, keys and counts away.
pub(crate) fn put_removed(
    unit: &mut Unit<'_>,
    collection: &Collection,
    record: RecordId,
    before: RawDocument<'_>,
) -> Result<()> {
    touch_building(collection, record, None)?;
    let transaction = unit.transaction();
    let mut keys = KeySet::default();
    let mut deleted = 0;
    for index in collection.indexes.iter() {
        keys.clear();
        keys_of(&index.spec, before, &mut keys)?;
        for (key, _) in keys.iter() {
            delete_entry(transaction, index, key, record);
            deleted += 1;
        }
    }
    records::remove(transaction, collection.home(), record.into());
    transaction.add(&layout::counter_key(collection.id), -1, -(before.as_bytes().len() as i64));
    unit.figures.keys_deleted += deleted;
    unit.engine.metrics.documents_deleted.add(1);
    Ok(())
}

/// A document's keys in an index, after the catalog knows the arrays they come from.
fn new_keys(
    unit: &mut Unit<'_>,
    collection: &Collection,
    index: &Index,
    document: RawDocument<'_>,
) -> Result<KeySet> {
    let mut keys = KeySet::default();
    let seen = keys_of(&index.spec, document, &mut keys)?;
    if !index.multikey.covers(&seen) {
        unit.widen_multikey(collection.id, index.id, &seen)?;
    }
    Ok(keys)
}

fn claim(
    unit: &mut Unit<'_>,
    collection: &Collection,
    index: &Index,
    keys: &KeySet,
    record: RecordId,
) -> Result<()> {
    if index.spec.refuses_duplicates() {
        for (key, type_bits) in keys.iter() {
            claim_key(unit, collection, index, key, type_bits, record)?;
        }
    }
    Ok(())
}

/// Takes a unique key for a record, or refuses.
fn claim_key(
    unit: &mut Unit<'_>,
    collection: &Collection,
    index: &Index,
    key: &[u8],
    type_bits: &[u8],
    record: RecordId,
) -> Result<()> {
    let entry = layout::unique_entry(index.id, key);
    if index.spec.prepare_unique {
        return match unit.lock_prepared(&entry, record)? {
            true => Err(duplicate_key(&collection.namespace, index, key, type_bits)),
            false => Ok(()),
        };
    }
    match unit.lock_unique(&entry)? {
        Some(holder) if holder != record => Err(duplicate_key(&collection.namespace, index, key, type_bits)),
        _ => Ok(()),
    }
}

/// Tells indexes under construction that this record changes; refuses what they could not index.
fn touch_building(collection: &Collection, record: RecordId, after: Option<RawDocument<'_>>) -> Result<()> {
    for building in collection.building.iter() {
        building.touch(record, after)?;
    }
    Ok(())
}

fn put_entry(
    transaction: &mut kilim_storage::Transaction,
    index: &Index,
    key: &[u8],
    type_bits: &[u8],
    record: RecordId,
) {
    let (entry, value) = index_entry(index, key, type_bits, record);
    transaction.put(Space::Index, entry, value);
}

fn delete_entry(transaction: &mut kilim_storage::Transaction, index: &Index, key: &[u8], record: RecordId) {
    match index.spec.unique {
        true => transaction.delete(Space::Index, &layout::unique_entry(index.id, key)),
        false => transaction.delete(Space::Index, &layout::plain_entry(index.id, key, record)),
    }
}
