//! Rows: which document of which record, and its bytes.

use kilim_bson::{Document, RawDocument};
use kilim_storage::Bytes;

use crate::ids::RecordId;
use crate::layout::STAMP_BYTES;

/// Which row of a collection: its record, and its position within it. A plain record has one row, at position 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId {
    pub record: RecordId,
    pub position: u32,
}

impl From<RecordId> for RowId {
    /// The first row of a record.
    fn from(record: RecordId) -> RowId {
        RowId { record, position: 0 }
    }
}

/// A row's document, behind the commit time of its record.
#[derive(Debug, Clone)]
pub struct Image(Bytes);

impl Image {
    /// # Safety
    ///
    /// The bytes are a commit time and a document that passed validation.
    pub(crate) unsafe fn from_bytes(bytes: Bytes) -> Image {
        Image(bytes)
    }

    /// The same row with another document.
    pub(super) fn with(&self, document: &Document) -> Image {
        let mut bytes = Vec::with_capacity(STAMP_BYTES + document.as_bytes().len());
        bytes.extend_from_slice(&self.0[..STAMP_BYTES]);
        bytes.extend_from_slice(document.as_bytes());
        Image(Bytes::from(bytes))
    }

    pub fn document(&self) -> RawDocument<'_> {
        // SAFETY: an image is made of what the write door stored, which has passed validation, of a document that took
        // its place, or by `from_bytes`.
        unsafe { RawDocument::from_validated(&self.0[STAMP_BYTES..]) }
    }

    /// When the record was last written.
    pub fn commit_time(&self) -> u64 {
        u64::from_le_bytes(self.0[..STAMP_BYTES].try_into().expect("a record begins with eight bytes"))
    }

    /// The commit time and the document.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
