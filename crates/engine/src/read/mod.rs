//! The way of a read: snapshot, catalog, plan, executor.

mod ready;

use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::Snapshot;

use crate::catalog::Collection;
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::namespace::Namespace;
use crate::operator::Executor;
use crate::patches::{Audience, Patches};
use crate::plan::{Purpose, ReadRequest, check_no_text};
use crate::planner::{self, Plan, PlannerInput};
use crate::tail::Tail;
use crate::unit::Unit;

/// A planned read.
pub struct Reading {
    pub collection: Option<Arc<Collection>>,
    pub plan: Plan,
    pub snapshot: Snapshot,
}

impl Reading {
    pub fn execute(self) -> Executor {
        if let Some(collection) = &self.collection {
            collection.shared.scans.note(&self.plan.root);
        }
        planner::execute(self.plan, self.snapshot)
    }
}

/// Plans a read of what `unit` sees. The snapshot comes before the catalog: see [`crate::catalog`].
pub fn plan(unit: &mut Unit<'_>, namespace: &Namespace, mut request: ReadRequest) -> Result<Reading> {
    unit.engine.check_read(namespace, &request)?;
    let snapshot = unit.snapshot();
    let Some(collection) = unit.collection(namespace)? else {
        if request.purpose == Purpose::Documents {
            check_no_text(&request, &namespace.to_string())?;
        }
        return Ok(Reading { collection: None, plan: planner::plan_nothing(&request), snapshot });
    };
    mean(unit, &collection, &mut request, &snapshot)?;
    let plan = plan_collection(unit, &collection, request, &snapshot)?;
    if !namespace.is_internal() {
        plan.check_scan(&unit.engine.settings)?;
    }
    Ok(Reading { collection: Some(collection), plan, snapshot })
}

/// Has a request of a user's ask for what its filter means in the form in which documents are stored.
pub(crate) fn mean(
    unit: &Unit<'_>,
    collection: &Collection,
    request: &mut ReadRequest,
    snapshot: &Snapshot,
) -> Result<()> {
    match unit.engine.patterns().rewriters(&collection.namespace, snapshot.commit_time()) {
        Some(rewriters) => rewriters.mean(request),
        None => Ok(()),
    }
}

pub(crate) fn plan_collection(
    unit: &Unit<'_>,
    collection: &Collection,
    request: ReadRequest,
    snapshot: &Snapshot,
) -> Result<Plan> {
    plan_for(unit, collection, request, snapshot, Audience::User)
}

pub(crate) fn plan_for(
    unit: &Unit<'_>,
    collection: &Collection,
    mut request: ReadRequest,
    snapshot: &Snapshot,
    audience: Audience,
) -> Result<Plan> {
    request.hint = collection.own_hint(request.hint);
    if let Some(rewriters) = unit.engine.patterns().rewriters(&collection.namespace, snapshot.commit_time()) {
        rewriters.serve(&mut request, &collection.indexes);
    }
    let patches = Patches::of(unit.engine, collection, snapshot, audience)?;
    let input = PlannerInput {
        home: collection.home_in(snapshot),
        indexes: &collection.indexes,
        cache: &collection.shared.plan_cache,
        clustered: collection.clustered,
        oldest: collection.oldest_in(snapshot),
        patches: patches.as_ref(),
        interrupt: &|| unit.operation.check(),
    };
    planner::plan(&input, request, snapshot)
}

/// Has a tailable cursor go on in a newer state of its collection.
pub fn go_on(engine: &Engine, tail: &mut Tail, snapshot: &Snapshot) -> Result<()> {
    let collection = engine.catalog().by_id(tail.collection()).cloned();
    let patches = match &collection {
        Some(collection) => Patches::of(engine, collection, snapshot, Audience::User)?,
        None => None,
    };
    let oldest = collection.map_or(RecordId(0), |collection| collection.oldest_in(snapshot));
    tail.go_on(patches.as_ref(), oldest, snapshot)
}
