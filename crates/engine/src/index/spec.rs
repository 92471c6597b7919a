//! What an index is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kilim_bson::{Collator, Document, Path, RawDocument, compare_documents};
use kilim_collation::Collation;
use kilim_query::filter::Filter;

use super::{IndexKind, OverMeasurements};
use crate::ids::IndexId;
use crate::limits::ARRAY_PATHS_MAX;

/// One field of an index key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPart {
    pub path: Path,
    pub descending: bool,
    pub holds: Holds,
}

/// What a part of an index key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// The value at the part's path.
    Value,
    /// A hash of that value.
    Hash,
    /// A term of the document's texts, in a text index.
    Term,
    /// The score of the term in the part before.
    Score,
    /// The path, in a wildcard index. The next part holds the value there.
    Path,
    /// A cell of the sphere or the plane.
    Cell,
    /// The value at the part's path, an array as a whole, behind a cell of the plane.
    Whole,
}

/// An index as the user declared it.
#[derive(Debug, Clone)]
pub struct IndexSpec {
    pub name: String,
    pub key: Vec<KeyPart>,
    /// The `key` document as given, for listIndexes: `1`, `1.0` and `NumberLong(1)` are kept apart.
    pub key_document: Document,
    pub unique: bool,
    /// New duplicates are refused, those that are there already stay: the first step to `unique`.
    pub prepare_unique: bool,
    pub sparse: bool,
    pub hidden: bool,
    /// How long after the date in its field a document lives.
    pub expire_after_seconds: Option<i32>,
    /// `partialFilterExpression`, as given and parsed.
    pub partial: Option<(Document, Filter)>,
    pub kind: IndexKind,
    /// How its texts compare: their keys are the collation's. `None` is the simple collation.
    pub collation: Option<Collation>,
    /// What it is over measurements, where it is over the bounds of their buckets.
    pub measurements: Option<OverMeasurements>,
}

/// For each key part, which components of its path met an array in some document, one bit each.
/// Empty bits everywhere mean: not multikey. The highest bit of the first part is no component: it tells
/// that some key was too long to be stored whole. That of the second part tells that the keys of some document
/// are complete in their first part only. On disk, in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Multikey {
    pub bits: Vec<u64>,
    /// In a wildcard index, the paths that led to an array, and those of arrays within arrays with
    /// [`NESTED`] behind them. The empty path alone stands for all: there were too many.
    paths: Option<Arc<BTreeSet<Box<str>>>>,
}

/// Behind the path of an array that holds arrays. No field name has it.
pub const NESTED: char = '\0';

