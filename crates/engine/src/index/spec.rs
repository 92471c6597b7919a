//! What an index is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    /// How long after the date in its field a document lives.
    pub expire_after_seconds: Option<i32>,
    /// `partialFilterExpression`, as given and parsed.
    pub partial: Option<(Document, Filter)>,
}

/// For each key part, which components of its path met an array in some document, one bit each.
/// Empty bits everywhere mean: not multikey. The highest bit of the first part is no component: it tells
/// that some key was too long to be stored whole. On disk, in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Multikey(pub Vec<u64>);

const LONG_KEYS: u64 = 1 << 63;

/// An index that exists, with what the planner must know of it.
#[derive(Debug, Clone)]
pub struct Index {
    pub id: IndexId,
    pub spec: IndexSpec,
    pub multikey: Multikey,
    pub usage: Usage,
    /// The commit time of the catalog change that made it: an older snapshot lacks entries, and must
    /// not use it.
    pub ready_since: u64,
}

/// How often an index was chosen since it was made or the server began. Shared by all versions of an index's
/// description.
#[derive(Debug, Clone)]
pub struct Usage {
    uses: Arc<AtomicU64>,
    since: Instant,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage { uses: Arc::default(), since: Instant::now() }
    }
}

impl Usage {
    pub fn note(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    pub fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Multikey {
    pub fn is_multikey(&self) -> bool {
        self.0.iter().any(|&bits| bits & !LONG_KEYS != 0)
    }

    /// The components of a part's path that met an array; those from the 63rd on share a bit.
    pub fn array_bits(&self, part: usize) -> u64 {
        self.0.get(part).copied().unwrap_or(0) & !LONG_KEYS
    }

    /// The bit of a component.
    pub fn bit_of(component: usize) -> u64 {
        1 << component.min(62)
    }

    /// Some entries hold the beginning of their key only: the index's order is not the keys' order.
    pub fn has_long_keys(&self) -> bool {
        self.0.first().is_some_and(|bits| bits & LONG_KEYS != 0)
    }

    pub fn note_long_key(&mut self) {
        if self.0.is_empty() {
            self.0.push(0);
        }
        self.0[0] |= LONG_KEYS;
    }

    /// Whether all that `other` tells is known here.
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
