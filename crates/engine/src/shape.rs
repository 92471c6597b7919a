//! The hook between stored and logical documents.
//!
//! Filters, indexes, change events and patterns see logical documents only. A plain collection stores
//! what it shows; other shapes (buckets, overflow pages, versions) will store something else and
//! translate here.

use std::borrow::Cow;

use kilim_bson::RawDocument;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Stored is logical; both directions are free.
    #[default]
    Plain,
}

impl Shape {
    /// The stored bytes of a logical document.
    pub fn to_stored<'a>(self, logical: RawDocument<'a>) -> Cow<'a, [u8]> {
        match self {
            Shape::Plain => Cow::Borrowed(logical.as_bytes()),
        }
    }

    /// The logical document behind stored bytes, borrowed where nothing has to change.
    pub fn to_logical<'a>(self, stored: RawDocument<'a>) -> RawDocument<'a> {
        match self {
            Shape::Plain => stored,
        }
    }
}
