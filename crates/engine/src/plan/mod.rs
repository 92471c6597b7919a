//! Plans: from what was asked to the ways in which it could be read. Nothing here runs.
//!
//! A filter's predicates become bounds over key parts (by the kind of the index), bounds become accesses to indexes
//! (`access`), accesses become whole plans with sort, skip, limit and projection around them (`solution`). Which of
//! several is followed is for the planner to decide (module `planner`), which remembers its choice by the query's shape
//! (`cache`).
//!
//! Invariant: every plan returns what a collection scan with the same filter and sort returns, except where a hint asks
//! for a sparse or partial index that does not hold everything.

mod access;
mod cache;
mod distinct;
pub(crate) mod explain;
mod filters;
mod followed;
mod hint;
mod implication;
mod intersection;
mod leaf;
mod near;
mod node;
mod order;
mod solution;
mod stats;
mod text;

use std::sync::Arc;

use kilim_bson::{Document, doc};
use kilim_collation::Collation;
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

pub use cache::{PlanCache, QueryShape, RememberedPlan};
pub(crate) use cache::{Remembered, signature};
pub use distinct::Distinct;
pub(crate) use distinct::by_distinct_keys;
pub use filters::{IndexFilter, IndexFilters};
pub use followed::Followed;
pub use hint::Hint;
pub use node::{IndexScan, KeyRange, KeyTest, NearScan, Node, Project, ProjectKind, Skipping};
pub(crate) use solution::{by_candidates, by_id, range_key, solutions};
pub use stats::{Stats, StatsTree, Trial};
pub(crate) use text::{bind_text, check_no_text};

pub use crate::bounds::{Cut, Endpoint, Interval, IntervalList};
use crate::ids::RecordId;
use crate::index::Index;
use crate::records::View;

/// What a command asks to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    pub filter: Arc<Filter>,
    pub sort: Option<Sort>,
    pub projection: Option<Projection>,
    /// The projection only tells which fields are read: rows may have others too.
    pub narrowing: bool,
    pub keys: Keys,
    pub skip: u64,
    pub limit: Option<u64>,
    pub hint: Option<Hint>,
    /// `min` and `max`, over the hinted index.
    pub range: Option<Box<KeyRange>>,
    /// How texts compare in filter and sort: an index of another collation says nothing of them.
    pub collation: Option<Collation>,
    pub allow_disk_use: bool,
    pub purpose: Purpose,
    /// Documents with a value of this field that another has given already may be left out.
    pub distinct: Option<Distinct>,
    /// The score of a `$text` is asked for.
    pub text_score: bool,
    /// It is only explained: which plan wins is not remembered, and none is remembered for it.
    pub explained: bool,
    /// How patterns put the filter into other words, for explain.
    pub rewritten: Vec<Rewritten>,
    /// How much of an array that continues in pages is read.
    pub array: View,
}

/// A filter that a pattern put into other words.
#[derive(Debug, Clone)]
pub struct Rewritten {
    pattern: Box<str>,
    original: Document,
    rewritten: Document,
    /// They count where an index is read whose name begins so.
    index: Option<Box<str>>,
}

impl Rewritten {
    pub(crate) fn of(pattern: &str, original: &Filter, rewritten: &Filter, index: Option<&str>) -> Rewritten {
        Rewritten {
            pattern: pattern.into(),
            original: original.to_document(),
            rewritten: rewritten.to_document(),
            index: index.map(Into::into),
        }
    }

    /// What explain tells of it.
    pub(crate) fn told(&self, root: &Node) -> Option<Document> {
        let is_read = |prefix: &str| {
            root.any(
                &|node| matches!(node, Node::IndexScan(scan) if scan.index.spec.name.starts_with(prefix)),
            )
        };
        let counts = self.index.as_deref().is_none_or(is_read);
        counts.then(|| {
            doc! {
                "stage": "PATTERN_REWRITE",
                "pattern": &*self.pattern,
                "original": self.original.clone(),
                "rewritten": self.rewritten.clone(),
            }
        })
    }
}

/// What becomes of the keys of the indexes that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    Hidden,
    /// Rows keep theirs, for `{$meta: "indexKey"}`.
    Kept,
    /// They are the answer: `returnKey`.
    Returned {
        /// Fields for the values that rows were sorted by.
        sort_keys: Vec<String>,
    },
}

/// What becomes of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Documents,
    /// Only their number is wanted: the rows are counted by the plan itself.
    Count,
}

impl ReadRequest {
    pub fn new(filter: Arc<Filter>) -> ReadRequest {
        ReadRequest {
            filter,
            sort: None,
            projection: None,
            narrowing: false,
            keys: Keys::Hidden,
            skip: 0,
            limit: None,
            hint: None,
            range: None,
            collation: None,
            allow_disk_use: false,
            purpose: Purpose::Documents,
            distinct: None,
            text_score: false,
            explained: false,
            rewritten: Vec::new(),
            array: View::Asked,
        }
    }
}

/// What the plans of a collection are made from.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub indexes: &'a Arc<[Arc<Index>]>,
    /// Records come in the order of `_id`.
    pub clustered: bool,
    /// Before this record there is none in the snapshot.
    pub oldest: RecordId,
    /// Some records are seen as deleted already, so no plan may count without looking at them.
    pub removes: bool,
}
