//! Records whose bytes are not trusted: for `validate` and for a salvage.

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_storage::{Bytes, Direction, Snapshot};

use super::scan::open;
use super::shape::Rows;
use super::{Home, Shape};
use crate::ids::RecordId;
use crate::layout::{self, STAMP_BYTES};

/// A record as the store has it.
pub(crate) struct Inspected {
    pub record: RecordId,
    shape: Shape,
    stored: Bytes,
}

/// All records of a collection, as they are stored.
pub(crate) fn inspect(home: Home, snapshot: &Snapshot) -> impl Iterator<Item = Result<Inspected>> + use<> {
    open(snapshot, home.collection, .., Direction::Forward).map(move |entry| {
        let (key, stored) = entry?;
        Ok(Inspected { record: layout::record_id_of(&key), shape: home.shape.clone(), stored })
    })
}

impl Inspected {
    /// What the record counts for in the collection's size.
    pub fn bytes(&self) -> u64 {
        (self.stored.len() - STAMP_BYTES.min(self.stored.len())) as u64
    }

    /// The rows; none where the record is not valid. An error where the shape cannot make rows of it.
    pub fn rows(&self) -> Result<Option<Rows>> {
        // SAFETY: `is_valid` has looked at every byte.
        is_valid(&self.stored)
            .then(|| unsafe { self.shape.rows(self.record, self.stored.clone()) })
            .transpose()
    }
}

/// Whether bytes can be a record: a commit time and a document.
pub(super) fn is_valid(stored: &[u8]) -> bool {
    stored.get(STAMP_BYTES..).is_some_and(|document| RawDocument::parse(document).is_ok())
}
