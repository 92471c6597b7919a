//! The catalog on disk: one document a collection, and the ids that are free.

use kilim_error::{Result, StorageError};
use kilim_storage::{Snapshot, Space, Transaction};

use super::Collection;
use crate::ids::{CollectionId, IndexId};
use crate::layout;

/// The next free ids. They are never given out twice, so what a dropped collection left behind can
/// never be taken for another's.
#[derive(Debug)]
pub struct Ids {
    collection: u32,
    index: u32,
}

impl Ids {
    pub(crate) fn load(snapshot: &Snapshot) -> Result<Ids> {
        match snapshot.get(Space::Meta, layout::NEXT_IDS_KEY)? {
            None => Ok(Ids { collection: 1, index: 1 }),
            Some(bytes) if bytes.len() == 8 => Ok(Ids {
                collection: u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")),
                index: u32::from_be_bytes(bytes[4..].try_into().expect("four bytes")),
            }),
            Some(_) => Err(StorageError::Corrupt("the next ids are unreadable".to_owned()).into()),
        }
    }

    pub(crate) fn save(&self, transaction: &mut Transaction) {
        let mut bytes = self.collection.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.index.to_be_bytes());
        transaction.put(Space::Meta, layout::NEXT_IDS_KEY.to_vec(), bytes);
    }

    /// Ids up to these are taken, whatever was read.
    pub(crate) fn give_out_after(&mut self, collection: u32, index: u32) {
        self.collection = self.collection.max(collection + 1);
        self.index = self.index.max(index + 1);
    }

    pub(crate) fn next_collection(&mut self) -> CollectionId {
        self.collection += 1;
        CollectionId(self.collection - 1)
    }

    pub(crate) fn next_index(&mut self) -> IndexId {
        self.index += 1;
        IndexId(self.index - 1)
    }
}

pub(crate) fn save(transaction: &mut Transaction, collection: &Collection) {
    let key = layout::collection_meta_key(collection.id);
    transaction.put(Space::Meta, key.to_vec(), collection.encode().into_bytes());
}

/// Removes a collection from `meta`, and gives back its space once nobody reads it any more.
pub(crate) fn forget(transaction: &mut Transaction, collection: &Collection) {
    transaction.delete(Space::Meta, &layout::collection_meta_key(collection.id));
    collection.home().reclaim(transaction);
    for index in collection.indexes.iter() {
        transaction.reclaim(Space::Index, &layout::index_prefix(index.id));
    }
}
