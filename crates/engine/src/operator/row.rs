//! What flows between operators.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_query::expression::Env;
use kilim_storage::Bytes;

use crate::ids::RecordId;
use crate::layout::STAMP_BYTES;

/// One row: a record's id and as much of it as was needed so far.
#[derive(Debug, Clone)]
pub struct Row {
    pub record: RecordId,
    pub data: RowData,
    /// The key of the index by which it was found, where that is asked for.
    pub key: Option<Arc<Document>>,
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
    pub fn new(record: RecordId, data: RowData) -> Row {
        Row { record, data, key: None }
    }

    /// The same row with more or less of its record.
    pub fn with(&self, data: RowData) -> Row {
        Row { record: self.record, data, key: self.key.clone() }
    }

    /// A document that is no record, or no longer one.
    pub fn of(document: Document) -> Row {
        Row::new(RecordId(0), RowData::Document(document))
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
                Row { data: RowData::Shared(Bytes::from(document.into_bytes())), ..self }
            }
            _ => self,
        }
    }

    /// Tells expressions what is known of the row beside its document.
    pub fn describe<'a>(&'a self, env: &mut Env<'a>) {
        env.record = (self.record.0 != 0).then_some(self.record.0 as i64);
        self.describe_key(env);
    }

    /// The same, for stages to whose expressions MongoDB tells the key alone.
    pub fn describe_key<'a>(&'a self, env: &mut Env<'a>) {
        env.key = self.key.as_deref().map(Document::as_raw);
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
