//! Records as writers see and leave them.

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_storage::{Bytes, Space, Transaction};

use super::{Home, Image, RowId};
use crate::layout::STAMP_BYTES;

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

/// Stores a row's document.
pub(crate) fn put(transaction: &mut Transaction, home: Home, row: RowId, document: RawDocument<'_>) {
    let stored = home.shape.to_stored(document);
    let value = Bytes::fused(&[0; STAMP_BYTES], &stored);
    transaction.put(Space::Records, home.key(row.record), value);
}

/// Takes a row away.
pub(crate) fn remove(transaction: &mut Transaction, home: Home, row: RowId) {
    transaction.delete(Space::Records, &home.key(row.record));
}
