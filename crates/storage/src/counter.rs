//! Exact counters: how many, and how many bytes.
//!
//! Transactions add deltas, which never conflict; the commit queue turns them into absolute values in commit
//! order, so a snapshot's counter is exact for that snapshot without a scan.

use crate::space::Bytes;
use kilim_error::{Result, StorageError};

/// A count and a sum of sizes, for instance of one collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    pub count: i64,
    pub bytes: i64,
}

impl Counter {
    pub(crate) fn plus(self, other: Counter) -> Counter {
        Counter {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// On disk: count, then bytes, both little-endian.
    pub(crate) fn encode(self) -> Bytes {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.count.to_le_bytes());
        out[8..].copy_from_slice(&self.bytes.to_le_bytes());
        Bytes::from(out)
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Counter> {
        let [count, bytes] = stored.as_chunks::<8>().0 else {
            return Err(StorageError::Corrupt(format!(
                "a counter of {} bytes where 16 belong",
                stored.len()
            ))
            .into());
        };
        Ok(Counter { count: i64::from_le_bytes(*count), bytes: i64::from_le_bytes(*bytes) })
    }
}

/// What a transaction does to one counter.
#[derive(Debug, Clone)]
pub(crate) struct CounterChange {
    /// The counter's key in `Meta`, with the storage prefix.
    pub(crate) key: Bytes,
    /// Whether the counter is removed before the delta is added.
    pub(crate) removed: bool,
    pub(crate) delta: Counter,
}

impl CounterChange {
    pub(crate) fn apply(&self, before: Counter) -> Counter {
        if self.removed { self.delta } else { before.plus(self.delta) }
    }
}
