//! Records of a damaged store.

use std::collections::BTreeSet;

use kilim_error::Result;
use kilim_storage::Space;
use kilim_storage::rebuild::Filling;
use kilim_storage::salvage::{Loss, Remains};

use super::inspect::is_valid;

/// The records that are left of a store.
pub(crate) struct RecordRemains<'r>(pub &'r Remains);

impl RecordRemains<'_> {
    /// The ids of the collections that have records and were not dropped.
    pub fn collections(&self) -> Vec<u32> {
        let dropped: BTreeSet<(Space, u32)> = self.0.dropped();
        let mut collections = self.trees();
        collections.retain(|id| !dropped.contains(&(Space::Records, *id)));
        collections
    }

    /// The ids of all collections that have or had records.
    pub fn trees(&self) -> Vec<u32> {
        self.0.trees(Space::Records)
    }

    /// Takes the valid records of a collection over; how many these are, and how many are not valid.
    pub fn take_over(&self, collection: u32, filling: &Filling) -> Result<(u64, u64)> {
        let mut senseless = 0;
        let rows = self.0.rows(Space::Records, collection).filter(|(key, stored)| {
            let is_record = key.len() == 12 && is_valid(stored);
            senseless += u64::from(!is_record);
            is_record
        });
        let taken = filling.load(Space::Records, rows.map(Ok))?;
        Ok((taken, senseless))
    }
}

/// Where a loss is one of records: their collection, and which they are.
pub(crate) fn lost_records(loss: &Loss) -> Option<(u32, String)> {
    let Some((Space::Records, collection)) = loss.tree else { return None };
    let id = |key: &[u8]| key.get(4..12).map(|id| u64::from_be_bytes(id.try_into().unwrap_or_default()));
    let from = id(&loss.from).map_or("the first".to_owned(), |id| id.to_string());
    let range = match loss.to.as_deref().map(id) {
        Some(Some(to)) => format!("records {from} to {to}"),
        _ => format!("records {from} to the last"),
    };
    Some((collection, range))
}
