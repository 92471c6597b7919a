//! What flows between operators.

use kilim_bson::{Document, RawDocument};
use kilim_storage::Bytes;

use crate::catalog::RecordId;
use crate::layout::STAMP_BYTES;

/// One row: a record's id and as much of it as was needed so far.
#[derive(Debug, Clone)]
pub struct Row {
    pub record: RecordId,
    pub data: RowData,
}

#[derive(Debug, Clone)]
pub enum RowData {
    /// An index entry as stored.
    Key { entry: Bytes, value: Bytes },
    /// A record as stored, with its commit time.
    Record(Bytes),
    /// A document made by a projection or a pipeline.
    Document(Document),
    /// The same, in several hands.
    Shared(Bytes),
}

impl Row {
    /// A document that is no record, or no longer one.
    pub fn of(document: Document) -> Row {
        Row { record: RecordId(0), data: RowData::Document(document) }
    }

    /// The document; empty where only a key was asked for.
    pub fn document(&self) -> RawDocument<'_> {
        match &self.data {
            RowData::Key { .. } => RawDocument::empty(),
            RowData::Record(stored) => document_of(stored),
            RowData::Document(document) => document.as_raw(),
            // SAFETY: only `Row::shared` makes these, of a document's own bytes.
            RowData::Shared(bytes) => unsafe { RawDocument::from_validated(bytes) },
        }
    }

    /// The same row, cheap to clone.
    pub fn shared(self) -> Row {
        match self.data {
            RowData::Document(document) => {
                Row { record: self.record, data: RowData::Shared(Bytes::from(document.into_bytes())) }
            }
            _ => self,
        }
    }

    /// The number of the record that the document was read from, if it was.
    pub fn record_number(&self) -> Option<i64> {
        (self.record.0 != 0).then_some(self.record.0 as i64)
    }

    /// When the record was last written; zero for a projected document.
    pub fn commit_time(&self) -> u64 {
        match &self.data {
            RowData::Record(stored) => u64::from_le_bytes(
                stored[..STAMP_BYTES].try_into().expect("a record begins with eight bytes"),
            ),
            _ => 0,
        }
    }
}

/// The document of a stored record.
pub(crate) fn document_of(stored: &[u8]) -> RawDocument<'_> {
    // SAFETY: what the write door stores has passed validation, and the store returns it unchanged.
    unsafe { RawDocument::from_validated(&stored[STAMP_BYTES..]) }
}
