//! Plans for `$text`: the entries of each search term in the collection's text index, the best scores first.
//!
//! Of one `$text` in a filter the planner makes one plan. Fields before the terms in the index must be asked for by equality,
//! since the terms have their order only within these. Predicates on fields behind are tested on keys.

use std::sync::Arc;

use kilim_bson::{Path, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{Comparison, Filter, Predicate, TextMatcher, TextQuery};

use super::implication::implies;
use super::node::{IndexScan, KeyTest, Node};
use super::solution::{Solver, around, conjunction, conjuncts_of, no_plans};
use super::{Known, ReadRequest};
use crate::bounds::{Interval, IntervalList, Texts};
use crate::index::{BoundSearch, Holds, Index, IndexKind};

const NO_PREFIX: &str = "failed to use text index to satisfy $text query (if text index is compound, are equality \
                         predicates given for all prefix fields?)";
const OPEN_BRANCH: &str = "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be \
                           indexed as well.";

/// Binds a request's `$text` to the text index, and refuses what does not go with it.
pub(crate) fn bind_text(request: &mut ReadRequest, indexes: &[Arc<Index>]) -> Result<()> {
    let Some(query) = request.filter.text() else { return Ok(()) };
    if query.bound.is_some() {
        return Ok(());
    }
    let is_text = |index: &&Arc<Index>| matches!(index.spec.kind, IndexKind::Text(_));
    let Some(index) = indexes.iter().find(is_text) else {
        return Err(Error::user(ErrorCode::IndexNotFound, "text index required for $text query"));
    };
    let search = BoundSearch::new(index, query)?;
    let bound: Arc<dyn TextMatcher> = Arc::new(search);
    let query = Arc::new(TextQuery { bound: Some(bound), ..(**query).clone() });
    request.filter.check_text()?;
    let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
    if request.sort.as_ref().is_some_and(|sort| sort.is_natural()) {
        return bad("text expression not allowed with $natural sort order");
    }
    if request.hint.is_some() {
        return bad("text and hint not allowed in same query");
    }
    request.filter = Arc::new(request.filter.with_text(&query));
    Ok(())
}

/// Refuses a `$text` where there is no collection.
pub(crate) fn check_no_text(request: &ReadRequest, namespace: &str) -> Result<()> {
    match request.filter.text() {
        None => Ok(()),
        Some(_) => Err(Error::user(
            ErrorCode::IndexNotFound,
            format!("text index required for $text query (no such collection '{namespace}')"),
        )),
    }
}

/// The plan for a request with a bound `$text`.
pub(super) fn plan(
    input: &Known<'_>,
    usable: &[&Arc<Index>],
    solver: &Solver<'_>,
    query: &TextQuery,
) -> Result<Node> {
    let request = solver.request;
    let is_text = |index: &&&Arc<Index>| matches!(index.spec.kind, IndexKind::Text(_));
    let Some(index) = usable.iter().find(is_text) else {
        return Err(no_plans("need exactly one text index for $text query"));
    };
    // The plan may be from another state of the catalog than the filter.
    let search = Arc::new(BoundSearch::new(index, query)?);
    let texts = Texts::new(None, request.collation.as_ref());
    if let Some((_, condition)) = &index.spec.partial
        && !implies(&request.filter, condition, texts)
    {
        return Err(no_plans(NO_PREFIX));
    }
    let conjuncts = solver.conjuncts;
    let wanted = Wanted { request, search: &search, removes: input.removes };
    if conjuncts.iter().any(|conjunct| matches!(conjunct, Filter::Text(_))) {
        let lazy = request.sort.as_ref().is_some_and(|sort| sort.is_by_text_score_alone());
        return Ok(around(request, wanted.branch(conjuncts, lazy)?));
    }
    let has_text = |filter: &Filter| filter.text().is_some();
    let Some(at) = conjuncts.iter().position(has_text) else { return Err(no_plans(NO_PREFIX)) };
    let Filter::Or(branches) = &conjuncts[at] else { return Err(no_plans(NO_PREFIX)) };
    let (with_text, others): (Vec<&Filter>, Vec<&Filter>) =
        branches.iter().partition(|branch| has_text(branch));
    let mut inputs = Vec::with_capacity(branches.len());
    for branch in with_text {
        inputs.push(wanted.branch(conjuncts_of(branch), false)?);
    }
    for branch in others {
        inputs.push(solver.indexed_branch(usable, branch).ok_or_else(|| no_plans(OPEN_BRANCH))?);
    }
    let rest = conjuncts.iter().enumerate().filter(|(other, _)| *other != at);
    let residual = conjunction(rest.map(|(_, conjunct)| conjunct.clone()));
    let fetch = Node::Fetch { filter: residual.map(Arc::new), input: Box::new(Node::Or { inputs }) };
    let whole = around(request, fetch);
    Ok(match &*request.filter {
        Filter::Or(_) => super::solution::as_subplan(whole),
        _ => whole,
    })
}

struct Wanted<'r> {
    request: &'r ReadRequest,
    search: &'r Arc<BoundSearch>,
    /// Some records are seen as deleted already.
    removes: bool,
}

