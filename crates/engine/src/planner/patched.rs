//! Plans for a collection with documents for which something is pending.
//!
//! An index over paths with pending values has outdated entries. It is not used to sort, cover or count. If the filter asks
//! for such a path, the index may find candidates, in union with all documents for which something is pending. Whether a
//! candidate matches is decided when it is read through its patches. All other indexes are used as usual.

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
    patches: &Arc<Patches>,
    mut request: ReadRequest,
    snapshot: &Snapshot,
) -> Result<Plan> {
    let time = snapshot.commit_time();
    let of = |node: Node, request: ReadRequest| {
        let mut plan = Plan::of(input.home.clone(), input.indexes, node, request);
        plan.patches = Some(patches.clone());
        plan
    };
    if let Some(node) = by_id(&input.known(), &request) {
        return Ok(of(node, request));
    }
    let (trusted, doubted): (Vec<_>, Vec<_>) =
        input.indexes.iter().cloned().partition(|index| !patches.concerns_index(index));
    let is_doubted = |request: &ReadRequest| {
        let doubted: Vec<&Arc<Index>> = doubted.iter().collect();
        request.hint.as_ref().is_some_and(|hint| hint.find(&doubted).is_ok())
    };
    // The hinted index exists, but has outdated entries.
    if is_doubted(&request) {
        request.hint = None;
    }
    let trusted: Arc<[Arc<Index>]> = trusted.into();
    // Which plan wins now says nothing about times when nothing is pending, so it is not remembered.
    let cache = PlanCache::default();
    let narrowed = PlannerInput { indexes: &trusted, cache: &cache, ..input.clone() };
    let near = request.filter.near().is_some();
    if !patches.removes
        && !near
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
        && !near
        && patches.concerns_filter(&request.filter)
        && let Some(node) =
            by_candidates(&input.known(), &request, candidates(patches, &request.filter), time)
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

/// Documents that match as they are stored, or for which something is pending.
fn candidates(patches: &Patches, filter: &Filter) -> Filter {
    let mut branches = match filter {
        Filter::Or(branches) => branches.clone(),
        filter => vec![filter.clone()],
    };
    branches.extend(patches.holders());
    Filter::Or(branches)
}
