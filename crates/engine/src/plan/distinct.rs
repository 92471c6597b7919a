//! The different values of a field, from an index: one key each, the scan skips the rest.
//!
//! Only where bounds say all that the filter says, and where keys tell values: not from arrays, of which an
//! index keeps the elements, and not from an index that leaves documents out.

use std::sync::Arc;

use kilim_bson::Path;

use super::access::{Access, accesses};
use super::implication::implies;
use super::node::{IndexScan, Node, Skipping};
use super::order::direction_for;
use super::solution::{conjuncts_of, cover, covered, fetched};
use super::{Known, ReadRequest};
use crate::bounds::Texts;
use crate::index::{Holds, Index};

/// What a request for different values asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distinct {
    /// The field, dotted.
    pub path: Box<str>,
    /// A key does not tell null from nothing: where that matters, each such document is read.
    pub nulls_apart: bool,
}

/// The plan that skips from value to value, if an index allows it.
pub fn by_distinct_keys(input: &Known<'_>, request: &ReadRequest, time: u64) -> Option<Node> {
    let distinct = request.distinct.as_ref()?;
    if request.skip > 0 || request.limit.is_some() {
        return None;
    }
    let hinted = |index: &&Arc<Index>| match &request.hint {
        None => true,
        Some(hint) => hint.find(&[*index]).is_ok(),
    };
    let serves = |index: &&Arc<Index>| {
        !index.spec.hidden
            && index.ready_since <= time
            && !index.spec.sparse
            && !index.multikey.is_multikey()
            && !index.multikey.has_long_keys()
            && index.spec.partial.as_ref().is_none_or(|(_, condition)| {
                let texts = Texts::new(index.spec.collation.as_ref(), request.collation.as_ref());
                implies(&request.filter, condition, texts)
            })
    };
    let path = Path::parse(&distinct.path);
    let view = |index: &Arc<Index>| index.view(&path).filter(|view| !view.multikey.is_multikey());
    let candidates = input.indexes.iter().filter(serves).filter(hinted);
    candidates
        .filter_map(view)
        .filter_map(|index| plan_over(&index, request, distinct))
        .min_by_key(|(parts, _)| *parts)
        .map(|(_, node)| node)
}

/// The plan, and how many key parts it has, of which fewer are better.
fn plan_over(index: &Arc<Index>, request: &ReadRequest, distinct: &Distinct) -> Option<(usize, Node)> {
    let part = index.spec.key.iter().position(|part| part.path.as_str() == &*distinct.path)?;
    if index.spec.key[part].holds != Holds::Value
        || index.spec.key[part].path.components().iter().any(|component| component.index.is_some())
    {
        return None;
    }
    let conjuncts = conjuncts_of(&request.filter);
    let access = match conjuncts.is_empty() {
        true if !index.spec.kind.has_every_document() => return None,
        true => Access::full(index, 0),
        false => accesses(index, conjuncts, request.collation.as_ref()).into_iter().next()?,
    };
    let decided = access.residual.is_empty() && access.on_key.is_empty();
    if !decided || !access.bounds[..part].iter().all(|list| list.is_point()) {
        return None;
    }
    // Which values are different is the collation's to say.
    let texts = Texts::new(index.spec.collation.as_ref(), request.collation.as_ref());
    if !texts.order(&access.bounds[part]) {
        return None;
    }
    let backward = match &request.sort {
        None => false,
        Some(sort) => direction_for(index, &access.bounds, sort)?,
    };
    let cover = request.projection.as_ref().and_then(|projection| cover(index, &access.bounds, projection));
    let scan = Node::IndexScan(Arc::new(IndexScan {
        index: index.clone(),
        bounds: access.bounds,
        backward,
        on_key: Vec::new(),
        shown: None,
        recheck: request.filter.clone(),
        tells_key: false,
        range: None,
        skipping: Some(Skipping { part, nulls_apart: distinct.nulls_apart }),
    }));
    let node = match cover {
        Some(cover) => covered(request, cover, scan),
        None => fetched(request, scan),
    };
    Some((index.spec.key.len(), node))
}
