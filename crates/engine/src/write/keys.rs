//! The index keys of a change: derived and claimed before anything is stored, then written.

use kilim_bson::RawDocument;
use kilim_error::{Error, Result};

use crate::catalog::Collection;
use crate::change::{Change, Elements};
use crate::ids::RecordId;
use crate::index::{Index, KeySet, duplicate_key, keys_of, keys_of_parts};
use crate::layout;
use crate::limits;
use crate::records::RowId;
use crate::unit::Unit;

/// What a change does to the keys of its collection's indexes.
pub(super) enum KeyChanges<'c> {
    /// The keys of a new document, index by index.
    New(Vec<KeySet>),
    /// Old and new keys in the indexes that the change may concern.
    Changed(Vec<ChangedKeys<'c>>),
    /// A document that is deleted. Its keys are derived index by index while they are removed, so that one set of keys serves
    /// all indexes.
    Removed(RawDocument<'c>),
}

/// The keys of a document in an index, before and after.
pub(super) struct ChangedKeys<'c> {
    index: &'c Index,
    old: KeySet,
    new: KeySet,
    /// Keys that stay are written all the same: the types beside them may be others.
    renews_types: bool,
}

impl<'c> KeyChanges<'c> {
    /// Derives the keys of a change and takes the intents on those that must be unique. Refuses a key that another document
    /// has.
    pub fn claim(
        unit: &mut Unit<'_>,
        change: &Change<'c>,
        row: RowId,
        untouched: &dyn Fn(&Index) -> bool,
    ) -> Result<KeyChanges<'c>> {
        let keys = match (change.stored_before(), change.after) {
            (None, Some(after)) => claim_new(unit, change, row, after)?,
            (Some(before), Some(after)) => claim_changed(unit, change, row, before, after, untouched)?,
            (Some(before), None) => KeyChanges::Removed(before),
            (None, None) => return Err(Error::bug("a change of nothing")),
        };
        // An index that is being built notes that this record changes. It refuses a document that it could not index.
        for building in change.collection.building.iter() {
            building.touch(row.record, change.after)?;
        }
        Ok(keys)
    }

    /// Writes the keys.
    pub fn write(self, unit: &mut Unit<'_>, change: &Change<'_>, row: RowId) -> Result<()> {
        let collection = change.collection;
        let mut entries = std::mem::take(&mut unit.buffers.entries);
        let transaction = unit.transaction();
        let (mut inserted, mut deleted) = (0, 0);
        let mut keys_used = Vec::new();
        match self {
            KeyChanges::New(new) => {
                for (index, keys) in collection.indexes.iter().zip(&new) {
                    for (key, type_bits) in keys.iter() {
                        entries.put(transaction, index, key, type_bits, row.record);
                        inserted += 1;
                    }
                }
                keys_used = new;
            }
            KeyChanges::Changed(changes) => {
                for ChangedKeys { index, old, new, renews_types } in &changes {
                    for (key, _) in old.iter().filter(|(key, _)| !new.contains(key)) {
                        entries.delete(transaction, index, key, row.record);
                        deleted += 1;
                    }
                    for (key, type_bits) in new.iter() {
                        // Equal keys may differ in the types of their values: 1 became 1.0.
                        if *renews_types || !old.contains_with_bits(key, type_bits) {
                            entries.put(transaction, index, key, type_bits, row.record);
                            inserted += 1;
                        }
                    }
                }
            }
            KeyChanges::Removed(before) => {
                let mut keys = KeySet::default();
                for index in collection.indexes.iter() {
                    match change.elements.filter(|elements| elements.concern(index)) {
                        Some(elements) => keys_of_parts(&index.spec, elements.before, &mut keys)?,
                        None => keys_of(&index.spec, before, &mut keys)?,
                    };
                    for (key, _) in keys.iter() {
                        entries.delete(transaction, index, key, row.record);
                        deleted += 1;
                    }
                }
            }
        }
        entries.write(transaction);
        if entries.bytes_held() <= limits::BUFFER_BYTES_KEPT {
            unit.buffers.entries = entries;
        }
        let held: usize = keys_used.iter().map(KeySet::bytes_held).sum();
        if !keys_used.is_empty() && held <= limits::BUFFER_BYTES_KEPT {
            unit.buffers.keys = keys_used;
        }
        unit.figures.keys_inserted += inserted;
        unit.figures.keys_deleted += deleted;
        Ok(())
    }
}

