//! Records as writers see and leave them.

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_storage::{Bytes, Space, Transaction};

use super::home::record_key;
use super::{Home, Image, Newest, RowId};
use crate::ids::{CollectionId, RecordId};
use crate::layout::{self, STAMP_BYTES};

/// What a writer of a row holds: a key of the store.
pub(crate) fn lock_key(collection: CollectionId, row: RowId) -> (Space, [u8; 12]) {
    (Space::Records, record_key(collection, row.record))
}

/// A row as of the newest commit; none where it is gone. The caller holds it.
pub(crate) fn newest(transaction: &Transaction, home: &Home, row: RowId) -> Result<Option<Image>> {
    match transaction.latest(Space::Records, &home.key(row.record))? {
        Some(stored) => home.row(row, stored, &Newest { transaction, in_snapshot: false }),
        None => Ok(None),
    }
}

/// A row as a transaction sees it; a conflict where it was changed since the transaction began. The caller holds it.
pub(crate) fn unchanged_in(transaction: &Transaction, home: &Home, row: RowId) -> Result<Option<Image>> {
    let key = home.key(row.record);
    transaction.check_unchanged(Space::Records, &key)?;
    match transaction.get(Space::Records, &key)? {
        Some(stored) => home.row(row, stored, &Newest { transaction, in_snapshot: true }),
        None => Ok(None),
    }
}

/// The bytes that a record has as it is stored. `in_snapshot`: as a transaction sees it; otherwise as of the newest commit.
pub(crate) fn stored_bytes(
    transaction: &Transaction,
    home: &Home,
    row: RowId,
    in_snapshot: bool,
) -> Result<usize> {
    let key = home.key(row.record);
    let stored = match in_snapshot {
        true => transaction.get(Space::Records, &key)?,
        false => transaction.latest(Space::Records, &key)?,
    };
    Ok(stored.map_or(0, |stored| stored.len().saturating_sub(STAMP_BYTES)))
}

/// Stores a change of a row by the shape of its collection, and counts it. `before`: the bytes that the record has as it is
/// stored; none where it is new.
pub(crate) fn store(
    transaction: &mut Transaction,
    home: &Home,
    row: RowId,
    before: Option<usize>,
    after: Option<RawDocument<'_>>,
) {
    match after {
        Some(document) => put(transaction, home, row, document),
        None => remove(transaction, home, row),
    }
    let count = i64::from(after.is_some()) - i64::from(before.is_some());
    let size = |document: RawDocument<'_>| document.as_bytes().len() as i64;
    let grown = after.map_or(0, size) - before.map_or(0, |bytes| bytes as i64);
    if count != 0 || grown != 0 {
        transaction.add(&layout::counter_key(home.collection), count, grown);
    }
}

fn put(transaction: &mut Transaction, home: &Home, row: RowId, document: RawDocument<'_>) {
    let stored = home.shape.to_stored(document);
    let value = Bytes::fused(&[0; STAMP_BYTES], &stored);
    transaction.put(Space::Records, home.key(row.record), value);
}

/// Writes a record as it is given; it is not counted.
pub(super) fn put_document(
    transaction: &mut Transaction,
    home: &Home,
    record: RecordId,
    document: RawDocument<'_>,
) {
    let value = Bytes::fused(&[0; STAMP_BYTES], document.as_bytes());
    transaction.put(Space::Records, home.key(record), value);
}

/// Takes a row away; it is not counted.
pub(crate) fn remove(transaction: &mut Transaction, home: &Home, row: RowId) {
    transaction.delete(Space::Records, &home.key(row.record));
}

/// Writes a record again as its shape stores it now; the row stays as it is. False if it is stored so already. The caller
/// holds the record.
pub(crate) fn restate(transaction: &mut Transaction, home: &Home, row: RowId) -> Result<bool> {
    let key = home.key(row.record);
    let Some(stored) = transaction.latest(Space::Records, &key)? else { return Ok(false) };
    let bytes = stored.len();
    let Some(image) = home.row(row, stored.clone(), &Newest { transaction, in_snapshot: false })? else {
        return Ok(false);
    };
    let document = image.document();
    if document.as_bytes() == &stored[STAMP_BYTES..] {
        return Ok(false);
    }
    store(transaction, home, row, Some(bytes - STAMP_BYTES), Some(document));
    Ok(true)
}
