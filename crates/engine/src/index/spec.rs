//! What an index is.

use kilim_bson::{Document, Path};
use kilim_query::filter::Filter;

/// Never reused: a rebuilt index is a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexId(pub u32);

/// One field of an index key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPart {
    pub path: Path,
    pub descending: bool,
}

/// An index as the user declared it.
#[derive(Debug, Clone)]
pub struct IndexSpec {
    pub name: String,
    pub key: Vec<KeyPart>,
    /// The `key` document as given, for listIndexes: `1`, `1.0` and `NumberLong(1)` are kept apart.
    pub key_document: Document,
    pub unique: bool,
    pub sparse: bool,
    pub hidden: bool,
    /// `partialFilterExpression`, as given and parsed.
    pub partial: Option<(Document, Filter)>,
}

/// For each key part, which components of its path met an array in some document, one bit each.
/// Empty bits everywhere mean: not multikey.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Multikey(pub Vec<u64>);

/// An index that exists, with what the planner must know of it.
#[derive(Debug, Clone)]
pub struct Index {
    pub id: IndexId,
    pub spec: IndexSpec,
    pub multikey: Multikey,
    /// The commit time of the catalog change that made it: an older snapshot lacks entries, and must
    /// not use it.
    pub ready_since: u64,
}

impl Multikey {
    pub fn is_multikey(&self) -> bool {
        self.0.iter().any(|&bits| bits != 0)
    }

    /// Whether all of `other`'s arrays are known here.
    pub fn covers(&self, other: &Multikey) -> bool {
        other.0.iter().enumerate().all(|(part, &bits)| bits & !self.0.get(part).copied().unwrap_or(0) == 0)
    }

    pub fn union(&self, other: &Multikey) -> Multikey {
        let bits = |of: &Multikey, part: usize| of.0.get(part).copied().unwrap_or(0);
        let parts = self.0.len().max(other.0.len());
        Multikey((0..parts).map(|part| bits(self, part) | bits(other, part)).collect())
    }
}

impl Index {
    /// The index on `_id` that every collection has.
    pub fn is_id(&self) -> bool {
        self.spec.key.len() == 1 && self.spec.key[0].path.as_str() == "_id"
    }
}
