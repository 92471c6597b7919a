//! Records whose bytes are not trusted: for `validate` and for a salvage.

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_storage::{Bytes, Direction, Snapshot};

use super::buckets::Slip;
use super::scan::open;
use super::shape::Rows;
use super::{Home, Shape};
use crate::ids::RecordId;
use crate::layout::{self, STAMP_BYTES};

/// A record as the store has it.
pub(crate) struct Inspected {
    pub record: RecordId,
    home: Home,
    snapshot: Snapshot,
    stored: Bytes,
}

/// All records of a collection, as they are stored.
pub(crate) fn inspect(home: Home, snapshot: &Snapshot) -> impl Iterator<Item = Result<Inspected>> + use<> {
    let of = snapshot.clone();
    open(snapshot, home.collection, .., Direction::Forward).map(move |entry| {
        let (key, stored) = entry?;
        let (home, snapshot) = (home.clone(), of.clone());
        Ok(Inspected { record: layout::record_id_of(&key), home, snapshot, stored })
    })
}

impl Inspected {
    /// What the record counts for in the collection's size.
    pub fn bytes(&self) -> u64 {
        if self.is_sealed() {
            let rows = self.rows().ok().flatten().into_iter().flatten();
            return rows.map(|(_, row)| row.document().as_bytes().len() as u64).sum();
        }
        (self.stored.len() - STAMP_BYTES.min(self.stored.len())) as u64
    }

    /// Whether it says in which bucket its row lies.
    pub fn is_sealed(&self) -> bool {
        matches!(self.home.shape, Shape::Bucketed(_)) && Slip::of(&self.stored).is_some()
    }

    /// The rows; none where the record is not valid. An error where the shape cannot make rows of it.
    pub fn rows(&self) -> Result<Option<Rows>> {
        // SAFETY: `is_valid` has looked at every byte.
        let rows = is_valid(&self.stored)
            .then(|| unsafe { self.home.rows(self.record, self.stored.clone(), &self.snapshot) })
            .transpose()?;
        // What came out of a bucket has not been looked at yet.
        Ok(rows.filter(|rows| rows.first().is_none_or(|row| is_valid(row.as_bytes()))))
    }
}

/// Whether bytes can be a record: a commit time and a document.
pub(super) fn is_valid(stored: &[u8]) -> bool {
    stored.get(STAMP_BYTES..).is_some_and(|document| RawDocument::parse(document).is_ok())
}
