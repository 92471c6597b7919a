//! A walk over the holders of a key, the documents that refer to it: by the index over the reference, or over all records
//! if there is no such index.
//!
//! A walk can stop at any position and go on from there in a later snapshot. So a fan-out to a million holders needs no
//! list of them, and no snapshot is kept for as long as it takes to write them.

use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Path, RawValue, Value, encode_value};
use kilim_error::Result;
use kilim_patterns::Kind;
use kilim_storage::{Direction, Scan, Snapshot, Space};

use crate::catalog::{Collection, RecordId};
use crate::index::{Index, IndexId};
use crate::layout;
use crate::records::{RecordScan, Records};

/// Behind every key that begins with what stands before it.
const BEHIND: u8 = 0xFF;

pub(crate) struct HolderWalk<'r> {
    kind: &'r dyn Kind,
    key: Value,
    way: Way,
    /// The last entry or record that was read.
    position: Option<WalkPosition>,
}

enum Way {
    Index(Arc<Index>, Scan),
    All(RecordScan),
}

impl<'r> HolderWalk<'r> {
    /// Begins a walk, or goes on after a position of an earlier walk for the same key.
    pub fn open(
        collection: &Arc<Collection>,
        kind: &'r dyn Kind,
        key: RawValue<'_>,
        snapshot: &Snapshot,
        behind: Option<WalkPosition>,
    ) -> HolderWalk<'r> {
        let indexed = |id| collection.indexes.iter().find(|index| index.id == id).cloned();
        // If the index of the position was dropped, the walk begins anew.
        let behind = behind.filter(|position| match position {
            WalkPosition::Entry(id, _) => indexed(*id).is_some(),
            WalkPosition::Record(_) => true,
        });
        let index = match &behind {
            Some(WalkPosition::Entry(id, _)) => indexed(*id),
            Some(WalkPosition::Record(_)) => None,
            None => index_for(collection, kind, key, snapshot),
        };
        let way = match index {
            Some(index) => {
                let mut first = layout::index_prefix(index.id).to_vec();
                encode_value(&mut first, key, index.spec.key[0].descending);
                let mut upper = first.clone();
                upper.push(BEHIND);
                let lower = match &behind {
                    Some(WalkPosition::Entry(_, bytes)) => Bound::Excluded(&bytes[..]),
                    _ => Bound::Included(&first[..]),
                };
                let upper = Bound::Excluded(&upper[..]);
                let scan = snapshot.scan(Space::Index, lower, upper, Direction::Forward);
                Way::Index(index, scan)
            }
            None => {
                let lower = match &behind {
                    Some(WalkPosition::Record(record)) => Bound::Excluded(*record),
                    _ => Bound::Unbounded,
                };
                let records = Records::new(collection.home(), snapshot);
                Way::All(records.scan((lower, Bound::Unbounded), Direction::Forward))
            }
        };
        HolderWalk { kind, key: key.to_value(), way, position: behind }
    }

    /// The next record that may refer to the key.
    pub fn next(&mut self) -> Result<Option<RecordId>> {
        match &mut self.way {
            Way::Index(index, entries) => {
                let Some((key, value)) = entries.next().transpose()? else { return Ok(None) };
                self.position = Some(WalkPosition::Entry(index.id, key.to_vec()));
                let holds_record = if index.spec.unique { &value[..8] } else { &key[..] };
                Ok(Some(layout::record_id_of(holds_record)))
            }
            Way::All(rows) => {
                for row in rows.by_ref() {
                    let (id, image) = row?;
                    self.position = Some(WalkPosition::Record(id.record));
                    if self.kind.refers(image.document(), self.key.as_raw()) {
                        return Ok(Some(id.record));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The position from which a later walk can go on.
    pub fn position(&self) -> Option<WalkPosition> {
        self.position.clone()
    }
}

/// Where a walk stopped.
#[derive(Debug, Clone)]
pub(crate) enum WalkPosition {
    /// Behind this entry of an index.
    Entry(IndexId, Vec<u8>),
    /// Behind this record, in a walk over all records.
    Record(RecordId),
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
    // An index stores longer keys shortened, so it cannot tell them apart.
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, false);
    if bytes.len() > layout::KEY_BYTES_MAX {
        return None;
    }
    collection.indexes.iter().filter(serves).min_by_key(|index| index.spec.key.len()).cloned()
}
