//! The way of a read: snapshot, catalog, plan, executor.

use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::Snapshot;

use crate::catalog::Collection;
use crate::maintenance::{Audience, Patches};
use crate::namespace::Namespace;
use crate::operator::{self, Executor};
use crate::planner::{self, Plan, PlannerInput, ReadRequest};
use crate::write::Unit;

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
        operator::execute(self.plan, self.snapshot)
    }
}

/// Plans a read of what `unit` sees. The snapshot comes before the catalog: see [`crate::catalog`].
pub fn plan(unit: &mut Unit<'_>, namespace: &Namespace, request: ReadRequest) -> Result<Reading> {
    unit.engine.check_read(namespace, &request)?;
    let snapshot = unit.snapshot();
    let Some(collection) = unit.collection(namespace)? else {
        return Ok(Reading { collection: None, plan: planner::plan_nothing(&request), snapshot });
    };
    let plan = plan_collection(unit, &collection, request, &snapshot)?;
    Ok(Reading { collection: Some(collection), plan, snapshot })
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
    let behind = Patches::of(unit.engine, collection.id, snapshot, audience)?;
    let input = PlannerInput {
        id: collection.id,
        indexes: &collection.indexes,
        cache: &collection.shared.plan_cache,
        clustered: collection.clustered,
        oldest: collection.oldest_in(snapshot),
        behind: behind.as_ref(),
        interrupt: &|| unit.operation.check(),
    };
    planner::plan(&input, request, snapshot)
}
