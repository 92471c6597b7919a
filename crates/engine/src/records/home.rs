//! Where a collection's records lie.

use kilim_error::Result;
use kilim_storage::{Counter, Snapshot, Space, Transaction};

use super::Shape;
use crate::ids::{CollectionId, RecordId};
use crate::layout;

/// Where the records of a collection lie in the store, and in which shape.
#[derive(Debug, Clone)]
pub struct Home {
    pub collection: CollectionId,
    pub shape: Shape,
}

impl Home {
    /// The key of a record in the store.
    pub(super) fn key(&self, record: RecordId) -> [u8; 12] {
        record_key(self.collection, record)
    }

    /// How many documents there are, and their bytes.
    pub fn counts(&self, snapshot: &Snapshot) -> Result<Counter> {
        snapshot.counter(&layout::counter_key(self.collection))
    }

    /// The tree that the records are in, as the store names it.
    pub(crate) fn tree(&self) -> (Space, [u8; 4]) {
        (Space::Records, self.collection.0.to_be_bytes())
    }

    /// Whether a tree of the store is the one of these records.
    pub(crate) fn is_tree(&self, space: Space, prefix: u32) -> bool {
        space == Space::Records && prefix == self.collection.0
    }

    /// Gives the records back to the store, with their counts.
    pub(crate) fn reclaim(&self, transaction: &mut Transaction) {
        transaction.reset_counter(&layout::counter_key(self.collection));
        transaction.reclaim(Space::Records, &self.collection.0.to_be_bytes());
    }
}

/// On disk: the collection's id, then the record's, so that a collection's records lie side by side in their order.
pub(super) fn record_key(collection: CollectionId, record: RecordId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&collection.0.to_be_bytes());
    key[4..].copy_from_slice(&record.0.to_be_bytes());
    key
}