impl Elements<'_> {
    /// Whether an index is over the array.
    fn concern(&self, index: &Index) -> bool {
        index.spec.is_over(self.field)
    }
}

fn claim_new<'c>(
    unit: &mut Unit<'_>,
    change: &Change<'c>,
    row: RowId,
    document: RawDocument<'_>,
) -> Result<KeyChanges<'c>> {
    let collection = change.collection;
    let mut all = std::mem::take(&mut unit.buffers.keys);
    all.resize_with(collection.indexes.len(), KeySet::default);
    // Index by index, `_id` first: the error for a duplicate `_id` comes before errors of other indexes.
    for (index, keys) in collection.indexes.iter().zip(&mut all) {
        let elements = change.elements.filter(|elements| elements.concern(index));
        find_new_keys(unit, collection, index, document, elements, keys)?;
        if index.spec.refuses_duplicates() {
            for (key, type_bits) in keys.iter() {
                claim_key(unit, collection, index, key, type_bits, row.record)?;
            }
        }
    }
    Ok(KeyChanges::New(all))
}

fn claim_changed<'c>(
    unit: &mut Unit<'_>,
    change: &Change<'c>,
    row: RowId,
    before: RawDocument<'_>,
    after: RawDocument<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<KeyChanges<'c>> {
    let collection = change.collection;
    let mut changes = Vec::new();
    for index in collection.indexes.iter() {
        let elements = change.elements.filter(|elements| elements.concern(index));
        if elements.is_none() && untouched(index) {
            continue;
        }
        let mut old = KeySet::default();
        match elements {
            Some(elements) => {
                keys_of_parts(&index.spec, elements.before, &mut old)?;
                if !elements.before.is_empty() {
                    old.remove_keys_of(&index.spec, elements.kept)?;
                }
            }
            None => drop(keys_of(&index.spec, before, &mut old)?),
        }
        let mut new = KeySet::default();
        find_new_keys(unit, collection, index, after, elements, &mut new)?;
        if index.spec.refuses_duplicates() {
            for (key, type_bits) in new.iter().filter(|(key, _)| !old.contains(key)) {
                claim_key(unit, collection, index, key, type_bits, row.record)?;
            }
        }
        let renews_types = elements.is_some_and(|elements| elements.is_folded);
        changes.push(ChangedKeys { index, old, new, renews_types });
    }
    Ok(KeyChanges::Changed(changes))
}

/// A document's keys in an index. Before, the catalog learns of arrays that the index did not meet yet.
fn find_new_keys(
    unit: &mut Unit<'_>,
    collection: &Collection,
    index: &Index,
    document: RawDocument<'_>,
    elements: Option<Elements<'_>>,
    keys: &mut KeySet,
) -> Result<()> {
    let seen = match elements {
        Some(elements) => keys_of_parts(&index.spec, elements.after, keys)?,
        None => keys_of(&index.spec, document, keys)?,
    };
    if !index.multikey.covers(&seen) {
        unit.widen_multikey(collection.id, index.id, &seen)?;
    }
    Ok(())
}

/// Takes the intent on a unique key for a record. Refuses if another record has the key.
fn claim_key(
    unit: &mut Unit<'_>,
    collection: &Collection,
    index: &Index,
    key: &[u8],
    type_bits: &[u8],
    record: RecordId,
) -> Result<()> {
    let mut entry = std::mem::take(&mut unit.buffers.entry);
    entry.clear();
    layout::push_entry(&mut entry, index.id, key, None);
    let is_taken = match index.spec.prepare_unique {
        true => unit.lock_prepared(&entry, record)?,
        false => unit.lock_unique(&entry)?.is_some_and(|holder| holder != record),
    };
    unit.buffers.entry = entry;
    match is_taken {
        true => Err(duplicate_key(&collection.namespace, index, key, type_bits)),
        false => Ok(()),
    }
}
