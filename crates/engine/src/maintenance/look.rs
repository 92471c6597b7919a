//! Reads of a snapshot that hold nothing: for checks and estimates.

use kilim_bson::{Document, RawValue, encode_value};
use kilim_error::Result;
use kilim_storage::{Snapshot, Space};

use super::sources::unique_index;
use crate::catalog::Collection;
use crate::layout;
use crate::records::Records;

/// The document whose unique field has this key.
pub(crate) fn find_by_unique(
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
    let record = layout::record_id_of(&value[..8]);
    let found = Records::new(collection.home(), snapshot).get(record.into())?;
    Ok(found.map(|image| image.document().to_document()))
}

/// How many documents a collection has.
pub(crate) fn count_of(snapshot: &Snapshot, collection: &Collection) -> Result<u64> {
    Ok(collection.home().counts(snapshot)?.count.max(0) as u64)
}
