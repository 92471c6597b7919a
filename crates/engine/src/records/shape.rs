//! How documents are stored: what a record's bytes mean, and what is stored for a document.
//!
//! Filters, indexes, change events and patterns see rows only. A plain collection stores what it shows; other shapes
//! (buckets, overflow pages, versions) will store something else and translate here.

use std::borrow::Cow;

use kilim_bson::RawDocument;
use kilim_storage::Bytes;

use super::{Image, RowId};
use crate::ids::RecordId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// A record is one document; both directions are free.
    #[default]
    Plain,
}

/// The rows of one record, in the order of their positions.
pub(crate) struct Rows(Option<(RowId, Image)>);

impl Shape {
    /// The rows of a record as it is stored.
    ///
    /// # Safety
    ///
    /// The bytes are what the store has for a record that was written in this shape.
    pub(super) unsafe fn rows(self, record: RecordId, stored: Bytes) -> Rows {
        match self {
            // SAFETY: the write door stores documents that have passed validation, as this function's caller says.
            Shape::Plain => Rows(Some((record.into(), unsafe { Image::from_bytes(stored) }))),
        }
    }

    /// The stored bytes of a document, without the commit time.
    pub(super) fn to_stored(self, document: RawDocument<'_>) -> Cow<'_, [u8]> {
        match self {
            Shape::Plain => Cow::Borrowed(document.as_bytes()),
        }
    }
}

impl Rows {
    pub(super) fn none() -> Rows {
        Rows(None)
    }
}

impl Iterator for Rows {
    type Item = (RowId, Image);

    fn next(&mut self) -> Option<(RowId, Image)> {
        self.0.take()
    }
}
