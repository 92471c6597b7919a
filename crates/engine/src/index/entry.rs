//! Index entries as they are stored.

use kilim_storage::{Bytes, Space, Transaction};

use super::Index;
use crate::ids::RecordId;
use crate::layout;

/// An index entry as stored: unique indexes keep the record id in the value, others in the key.
pub(crate) fn index_entry(
    index: &Index,
    key: &[u8],
    type_bits: &[u8],
    record: RecordId,
) -> (Vec<u8>, Vec<u8>) {
    let mut entry = OneEntry::default();
    entry.set(index, key, type_bits, record);
    (entry.key, entry.value)
}

/// An index entry as stored, in buffers that are used again.
#[derive(Default)]
pub(crate) struct OneEntry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl OneEntry {
    pub(crate) fn set(&mut self, index: &Index, key: &[u8], type_bits: &[u8], record: RecordId) {
        self.key.clear();
        self.value.clear();
        layout::push_entry(&mut self.key, index.id, key, (!index.spec.unique).then_some(record));
        if index.spec.unique {
            self.value.extend_from_slice(&record.0.to_be_bytes());
        }
        self.value.extend_from_slice(type_bits);
    }
}

/// Bytes of entries that share an allocation: it stays while one of them does.
const TOGETHER_BYTES: usize = 64 * 1024;

/// Room at first: the entries of a document with a few indexes.
const FIRST_BYTES: usize = 256;

/// Entries of one record on their way into a transaction. A document may have hundreds of keys, which come and go together:
/// they share an allocation.
#[derive(Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    /// Where each entry but the last ends, and what it becomes: a value, or nothing where it is deleted.
    ends: Vec<(usize, Option<Bytes>)>,
    /// What the last one becomes; kept apart, because many documents have one entry, which then needs no list.
    last: Option<Option<Bytes>>,
}

impl Entries {
    pub(crate) fn put(
        &mut self,
        transaction: &mut Transaction,
        index: &Index,
        key: &[u8],
        type_bits: &[u8],
        record: RecordId,
    ) {
        let value = match index.spec.unique {
            true => Bytes::fused(&record.0.to_be_bytes(), type_bits),
            false => Bytes::from(type_bits),
        };
        self.push(transaction, index, key, Some(value), record);
    }

    pub(crate) fn delete(
        &mut self,
        transaction: &mut Transaction,
        index: &Index,
        key: &[u8],
        record: RecordId,
    ) {
        self.push(transaction, index, key, None, record);
    }

    fn push(
        &mut self,
        transaction: &mut Transaction,
        index: &Index,
        key: &[u8],
        value: Option<Bytes>,
        record: RecordId,
    ) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(FIRST_BYTES);
        }
        if let Some(before) = self.last.take() {
            self.ends.push((self.bytes.len(), before));
        }
        layout::push_entry(&mut self.bytes, index.id, key, (!index.spec.unique).then_some(record));
        self.last = Some(value);
        if self.bytes.len() >= TOGETHER_BYTES {
            self.write(transaction);
        }
    }

    /// The memory that it takes, about.
    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<(usize, Option<Bytes>)>()
    }

    /// Hands what was gathered to the transaction.
    pub(crate) fn write(&mut self, transaction: &mut Transaction) {
        let bytes = Bytes::from(&self.bytes[..]);
        let mut start = 0;
        let last = self.last.take().map(|value| (bytes.len(), value));
        for (end, value) in self.ends.drain(..).chain(last) {
            transaction.set(Space::Index, bytes.slice(start..end), value);
            start = end;
        }
        self.bytes.clear();
    }
}
