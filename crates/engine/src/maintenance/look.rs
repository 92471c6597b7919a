//! Looks into a snapshot that hold nothing: for checks and estimates.

use kilim_bson::{Document, RawValue, encode_value};
use kilim_error::Result;
use kilim_storage::{Snapshot, Space};

use super::sources::{document_of, unique_index};
use crate::catalog::Collection;
use crate::layout;

/// The document with this key.
pub(super) fn find_by_unique(
    snapshot: &Snapshot,
    collection: &Collection,
    field: &str,
    key: RawValue<'_>,
) -> Result<Option<Document>> {
    let Some(index) = unique_index(collection, field) else { return Ok(None) };
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, index.spec.key[0].descending);
    let entry = layout::unique_entry(index.id, &bytes);
    let Some(value) = snapshot.get(Space::Index, &entry)? else { return Ok(None) };
    let record = layout::record_key(collection.id, layout::record_id_of(&value[..8]));
    let stored = snapshot.get(Space::Records, &record)?;
    Ok(stored.map(|stored| document_of(collection, &stored)))
}

/// How many documents a collection has.
pub(super) fn count_of(snapshot: &Snapshot, collection: &Collection) -> Result<u64> {
    let counter = snapshot.counter(&layout::counter_key(collection.id))?;
    Ok(counter.count.max(0) as u64)
}
