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

/// How a document that was found may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It must not change before the commit.
    Copy,
    /// It will be written.
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

/// Holds a key that a document is about to have: whoever looked for it and found nothing has committed by then, and
/// whoever looks later waits.
pub(crate) fn hold_unique(
    unit: &mut Unit<'_>,
    collection: &Collection,
    field: &str,
    key: RawValue<'_>,
) -> Result<()> {
    let Some(index) = unique_index(collection, field) else { return Ok(()) };
    unit.hold_alone(Space::Index, &entry_of(index, key))
}

/// A key's entry in a unique index.
fn entry_of(index: &Index, key: RawValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, index.spec.key[0].descending);
    layout::unique_entry(index.id, &bytes)
}

/// The document with this key, or none; nobody makes or removes one before the commit.
pub(crate) fn find_unique(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    field: &str,
    key: RawValue<'_>,
    usage: Use,
) -> Result<Option<Newest>> {
    let Some(collection) = unit.join(namespace)? else { return Ok(None) };
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

/// A record as of the newest commit.
pub(crate) fn read_newest(
    unit: &mut Unit<'_>,
    collection: &Collection,
    record: RecordId,
    usage: Use,
) -> Result<Option<Document>> {
    let (home, row) = (collection.home(), record.into());
    let (space, key) = records::lock_key(home, row);
    match usage {
        Use::Copy => unit.hold_shared(space, &key)?,
        Use::Write => unit.hold_alone(space, &key)?,
    }
    let newest = records::newest(unit.transaction(), home, row)?;
    Ok(newest.map(|image| image.document().to_document()))
}
