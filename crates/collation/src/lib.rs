//! Collations: how a language orders texts.
//!
//! A [`Collation`] is what MongoDB's document of that name says ([`spec`]), checked as mongod checks it,
//! and the collator that does it, built on ICU's data ([`order`]). Whatever compares texts takes it as a
//! [`kilim_bson::Collator`]; the simple collation, the order of bytes, is no collation at all: `None`.
//!
//! Invariant: two collations that are equal order all texts alike, and the keys of a collation compare,
//! byte by byte, as it compares.

mod locale;
mod order;
mod recent;
mod spec;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use kilim_bson::{Collator, Document, RawDocument};
use kilim_error::Result;

pub use spec::full_spec;

use order::Order;
use spec::Spec;

/// What mongod calls the version of its data, and compares a given `version` with.
pub const VERSION: &str = "57.1";

/// The data and code that keys are made with. Keys on disk are good only as long as it is the same.
pub const DATA_VERSION: &str = "icu4x-2.4.0/cldr-49";

/// A collation other than the simple one. Cheap to clone.
#[derive(Clone)]
pub struct Collation(Arc<Resolved>);

struct Resolved {
    spec: Spec,
    order: Order,
}

impl Collation {
    /// Reads what a command gave. `{}` and the locale `simple` are the simple collation.
    ///
    /// `{}` is not told apart here: commands that refuse it, or that take it for "not given", look
    /// before they ask.
    pub fn parse(document: RawDocument<'_>) -> Result<Option<Collation>> {
        if document.is_empty() {
            return Ok(None);
        }
        if let Some(known) = recent::find(document.as_bytes()) {
            return Ok(Some(known));
        }
        let Some(spec) = Spec::parse(document)? else { return Ok(None) };
        let order = Order::new(&spec)?;
        let collation = Collation(Arc::new(Resolved { spec, order }));
        recent::keep(document.as_bytes(), &collation);
        Ok(Some(collation))
    }

    /// Everything that was said or left to the locale, as `listIndexes` shows it.
    pub fn to_document(&self) -> Document {
        self.0.spec.to_document()
    }

    pub fn locale(&self) -> &str {
        &self.0.spec.locale
    }

    /// As comparisons take it.
    #[inline]
    pub fn as_collator(&self) -> &dyn Collator {
        self
    }
}

impl Collator for Collation {
    fn compare(&self, left: &str, right: &str) -> Ordering {
        self.0.order.compare(left, right)
    }

    fn write_key(&self, text: &str, out: &mut Vec<u8>) {
        self.0.order.write_key(text, out);
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Collation) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.spec == other.0.spec
    }
}

impl Eq for Collation {}

impl fmt::Debug for Collation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.spec.fmt(formatter)
    }
}

/// What comparisons take, of a collation that may be the simple one.
#[inline]
pub fn collator(collation: &Option<Collation>) -> Option<&dyn Collator> {
    collation.as_ref().map(Collation::as_collator)
}

#[cfg(test)]
mod tests;
