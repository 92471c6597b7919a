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
    /// The last place that was looked at.
    place: Option<Place>,
}

enum Way {
    Index(Arc<Index>, Scan),
    All(RecordScan),
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
        let indexed = |id| collection.indexes.iter().find(|index| index.id == id).cloned();
        // A place in an index that is gone is of no use: everything is looked at again.
        let behind = behind.filter(|place| match place {
            Place::Entry(id, _) => indexed(*id).is_some(),
            Place::Record(_) => true,
        });
        let index = match &behind {
            Some(Place::Entry(id, _)) => indexed(*id),
            Some(Place::Record(_)) => None,
            None => index_for(collection, kind, key, snapshot),
        };
        let way = match index {
            Some(index) => {
                let mut first = layout::index_prefix(index.id).to_vec();
                encode_value(&mut first, key, index.spec.key[0].descending);
                let mut upper = first.clone();
                upper.push(BEHIND);
                let lower = match &behind {
                    Some(Place::Entry(_, bytes)) => Bound::Excluded(&bytes[..]),
                    _ => Bound::Included(&first[..]),
                };
                let upper = Bound::Excluded(&upper[..]);
                let scan = snapshot.scan(Space::Index, lower, upper, Direction::Forward);
                Way::Index(index, scan)
            }
            None => {
                let lower = match &behind {
                    Some(Place::Record(record)) => Bound::Excluded(*record),
                    _ => Bound::Unbounded,
                };
                let records = Records::new(collection.home(), snapshot);
                Way::All(records.scan((lower, Bound::Unbounded), Direction::Forward))
            }
        };
        HolderWalk { kind, key: key.to_value(), way, place: behind }
    }

    /// The next record that may refer to the key.
    pub fn next(&mut self) -> Result<Option<RecordId>> {
        match &mut self.way {
            Way::Index(index, entries) => {
                let Some((key, value)) = entries.next().transpose()? else { return Ok(None) };
                self.place = Some(Place::Entry(index.id, key.to_vec()));
                let holds_record = if index.spec.unique { &value[..8] } else { &key[..] };
                Ok(Some(layout::record_id_of(holds_record)))
            }
            Way::All(rows) => {
                for row in rows.by_ref() {
                    let (id, image) = row?;
                    self.place = Some(Place::Record(id.record));
                    if self.kind.refers(image.document(), self.key.as_raw()) {
                        return Ok(Some(id.record));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Where it stands, to be taken up from there.
    pub fn place(&self) -> Option<Place> {
        self.place.clone()
    }
}

/// Where a walk was left.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Behind this entry of an index.
    Entry(IndexId, Vec<u8>),
    /// Behind this record, where all are looked at.
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
    // A key as long as that is not stored whole.
    let mut bytes = Vec::new();
    encode_value(&mut bytes, key, false);
    if bytes.len() > layout::KEY_BYTES_MAX {
        return None;
    }
    collection.indexes.iter().filter(serves).min_by_key(|index| index.spec.key.len()).cloned()
}