impl Wanted<'_> {
    /// What satisfies conjuncts among which is the `$text`. A lazy plan leaves records to whoever is above, where it can.
    fn branch(&self, conjuncts: &[Filter], lazy: bool) -> Result<Node> {
        let index = &self.search.index;
        let parts = &index.spec.key;
        let term_part = self.search.text().map_or(0, |text| text.parts_before());
        let mut decided = vec![false; conjuncts.len()];
        let mut bounds = vec![IntervalList::full(); parts.len()];
        for (part, bound) in bounds.iter_mut().enumerate().take(term_part) {
            let (at, value) =
                self.equality(conjuncts, &parts[part].path).ok_or_else(|| no_plans(NO_PREFIX))?;
            // A missing field is null in the key.
            decided[at] = !matches!(value, Value::Null | Value::Undefined);
            *bound = IntervalList::one(Interval::point(value.clone()));
        }
        let mut on_key = Vec::new();
        let mut shown = Vec::new();
        for (at, conjunct) in conjuncts.iter().enumerate() {
            match conjunct {
                Filter::Text(_) => decided[at] = true,
                Filter::Field { path, predicate } if self.is_decided_by_key(predicate) => {
                    let behind = parts
                        .iter()
                        .skip(term_part)
                        .position(|part| part.holds == Holds::Value && part.path == *path);
                    if let Some(behind) = behind {
                        decided[at] = true;
                        let filter = Filter::Field { path: Path::parse("key"), predicate: predicate.clone() };
                        on_key.push(KeyTest { part: term_part + behind, filter });
                        shown.push(conjunct.clone());
                    }
                }
                _ => {}
            }
        }
        let shown = conjunction(shown);
        let mut buffer = String::new();
        let scans: Vec<Node> = self
            .search
            .search
            .index_terms
            .iter()
            .map(|term| {
                let term = match self.search.text() {
                    Some(text) => text.short_term(term, &mut buffer),
                    None => term,
                };
                let mut bounds = bounds.clone();
                bounds[term_part] = IntervalList::one(Interval::point(Value::from(term)));
                Node::IndexScan(Arc::new(IndexScan {
                    index: index.clone(),
                    bounds,
                    backward: true,
                    on_key: on_key.clone(),
                    shown: None,
                    recheck: self.request.filter.clone(),
                    skipping: None,
                    tells_key: false,
                    range: None,
                }))
            })
            .collect();
        let filter = shown.map(Arc::new);
        let residual = conjunction(
            conjuncts
                .iter()
                .zip(&decided)
                .filter(|(_, decided)| !**decided)
                .map(|(conjunct, _)| conjunct.clone()),
        );
        let needs_texts = self.search.search.needs_texts();
        let fetches = !lazy || residual.is_some() || needs_texts || self.removes;
        let found = match self.request.text_score {
            true => Node::TextOr { search: self.search.clone(), inputs: scans, filter, fetches },
            false => {
                let input = match scans.len() {
                    0 => Node::Eof,
                    1 => scans.into_iter().next().unwrap_or(Node::Eof),
                    _ => Node::Or { inputs: scans },
                };
                Node::Fetch { filter: None, input: Box::new(input) }
            }
        };
        let matched = Node::TextMatch { search: self.search.clone(), input: Box::new(found), fetches };
        Ok(match residual {
            Some(filter) => Node::Fetch { filter: Some(Arc::new(filter)), input: Box::new(matched) },
            None => matched,
        })
    }

    /// The conjunct that asks for one value of a path.
    fn equality<'f>(&self, conjuncts: &'f [Filter], path: &Path) -> Option<(usize, &'f Value)> {
        conjuncts.iter().enumerate().find_map(|(at, conjunct)| match conjunct {
            Filter::Field { path: own, predicate: Predicate::Compare(Comparison::Eq, value) }
                if own == path && self.is_comparable(value) && !matches!(**value, Value::Array(_)) =>
            {
                Some((at, &**value))
            }
            _ => None,
        })
    }

    /// Whether a key tells all that a predicate asks: no array, and no null, which may stand for nothing.
    fn is_decided_by_key(&self, predicate: &Predicate) -> bool {
        match predicate {
            Predicate::Compare(_, value) => {
                self.is_comparable(value)
                    && !matches!(value.as_raw(), RawValue::Null | RawValue::Undefined | RawValue::Array(_))
            }
            _ => false,
        }
    }

    /// The index compares texts by their bytes.
    fn is_comparable(&self, value: &Value) -> bool {
        self.request.collation.is_none() || !crate::bounds::is_collatable(value)
    }
}
