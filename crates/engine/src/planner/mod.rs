//! The planner: from what was asked to how it is read.
//!
//! A filter's predicates become bounds over key parts (`bounds`, `interval`), bounds become accesses to
//! indexes (`access`), accesses become whole plans with sort, skip, limit and projection around them
//! (`solution`). Where several remain, they run against each other for a short while (`trial`), and the
//! winner is remembered by the query's shape (`cache`).
//!
//! Invariant: every plan returns what a collection scan with the same filter and sort returns, except
//! where a hint asks for a sparse or partial index that does not hold everything.

mod access;
mod behind;
mod bounds;
mod bracket;
mod cache;
mod distinct;
pub mod explain;
mod followed;
mod hashed;
mod hint;
mod implication;
mod intersection;
mod interval;
mod leaf;
mod node;
mod order;
mod regex_prefix;
mod solution;
mod texts;
mod trial;
mod wildcard;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_collation::Collation;
use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use kilim_storage::Snapshot;

pub use cache::{PlanCache, RememberedPlan, Shape};
pub use distinct::Distinct;
pub use explain::{Subject, Verbosity, WriteStage, explain};
pub use followed::Followed;
pub use hint::Hint;
pub use interval::{Cut, Endpoint, Interval, IntervalList};
pub use node::{IndexScan, KeyRange, KeyTest, Node, Project, ProjectKind, Skipping};
pub(crate) use solution::range_key;
pub use trial::Trial;

use crate::catalog::{CollectionId, RecordId};
use crate::index::Index;
use crate::maintenance::Patches;
use crate::operator::{Operator, Row};
use crate::records::{self, Home};

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
    pub range: Option<KeyRange>,
    /// How texts compare in filter and sort: an index of another collation says nothing of them.
    pub collation: Option<Collation>,
    pub allow_disk_use: bool,
    pub purpose: Purpose,
    /// Documents with a value of this field that another has given already may be left out.
    pub distinct: Option<Distinct>,
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
    /// Only their number is wanted: see [`crate::operator::Executor::count`].
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
        }
    }
}

/// What the planner knows of a collection. `None` in place of it means: there is no such collection.
#[derive(Clone, Copy)]
pub struct PlannerInput<'a> {
    pub home: Home,
    pub indexes: &'a Arc<[Arc<Index>]>,
    pub cache: &'a PlanCache,
    /// Records come in the order of `_id`.
    pub clustered: bool,
    /// Before this record there is none in the snapshot.
    pub oldest: RecordId,
    /// What is pending for its documents, as of the snapshot.
    pub(crate) behind: Option<&'a Arc<Patches>>,
    /// Called while candidates are tried; an error ends the planning.
    pub interrupt: &'a dyn Fn() -> Result<()>,
}

/// How a request is read.
pub struct Plan {
    pub home: Home,
    pub root: Arc<Node>,
    pub request: ReadRequest,
    /// The candidates that lost, for explain.
    pub rejected: Vec<Arc<Node>>,
    /// How the candidates did, best first; empty where there was one.
    pub trials: Vec<Trial>,
    /// What the collection had to choose from.
    pub(crate) indexes: Arc<[Arc<Index>]>,
    /// The winner goes on where its trial ended.
    started: Option<(Box<Operator>, VecDeque<Row>)>,
    /// What rows are looked at through.
    pub(crate) behind: Option<Arc<Patches>>,
}

/// The plan for a collection that does not exist.
pub fn plan_nothing(request: &ReadRequest) -> Plan {
    let node = match request.purpose {
        Purpose::Documents => Node::Eof,
        Purpose::Count => Node::Count { skip: 0, limit: None, input: Box::new(Node::Eof) },
    };
    Plan::of(
        Home { collection: CollectionId(0), shape: records::Shape::Plain },
        &Arc::from([]),
        node,
        request.clone(),
    )
}

/// Chooses how to read.
pub fn plan(input: &PlannerInput<'_>, mut request: ReadRequest, snapshot: &Snapshot) -> Result<Plan> {
    request.sort = request.sort.filter(|sort| !sort.is_empty());
    if let Some(behind) = input.behind {
        return behind::plan(input, behind, request, snapshot);
    }
    // Most reads of most applications are by `_id`; nothing else is looked at for them.
    if let Some(node) = solution::by_id(input, &request) {
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    if let Some(node) = distinct::by_distinct_keys(input, &request, snapshot.commit_time()) {
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    if request.distinct.as_ref().is_some_and(|distinct| distinct.nulls_apart) {
        // From keys it would not tell null from nothing.
        request.projection = None;
    }
    let mut solutions = solution::solutions(input, &request, snapshot.commit_time())?;
    if solutions.len() == 1 {
        let node = solutions.pop().expect("one solution");
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    trial::choose(input, request, solutions, snapshot)
}

impl Plan {
    fn of(home: Home, indexes: &Arc<[Arc<Index>]>, root: Node, request: ReadRequest) -> Plan {
        Plan {
            home,
            root: Arc::new(root),
            request,
            rejected: Vec::new(),
            trials: Vec::new(),
            indexes: indexes.clone(),
            started: None,
            behind: None,
        }
    }

    /// The winner's operators as its trial left them, if there was a trial.
    pub(crate) fn take_started(&mut self) -> Option<(Box<Operator>, VecDeque<Row>)> {
        self.started.take()
    }
}