const LONG_KEYS: u64 = 1 << 63;
const FIRST_PART_ONLY: u64 = 1 << 63;
/// No component of a path.
const MARKS: u64 = 1 << 63;

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
        self.bits.iter().any(|&bits| bits & !MARKS != 0)
    }

    /// The components of a part's path that met an array; those from the 63rd on share a bit.
    pub fn array_bits(&self, part: usize) -> u64 {
        self.bits.get(part).copied().unwrap_or(0) & !MARKS
    }

    /// The bit of a component.
    pub fn bit_of(component: usize) -> u64 {
        1 << component.min(62)
    }

    /// Some entries hold the beginning of their key only: the index's order is not the keys' order.
    pub fn has_long_keys(&self) -> bool {
        self.bits.first().is_some_and(|bits| bits & LONG_KEYS != 0)
    }

    pub fn note_long_key(&mut self) {
        if self.bits.is_empty() {
            self.bits.push(0);
        }
        self.bits[0] |= LONG_KEYS;
    }

    /// Some document has more combinations of values than an index holds: of its keys, only the first part can be relied
    /// on.
    pub fn is_of_first_part_only(&self) -> bool {
        self.bits.get(1).is_some_and(|bits| bits & FIRST_PART_ONLY != 0)
    }

    pub fn note_first_part_only(&mut self) {
        if self.bits.len() < 2 {
            self.bits.resize(2, 0);
        }
        self.bits[1] |= FIRST_PART_ONLY;
    }

    /// Whether all that `other` tells is known here.
    pub fn covers(&self, other: &Multikey) -> bool {
        let known = |part: usize| self.bits.get(part).copied().unwrap_or(0);
        other.bits.iter().enumerate().all(|(part, &bits)| bits & !known(part) == 0)
            && (self.has_every_path() || other.paths().all(|path| self.has_path(path)))
    }

    pub fn union(&self, other: &Multikey) -> Multikey {
        let bits = |of: &Multikey, part: usize| of.bits.get(part).copied().unwrap_or(0);
        let parts = self.bits.len().max(other.bits.len());
        let bits = (0..parts).map(|part| bits(self, part) | bits(other, part)).collect();
        let paths = match (&self.paths, &other.paths) {
            (None, paths) | (paths, None) => paths.clone(),
            (Some(ours), Some(theirs)) => Some(Arc::new(ours.union(theirs).cloned().collect())),
        };
        let mut union = Multikey { bits, paths };
        if union.paths().count() > ARRAY_PATHS_MAX || union.has_every_path() {
            union.paths = Some(Arc::new(BTreeSet::from([Box::from("")])));
        }
        union
    }

    pub fn with_paths(bits: Vec<u64>, paths: BTreeSet<Box<str>>) -> Multikey {
        Multikey { bits, paths: (!paths.is_empty()).then(|| Arc::new(paths)) }
    }

    /// The same knowledge of paths with other bits.
    pub fn with_bits(&self, bits: Vec<u64>) -> Multikey {
        Multikey { bits, paths: self.paths.clone() }
    }

    /// As stored, see [`Multikey::met_array_at`] for what they say.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().flat_map(|paths| paths.iter()).map(|path| &**path)
    }

    pub fn note_array_at(&mut self, path: &str) {
        if !self.has_path(path) {
            Arc::make_mut(self.paths.get_or_insert_default()).insert(path.into());
        }
    }

    /// Whether an array was met at a path of a wildcard index.
    pub fn met_array_at(&self, path: &str) -> bool {
        self.has_path(path) || self.has_every_path()
    }

    /// Whether an array at a path of a wildcard index held another.
    pub fn met_nested_array_at(&self, path: &str) -> bool {
        self.has_path(&format!("{path}{NESTED}")) || self.has_every_path()
    }

    fn has_every_path(&self) -> bool {
        self.has_path("")
    }

    fn has_path(&self, path: &str) -> bool {
        self.paths.as_ref().is_some_and(|paths| paths.contains(path))
    }
}

/// How the names of indexes begin that patterns made.
pub(crate) const PATTERN_PREFIX: &str = "kilim_";

impl IndexSpec {
    /// Whether this is the key that the index was made with. `1` and `1.0` are the same, `1` and `"text"` are not.
    pub fn has_key(&self, key: RawDocument<'_>) -> bool {
        compare_documents(self.key_document.as_raw(), key).is_eq()
    }

    /// Whether patterns made it, so that it may refuse no document.
    pub(crate) fn is_made_for_patterns(&self) -> bool {
        self.name.starts_with(PATTERN_PREFIX)
    }

    /// Whether a key that another document has is refused.
    pub fn refuses_duplicates(&self) -> bool {
        self.unique || self.prepare_unique
    }

    /// Documents that lack the fields are not in the index.
    pub fn leaves_out_missing(&self) -> bool {
        self.sparse || !self.kind.has_every_document()
    }

    /// Whether documents without a value at this part of the key are not in the index.
    pub fn leaves_out_missing_at(&self, part: usize) -> bool {
        self.kind.leaves_out_missing_at(self, part)
    }

    /// Whether keys may change if the paths change that `touched` accepts.
    pub fn depends_on(&self, touched: impl Fn(&Path) -> bool) -> bool {
        self.kind.depends_on(self, &touched)
    }

    /// Whether each key part holds the value at its path, in the simple order of values: what readers of keys without the
    /// planner need.
    pub fn has_plain_keys(&self) -> bool {
        self.has_ordered_keys() && self.collation.is_none()
    }

    /// Whether each key part holds the value at its path, in the order of the index's collation.
    pub fn has_ordered_keys(&self) -> bool {
        self.key.iter().all(|part| part.holds == Holds::Value)
    }

    /// Whether texts in this part of a key are the collation's keys. A path never is.
    pub fn is_collated(&self, part: usize) -> bool {
        self.collation.is_some() && self.key[part].holds != Holds::Path
    }

    /// As comparisons take it.
    pub fn collator(&self) -> Option<&dyn Collator> {
        kilim_collation::collator(&self.collation)
    }
}

impl Index {
    /// The index on `_id` that every collection has.
    pub fn is_id(&self) -> bool {
        self.spec.name == "_id_"
    }
}
