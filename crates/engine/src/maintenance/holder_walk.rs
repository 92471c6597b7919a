//! A walk over those who refer to a key: by the index over the reference, or over all records where there is none.
//!
//! It can be left at any place and taken up again there in a later snapshot, so nobody keeps a list of a million
//! records, nor a snapshot for as long as it takes to write them.

use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Path, RawValue, Value, encode_value};
use kilim_error::Result;
use kilim_patterns::Kind;
use kilim_storage::{Direction, Scan, Snapshot, Space};

use super::sources::document_of;
use crate::catalog::{Collection, RecordId};
use crate::index::Index;
use crate::layout;

/// Behind every key that begins with what stands before it.
const BEHIND: u8 = 0xFF;

pub(super) struct HolderWalk<'r> {
    kind: &'r dyn Kind,
    collection: Arc<Collection>,
    key: Value,
    /// None where all records are looked at.
    index: Option<Arc<Index>>,
    scan: Scan,
    /// The last place that was looked at.
    place: Option<Vec<u8>>,
}

impl<'r> HolderWalk<'r> {
    /// From the beginning, or from behind a place of an earlier walk for the same key.
    pub fn open(
        collection: &Arc<Collection>,
        kind: &'r dyn Kind,
        key: RawValue<'_>,
        snapshot: &Snapshot,
        behind: Option<Place>,
    ) -> HolderWalk<'r> {
        let chosen = match &behind {
            Some(place) => collection.indexes.iter().find(|index| Some(index.id) == place.index).cloned(),
            None => None,
        };
        // A place in an index that is gone is of no use: everything is looked at again.
        let behind = behind.filter(|place| place.index == chosen.as_ref().map(|index| index.id));
        let index = match &behind {
            Some(_) => chosen,
            None => index_for(collection, kind, key, snapshot),
        };
        let (space, lower, upper) = match &index {
            Some(index) => {
                let mut lower = layout::index_prefix(index.id).to_vec();
                encode_value(&mut lower, key, index.spec.key[0].descending);
                let mut upper = lower.clone();
                upper.push(BEHIND);
                (Space::Index, lower, upper)
            }
            None => {
                let all = |record| layout::record_key(collection.id, RecordId(record)).to_vec();
                (Space::Records, all(0), all(u64::MAX))
            }
        };
        let lower = match &behind {
            Some(place) => Bound::Excluded(&place.bytes[..]),
            None => Bound::Included(&lower[..]),
        };
        let scan = snapshot.scan(space, lower, Bound::Excluded(&upper[..]), Direction::Forward);
        HolderWalk {
            kind,
            collection: collection.clone(),
            key: key.to_value(),
            index,
            scan,
            place: behind.map(|place| place.bytes),
        }
    }

    /// The next record that may refer to the key.
    pub fn next(&mut self) -> Result<Option<RecordId>> {
        for entry in self.scan.by_ref() {
            let (key, value) = entry?;
            let record = match &self.index {
                Some(index) if index.spec.unique => Some(layout::record_id_of(&value[..8])),
                Some(_) => Some(layout::record_id_of(&key)),
                None => {
                    let document = document_of(&self.collection, &value);
                    let refers = self.kind.refers(document.as_raw(), self.key.as_raw());
                    refers.then(|| layout::record_id_of(&key))
                }
            };
            self.place = Some(key.to_vec());
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// Where it stands, to be taken up from there.
    pub fn place(&self) -> Option<Place> {
        let index = self.index.as_ref().map(|index| index.id);
        self.place.clone().map(|bytes| Place { index, bytes })
    }
}

/// Where a walk was left.
#[derive(Debug, Clone)]
pub(super) struct Place {
    index: Option<crate::index::IndexId>,
    bytes: Vec<u8>,
}

/// An index that has a key for every reference.
fn index_for(
    collection: &Collection,
    kind: &dyn Kind,
    key: RawValue<'_>,
    snapshot: &Snapshot,
) -> Option<Arc<Index>> {
    let path = Path::parse(kind.key_path()?);
    let serves = |index: &&Arc<Index>| {
        index.spec.key[0].path == path
            && index.spec.partial.is_none()
            && index.spec.has_plain_keys()
            && index.ready_since <= snapshot.commit_time()
    };
    // A key as long as that is not stored whole.
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, false);
    if bytes.len() > layout::KEY_BYTES_MAX {
        return None;
    }
    collection.indexes.iter().filter(serves).min_by_key(|index| index.spec.key.len()).cloned()
}
