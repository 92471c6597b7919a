//! What flows between operators.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;
use kilim_query::expression::Env;
use kilim_storage::Bytes;

use super::Measured;
use crate::ids::RecordId;
use crate::records::{Image, Records, RowId};

/// One row: its id and as much of its record as was needed so far.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: RowId,
    pub data: RowData,
    /// The key of the index by which it was found, where that is asked for.
    pub key: Option<Arc<Document>>,
    /// How well it matches a `$text`, or how far it is.
    pub score: Option<f64>,
    /// Its distance, where it was found by that.
    pub near: Option<Arc<Measured>>,
}

#[derive(Debug, Clone)]
pub enum RowData {
    /// An index entry as stored.
    Key { entry: Bytes, value: Bytes },
    /// A record's document, with its commit time.
    Record(Image),
    /// A document made by a projection or a pipeline.
    Document(Document),
    /// The same, in several hands.
    Shared(Bytes),
}

impl Row {
    pub fn new(id: RowId, data: RowData) -> Row {
        Row { id, data, key: None, score: None, near: None }
    }

    /// The same row with more or less of its record.
    pub fn with(&self, data: RowData) -> Row {
        Row { id: self.id, data, key: self.key.clone(), score: self.score, near: self.near.clone() }
    }

    /// The same row, where it has its record as that is stored, with as much of its array as is asked for.
    pub(super) fn unfolded(self, records: &Records) -> Result<Row> {
        Ok(match self.data {
            RowData::Record(image) => Row { data: RowData::Record(records.shown(self.id, image)?), ..self },
            _ => self,
        })
    }

    /// A document that is no record, or no longer one.
    pub fn of(document: Document) -> Row {
        Row::new(RecordId(0).into(), RowData::Document(document))
    }

    /// The document; empty where only a key was asked for.
    pub fn document(&self) -> RawDocument<'_> {
        match &self.data {
            RowData::Key { .. } => RawDocument::empty(),
            RowData::Record(image) => image.document(),
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
        let record = self.id.record.0;
        env.record = (record != 0).then_some(record as i64);
        self.describe_key(env);
    }

    /// The same, for stages to whose expressions MongoDB tells the key and the score alone.
    pub fn describe_key<'a>(&'a self, env: &mut Env<'a>) {
        env.key = self.key.as_deref().map(Document::as_raw);
        env.score = self.score;
        env.place = self.near.as_deref().map(|measured| measured.place.as_raw());
    }

    /// When the record was last written; zero for a projected document.
    pub fn commit_time(&self) -> u64 {
        match &self.data {
            RowData::Record(image) => image.commit_time(),
            _ => 0,
        }
    }
}
