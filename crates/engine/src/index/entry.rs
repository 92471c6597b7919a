//! An index entry as it is stored.

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
    if index.spec.unique {
        let mut value = Vec::with_capacity(8 + type_bits.len());
        value.extend_from_slice(&record.0.to_be_bytes());
        value.extend_from_slice(type_bits);
        (layout::unique_entry(index.id, key), value)
    } else {
        (layout::plain_entry(index.id, key, record), type_bits.to_vec())
    }
}
