//! Documents found by a unique key, as of the newest commit.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, encode_value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Space;

use crate::catalog::{Collection, RecordId};
use crate::index::Index;
use crate::namespace::Namespace;
use crate::unit::Unit;
use crate::{layout, records};

/// What a document that was found is used for, which decides how it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is copied from: shared, so that it does not change before the commit.
    Copy,
    /// It will be written: held alone.
    Write,
}

/// A document as of the newest commit.
pub(crate) struct Newest {
    pub collection: Arc<Collection>,
    pub record: RecordId,
    pub document: Document,
}

/// The unique index over one field, by which documents are found.
pub(crate) fn unique_index<'c>(collection: &'c Collection, field: &str) -> Option<&'c Arc<Index>> {
    collection.indexes.iter().find(|index| {
        index.spec.unique
            && index.spec.key.len() == 1
            && index.spec.key[0].path.as_str() == field
            && !index.spec.sparse
            && index.spec.partial.is_none()
            && index.spec.has_plain_keys()
    })
}

/// Holds a key that a document is about to get. A writer that looked for the key and found nothing has committed by then.
/// A writer that looks for it later waits. The same goes for a writer that did not find the collection.
pub(crate) fn hold_unique(
    unit: &mut Unit<'_>,
    collection: &Collection,
    field: &str,
    key: RawValue<'_>,
) -> Result<()> {
    unit.hold_alone(Space::Meta, &absent_lock(&collection.namespace, key))?;
    let Some(index) = unique_index(collection, field) else { return Ok(()) };
    unit.hold_alone(Space::Index, &entry_of(index, key))
}

/// The collection in which a key is looked for. Without one there is no index entry to share. Another writer could make the
/// collection and insert the key before this unit commits, so the unit shares the key under the collection's name.
fn join_for(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    key: RawValue<'_>,
) -> Result<Option<Arc<Collection>>> {
    if let Some(collection) = unit.join(namespace)? {
        return Ok(Some(collection));
    }
    unit.hold_shared(Space::Meta, &absent_lock(namespace, key))?;
    unit.join(namespace)
}

fn absent_lock(namespace: &Namespace, key: RawValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, false);
    layout::absent_lock(namespace, &bytes)
}

/// A key's entry in a unique index.
fn entry_of(index: &Index, key: RawValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, index.spec.key[0].descending);
    layout::unique_entry(index.id, &bytes)
}

/// The document with this key, or none. The key is shared, so no document gets or loses it before the commit.
pub(crate) fn find_unique(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    field: &str,
    key: RawValue<'_>,
    usage: Use,
) -> Result<Option<Newest>> {
    let Some(collection) = join_for(unit, namespace, key)? else { return Ok(None) };
    let index = unique_index(&collection, field).ok_or_else(|| {
        Error::user(
            ErrorCode::PatternNotReady,
            format!("{namespace} has no unique index on '{field}' by which a pattern finds its documents: create it"),
        )
    })?;
    let entry = entry_of(index, key);
    unit.hold_shared(Space::Index, &entry)?;
    let Some(value) = unit.transaction().latest(Space::Index, &entry)? else { return Ok(None) };
    let record = layout::record_id_of(&value[..8]);
    let found = read_newest(unit, &collection, record, usage)?;
    Ok(found.map(|document| Newest { collection, record, document }))
}

/// Holds a record and reads it as of the newest commit.
pub(crate) fn read_newest(
    unit: &mut Unit<'_>,
    collection: &Collection,
    record: RecordId,
    usage: Use,
) -> Result<Option<Document>> {
    let (home, row) = (collection.home(), record.into());
    let (space, key) = records::lock_key(collection.id, row);
    match usage {
        Use::Copy => unit.hold_shared(space, &key)?,
        Use::Write => unit.hold_alone(space, &key)?,
    }
    let newest = records::newest(unit.transaction(), &home, row)?;
    Ok(newest.map(|image| image.document().to_document()))
}
