//! Records as writers see and leave them.

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_storage::{Bytes, Space, Transaction};

use super::{Home, Image, RowId};
use crate::layout::{self, STAMP_BYTES};

/// What a writer of a row holds: a key of the store.
pub(crate) fn lock_key(home: Home, row: RowId) -> (Space, [u8; 12]) {
    (Space::Records, home.key(row.record))
}

/// A row as of the newest commit; none where it is gone. The caller holds it.
pub(crate) fn newest(transaction: &Transaction, home: Home, row: RowId) -> Result<Option<Image>> {
    let stored = transaction.latest(Space::Records, &home.key(row.record))?;
    Ok(stored.and_then(|stored| home.row(row, stored)))
}

/// A row as a transaction sees it; a conflict where it was changed since the transaction began. The caller holds it.
pub(crate) fn unchanged_in(transaction: &Transaction, home: Home, row: RowId) -> Result<Option<Image>> {
    let key = home.key(row.record);
    transaction.check_unchanged(Space::Records, &key)?;
    let stored = transaction.get(Space::Records, &key)?;
    Ok(stored.and_then(|stored| home.row(row, stored)))
}

/// Stores a change of a row by the shape of its collection, and counts it.
pub(crate) fn store(
    transaction: &mut Transaction,
    home: Home,
    row: RowId,
    before: Option<RawDocument<'_>>,
    after: Option<RawDocument<'_>>,
) {
    let size =
        |document: Option<RawDocument<'_>>| document.map_or(0, |document| document.as_bytes().len() as i64);
    match after {
        Some(document) => put(transaction, home, row, document),
        None => remove(transaction, home, row),
    }
    let count = i64::from(after.is_some()) - i64::from(before.is_some());
    let grown = size(after) - size(before);
    if count != 0 || grown != 0 {
        transaction.add(&layout::counter_key(home.collection), count, grown);
    }
}

fn put(transaction: &mut Transaction, home: Home, row: RowId, document: RawDocument<'_>) {
    let stored = home.shape.to_stored(document);
    let value = Bytes::fused(&[0; STAMP_BYTES], &stored);
    transaction.put(Space::Records, home.key(row.record), value);
}

/// Takes a row away; it is not counted.
pub(crate) fn remove(transaction: &mut Transaction, home: Home, row: RowId) {
    transaction.delete(Space::Records, &home.key(row.record));
}
