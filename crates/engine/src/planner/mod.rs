//! The planner: which of the ways to read ([`crate::plan`]) is followed.
//!
//! Where several remain, they run against each other for a short while (`trial`), and the winner is remembered by the
//! query's shape. Where documents are not stored yet as they are seen, indexes are trusted less (`patched`).

mod execute;
pub mod explain;
mod paged;
mod patched;
mod trial;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Snapshot;

pub use execute::execute;
pub use explain::{Subject, Verbosity, WriteStage, explain};

use crate::ids::{CollectionId, RecordId};
use crate::index::Index;
use crate::operator::{Operator, Row};
use crate::patches::Patches;
use crate::plan::{
    Hint, Known, Node, PlanCache, Purpose, ReadRequest, Trial, bind_text, by_distinct_keys, by_id, solutions,
};
use crate::records::{self, Home};
use crate::settings::Settings;

/// What the planner knows of a collection. `None` in place of it means: there is no such collection.
#[derive(Clone)]
pub struct PlannerInput<'a> {
    pub home: Home,
    pub indexes: &'a Arc<[Arc<Index>]>,
    pub cache: &'a PlanCache,
    /// Records come in the order of `_id`.
    pub clustered: bool,
    /// Before this record there is none in the snapshot.
    pub oldest: RecordId,
    /// What is pending for its documents, as of the snapshot.
    pub(crate) patches: Option<&'a Arc<Patches>>,
    /// Called while candidates are tried; an error ends the planning.
    pub interrupt: &'a dyn Fn() -> Result<()>,
}

impl<'a> PlannerInput<'a> {
    fn known(&self) -> Known<'a> {
        let PlannerInput { indexes, clustered, oldest, .. } = *self;
        Known { indexes, clustered, oldest, removes: self.patches.is_some_and(|patches| patches.removes) }
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
    /// An index filter says what it may use.
    pub(crate) index_filter_set: bool,
    /// What rows are looked at through.
    pub(crate) patches: Option<Arc<Patches>>,
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

/// Chooses how to read, among all indexes or those that an index filter allows.
pub fn plan(input: &PlannerInput<'_>, mut request: ReadRequest, snapshot: &Snapshot) -> Result<Plan> {
    if let Some(paged) = input.home.shape.paged() {
        paged::ask(&paged.paging, &mut request);
    }
    let Some(allowed) = input.cache.filters.allowed(&request, input.indexes) else {
        return plan_among(input, request, snapshot);
    };
    let natural = matches!(request.hint, Some(Hint::Natural { .. }));
    let mut plan = if natural || by_id(&input.known(), &request).is_some() {
        plan_among(input, request, snapshot)?
    } else {
        request.hint = None;
        plan_among(&PlannerInput { indexes: &allowed, ..input.clone() }, request, snapshot)?
    };
    plan.index_filter_set = true;
    Ok(plan)
}

fn plan_among(input: &PlannerInput<'_>, mut request: ReadRequest, snapshot: &Snapshot) -> Result<Plan> {
    bind_text(&mut request, input.indexes)?;
    request.sort = request.sort.filter(|sort| !sort.is_empty());
    if let Some(patches) = input.patches {
        return patched::plan(input, patches, request, snapshot);
    }
    let known = input.known();
    // Most reads of most applications are by `_id`; nothing else is looked at for them.
    if let Some(node) = by_id(&known, &request) {
        return Ok(Plan::of(input.home.clone(), input.indexes, node, request));
    }
    if request.filter.near().is_none()
        && let Some(node) = by_distinct_keys(&known, &request, snapshot.commit_time())
    {
        return Ok(Plan::of(input.home.clone(), input.indexes, node, request));
    }
    if request.distinct.as_ref().is_some_and(|distinct| distinct.nulls_apart) {
        // From keys it would not tell null from nothing.
        request.projection = None;
    }
    let mut found = solutions(&known, &request, snapshot.commit_time())?;
    if found.len() == 1 {
        let node = found.pop().expect("one solution");
        return Ok(Plan::of(input.home.clone(), input.indexes, node, request));
    }
    trial::choose(input, request, found, snapshot)
}

impl Plan {
    /// Refuses to read a whole collection where `notablescan` is set. What was asked to be read so may be.
    pub(crate) fn check_scan(&self, settings: &Settings) -> Result<()> {
        if !settings.no_table_scan() || matches!(self.request.hint, Some(Hint::Natural { .. })) {
            return Ok(());
        }
        match self.root.any(&|node| matches!(node, Node::CollectionScan { .. })) {
            false => Ok(()),
            true => Err(Error::user(
                ErrorCode::NoQueryExecutionPlans,
                "error processing query: planner returned error :: caused by :: No indexed plans available, and \
                 running with 'notablescan'",
            )),
        }
    }

    fn of(home: Home, indexes: &Arc<[Arc<Index>]>, root: Node, request: ReadRequest) -> Plan {
        Plan {
            home,
            root: Arc::new(root),
            request,
            rejected: Vec::new(),
            trials: Vec::new(),
            indexes: indexes.clone(),
            started: None,
            index_filter_set: false,
            patches: None,
        }
    }
}
