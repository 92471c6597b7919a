//! Plans for `$near`: an index of places, read in rings around a point.

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{DistanceUnit, Filter, Near, Predicate};

use super::access::accesses;
use super::implication::implies;
use super::node::{NearScan, Node};
use super::solution::{Solver, around, conjunction, no_plans};
use super::{Hint, Known, ReadRequest};
use crate::index::{Holds, Index, IndexKind};

/// The ways to read a filter that has `$near`; an error where no index serves it.
pub(super) fn solutions(
    input: &Known<'_>,
    request: &ReadRequest,
    near: &Near,
    time: u64,
) -> Result<Vec<Node>> {
    let bad = |message: &str| Error::user(ErrorCode::BadValue, message);
    if request.sort.as_ref().is_some_and(kilim_query::sort::Sort::is_natural) {
        return Err(bad("geoNear expression not allowed with $natural sort order"));
    }
    let usable: Vec<&Arc<Index>> =
        input.indexes.iter().filter(|index| !index.spec.hidden && index.ready_since <= time).collect();
    let usable = match &request.hint {
        None => usable,
        Some(Hint::Natural { .. }) => return Err(bad("geoNear expression not allowed with $natural hint")),
        Some(hint) => vec![hint.find(&usable)?],
    };
    let solver = Solver::of(request);
    let mut found = Vec::new();
    for index in usable.into_iter().filter(|index| measures(index, near)) {
        let complete = match &index.spec.partial {
            Some((_, condition)) => implies(&request.filter, condition, solver.texts(index)),
            None => true,
        };
        if !complete {
            continue;
        }
        for access in accesses(index, solver.conjuncts, request.collation.as_ref()) {
            let open = |at: &usize| is_near(&solver.conjuncts[*at]);
            if access.residual.iter().any(open) {
                continue;
            }
            let residual = conjunction(access.residual.iter().map(|&at| solver.conjuncts[at].clone()));
            let Some(part) = place_of(index, &request.filter) else { continue };
            let scan = NearScan {
                part,
                near: near.clone(),
                bounds: access.bounds,
                recheck: request.filter.clone(),
                index: access.index,
            };
            let node = Node::Near(Arc::new(scan));
            found.push(around(
                request,
                match residual {
                    Some(filter) => Node::Fetch { filter: Some(Arc::new(filter)), input: Box::new(node) },
                    None => node,
                },
            ));
        }
    }
    if found.is_empty() {
        return Err(no_plans("unable to find index for $geoNear query"));
    }
    Ok(found)
}

fn is_near(filter: &Filter) -> bool {
    matches!(filter, Filter::Field { predicate: Predicate::Near(_), .. })
}

/// The part of a key that holds the cells of the field.
fn place_of(index: &Index, filter: &Filter) -> Option<usize> {
    let (path, _) = filter.near()?;
    index.spec.key.iter().position(|part| part.holds == Holds::Cell && part.path == *path)
}

/// Whether an index can tell the distances that are asked for.
fn measures(index: &Index, near: &Near) -> bool {
    match &index.spec.kind {
        IndexKind::TwoDSphere(_) => near.unit() != DistanceUnit::Flat,
        IndexKind::TwoD(_) => near.unit() != DistanceUnit::Metres,
        _ => false,
    }
}
