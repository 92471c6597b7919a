//! Plans for documents that are not stored yet as they are to be seen.
//!
//! An index over paths whose values are pending holds the old ones. It never sorts, covers or counts. Where
//! the filter asks for such a path it may find candidates, together with all documents that something is pending for;
//! whether they match is decided when they are seen. All other indexes serve as ever.

use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;
use kilim_storage::Snapshot;

use super::{Plan, PlannerInput, trial};
use crate::index::Index;
use crate::patches::Patches;
use crate::plan::{Node, PlanCache, ReadRequest, by_candidates, by_distinct_keys, by_id, solutions};

pub(super) fn plan(
    input: &PlannerInput<'_>,
    behind: &Arc<Patches>,
    mut request: ReadRequest,
    snapshot: &Snapshot,
) -> Result<Plan> {
    let time = snapshot.commit_time();
    let of = |node: Node, request: ReadRequest| {
        let mut plan = Plan::of(input.home, input.indexes, node, request);
        plan.behind = Some(behind.clone());
        plan
    };
    if let Some(node) = by_id(&input.known(), &request) {
        return Ok(of(node, request));
    }
    let (trusted, doubted): (Vec<_>, Vec<_>) =
        input.indexes.iter().cloned().partition(|index| !behind.concerns_index(index));
    let is_doubted = |request: &ReadRequest| {
        let doubted: Vec<&Arc<Index>> = doubted.iter().collect();
        request.hint.as_ref().is_some_and(|hint| hint.find(&doubted).is_ok())
    };
    // The hinted index is there, and of no use now.
    if is_doubted(&request) {
        request.hint = None;
    }
    let trusted: Arc<[Arc<Index>]> = trusted.into();
    // What wins in these times says nothing of others.
    let cache = PlanCache::default();
    let narrowed = PlannerInput { indexes: &trusted, cache: &cache, ..*input };
    if !behind.removes
        && let Some(node) = by_distinct_keys(&narrowed.known(), &request, time)
    {
        return Ok(of(node, request));
    }
    if request.distinct.as_ref().is_some_and(|distinct| distinct.nulls_apart) {
        request.projection = None;
    }
    let mut found = solutions(&narrowed.known(), &request, time)?;
    let natural = request.sort.as_ref().is_some_and(Sort::is_natural);
    if !doubted.is_empty()
        && request.hint.is_none()
        && !natural
        && behind.concerns_filter(&request.filter)
        && let Some(node) = by_candidates(&input.known(), &request, candidates(behind, &request.filter), time)
    {
        let scans = |node: &Node| node.any(&|node| matches!(node, Node::CollectionScan { .. }));
        found.retain(|node| !scans(node));
        found.push(node);
    }
    if found.len() == 1 {
        let node = found.pop().expect("one solution");
        return Ok(of(node, request));
    }
    trial::choose(&narrowed, request, found, snapshot)
}

/// What matches by what is stored, or is not stored as it is seen.
fn candidates(behind: &Patches, filter: &Filter) -> Filter {
    let mut branches = match filter {
        Filter::Or(branches) => branches.clone(),
        filter => vec![filter.clone()],
    };
    branches.extend(behind.holders());
    Filter::Or(branches)
}
