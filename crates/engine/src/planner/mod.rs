//! The planner: which of the ways to read ([`crate::plan`]) is followed.
//!
//! Where several remain, they run against each other for a short while (`trial`), and the winner is remembered by the
//! query's shape. Where documents are not stored yet as they are seen, indexes are trusted less (`behind`).

mod behind;
mod execute;
pub mod explain;
mod trial;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::Snapshot;

pub use execute::execute;
pub use explain::{Subject, Verbosity, WriteStage, explain};

use crate::ids::{CollectionId, RecordId};
use crate::index::Index;
use crate::operator::{Operator, Row};
use crate::patches::Patches;
use crate::plan::{Known, Node, PlanCache, Purpose, ReadRequest, Trial, by_distinct_keys, by_id, solutions};
use crate::records::{self, Home};

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

impl<'a> PlannerInput<'a> {
    fn known(&self) -> Known<'a> {
        let PlannerInput { indexes, clustered, oldest, .. } = *self;
        Known { indexes, clustered, oldest, removes: self.behind.is_some_and(|behind| behind.removes) }
    }
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
    let known = input.known();
    // Most reads of most applications are by `_id`; nothing else is looked at for them.
    if let Some(node) = by_id(&known, &request) {
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    if let Some(node) = by_distinct_keys(&known, &request, snapshot.commit_time()) {
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    if request.distinct.as_ref().is_some_and(|distinct| distinct.nulls_apart) {
        // From keys it would not tell null from nothing.
        request.projection = None;
    }
    let mut found = solutions(&known, &request, snapshot.commit_time())?;
    if found.len() == 1 {
        let node = found.pop().expect("one solution");
        return Ok(Plan::of(input.home, input.indexes, node, request));
    }
    trial::choose(input, request, found, snapshot)
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
}
