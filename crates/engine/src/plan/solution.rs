//! Whole plans: an access, and around it fetch, sort, skip, projection and limit.

use std::sync::Arc;

use kilim_bson::{Document, ElementType, Path, Value, encode_value_with};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use super::access::{Access, accesses};
use super::implication::implies;
use super::leaf::{paths_of, place};
use super::node::{IndexScan, KeyRange, KeyTest, Node, Project, ProjectKind};
use super::order::{direction_for, explode};
use super::{Hint, Keys, Known, Purpose, ReadRequest, near};
use crate::bounds::{Cut, Interval, IntervalList, Texts, is_collatable, may_hold_texts};
use crate::index::{Holds, Index};

/// Candidates beyond this number are not tried, as on MongoDB.
const SOLUTIONS_MAX: usize = 64;

/// Inputs of a merge of branches; each holds an open cursor of the store.
const BRANCHES_MAX: usize = 200;

/// The plan for `{_id: value}`, which needs no thought.
pub fn by_id(input: &Known<'_>, request: &ReadRequest) -> Option<Node> {
    let Filter::Field { path, predicate: Predicate::Compare(Comparison::Eq, id) } = &*request.filter else {
        return None;
    };
    if path.as_str() != "_id" || request.hint.is_some() || request.skip > 0 || request.range.is_some() {
        return None;
    }
    // Zero asks for no limit in no command; a limit of one or more changes nothing.
    if request.limit == Some(0) || request.sort.as_ref().is_some_and(Sort::is_natural) {
        return None;
    }
    match id.element_type() {
        ElementType::Array | ElementType::Regex | ElementType::Null | ElementType::Undefined => return None,
        _ => {}
    }
    let index = input.indexes.iter().find(|index| index.is_id())?;
    if index.spec.collation != request.collation {
        return None;
    }
    let node = Node::IdLookup { index: index.clone(), id: (**id).clone() };
    Some(match request.purpose {
        Purpose::Documents => project(request, node),
        Purpose::Count => Node::Count { skip: 0, limit: request.limit, input: Box::new(node) },
    })
}

/// All plans worth considering; never none.
pub fn solutions(input: &Known<'_>, request: &ReadRequest, time: u64) -> Result<Vec<Node>> {
    if let Some((_, near)) = request.filter.near() {
        return near::solutions(input, request, near, time);
    }
    if let Some(sort) = request.sort.as_ref().filter(|sort| sort.is_natural()) {
        let backward = sort.parts().first().is_some_and(|part| part.descending);
        return match &request.hint {
            None => Ok(vec![collection_scan(input, request, backward)]),
            Some(Hint::Natural { backward: hinted }) if *hinted == backward => {
                Ok(vec![collection_scan(input, request, backward)])
            }
            Some(Hint::Natural { .. }) => Err(Error::user(
                ErrorCode::BadValue,
                "$natural hint must be in the same direction as $natural sort order",
            )),
            Some(_) => {
                Err(Error::user(ErrorCode::BadValue, "index hint not allowed with $natural sort order"))
            }
        };
    }
    let removes = input.removes;
    if request.purpose == Purpose::Count && request.filter.is_trivial() && request.hint.is_none() && !removes
    {
        return Ok(vec![Node::RecordCount { skip: request.skip, limit: request.limit }]);
    }
    let usable: Vec<&Arc<Index>> =
        input.indexes.iter().filter(|index| !index.spec.hidden && index.ready_since <= time).collect();
    let planner = Solver {
        request,
        conjuncts: conjuncts_of(&request.filter),
        reads_records: removes,
        intersects: request.hint.is_none() && request.keys == Keys::Hidden,
    };
    if let Some(query) = request.filter.text() {
        return Ok(vec![super::text::plan(input, &usable, &planner, query)?]);
    }
    let paths = match usable.iter().any(|index| index.spec.kind.is_seen_by_path()) {
        true => paths_of(&request.filter),
        false => Vec::new(),
    };
    if let Some(range) = &request.range {
        let index = match &request.hint {
            None => return Err(range_error(51173, NO_HINT)),
            Some(Hint::Natural { .. }) => return Err(no_plans("min and max are incompatible with $natural")),
            Some(hint) => hint.find(&usable)?,
        };
        return Ok(vec![planner.range_plan(index, range)?]);
    }
    match &request.hint {
        Some(Hint::Natural { backward }) => Ok(vec![collection_scan(input, request, *backward)]),
        Some(hint) => {
            let index = hint.find(&usable)?;
            let views = views_of(&[index], &paths);
            let mut found = planner.with_indexes(&views.iter().collect::<Vec<_>>());
            // An index of places is read whole, although it does not have every document, as on MongoDB.
            let refusal = index.spec.kind.whole_index_refusal();
            if found.is_empty() && !index.spec.kind.has_every_document() && !refusal.is_empty() {
                return Err(no_plans(match views.is_empty() {
                    true => "No query solutions",
                    false => refusal,
                }));
            }
            if found.is_empty() {
                found.push(planner.access_plan(&Access::full(index, planner.conjuncts.len())));
            }
            Ok(found)
        }
        None => {
            let mut found = if matches!(*request.filter, Filter::False) {
                Vec::new()
            } else {
                planner.with_indexes(&views_of(&usable, &paths).iter().collect::<Vec<_>>())
            };
            let rooted_or = matches!(*request.filter, Filter::Or(_));
            if found.is_empty() {
                found.push(collection_scan(input, request, false));
            }
            if rooted_or {
                found = found.into_iter().map(as_subplan).collect();
            }
            Ok(found)
        }
    }
}

/// The indexes as the planner sees them: each itself, or its views for the paths that the query names.
fn views_of(indexes: &[&Arc<Index>], paths: &[Path]) -> Vec<Arc<Index>> {
    let mut views = Vec::with_capacity(indexes.len());
    for &index in indexes {
        index.add_views(paths, &mut views);
    }
    views
}

pub(super) fn no_plans(reason: &str) -> Error {
    Error::user(
        ErrorCode::NoQueryExecutionPlans,
        format!("error processing query: planner returned error :: caused by :: {reason}"),
    )
}

const NO_HINT: &str = "When using min()/max() a hint of which index to use must be provided";

fn range_error(code: i32, reason: &str) -> Error {
    Error::location(code, format!("error processing query: planner returned error :: caused by :: {reason}"))
}

/// The range must name what the index has, and its ends must come one before the other.
fn check_range(index: &Index, range: &KeyRange, texts: Texts<'_>) -> Result<()> {
    let names = |document: &Document| {
        let given = document.iter().map(|(name, _)| name);
        given.eq(index.spec.key.iter().map(|part| part.path.as_str()))
    };
    let comparable = |document: &Document| {
        texts.agree || !document.iter().any(|(_, value)| is_collatable(&value.to_value()))
    };
    let fits = |document: &Document| names(document) && comparable(document);
    if !index.spec.has_ordered_keys() || ![&range.min, &range.max].into_iter().flatten().all(fits) {
        return Err(range_error(51174, "The index chosen is not compatible with min/max"));
    }
    if let (Some(min), Some(max)) = (&range.min, &range.max)
        && range_key(index, min) >= range_key(index, max)
    {
        let reason = "The value provided for min() does not come before the value provided for max() in the hinted index";
        return Err(range_error(51175, reason));
    }
    Ok(())
}

/// One end of a range as the index would store it.
pub(crate) fn range_key(index: &Index, end: &Document) -> Vec<u8> {
    let mut key = Vec::new();
    for ((_, value), part) in end.iter().zip(&index.spec.key) {
        encode_value_with(&mut key, value, part.descending, index.spec.collator());
    }
    key
}

/// Below the count, whose result the executor takes from the topmost node.
pub(super) fn as_subplan(node: Node) -> Node {
    match node {
        Node::Count { skip, limit, input } => {
            Node::Count { skip, limit, input: Box::new(as_subplan(*input)) }
        }
        node => Node::Subplan { input: Box::new(node) },
    }
}

pub(super) fn conjuncts_of(filter: &Filter) -> &[Filter] {
    match filter {
        Filter::True => &[],
        Filter::And(conjuncts) => conjuncts,
        one => std::slice::from_ref(one),
    }
}

pub(super) fn conjunction(conjuncts: impl IntoIterator<Item = Filter>) -> Option<Filter> {
    let mut conjuncts: Vec<Filter> = conjuncts.into_iter().collect();
    match conjuncts.len() {
        0 => None,
        1 => conjuncts.pop(),
        _ => Some(Filter::And(conjuncts)),
    }
}

pub(super) struct Solver<'r> {
    pub(super) request: &'r ReadRequest,
    pub(super) conjuncts: &'r [Filter],
    /// A key does not say that there is a document.
    reads_records: bool,
    /// Two scans may find the records together: no index is asked for, nor the key of one.
    intersects: bool,
}

impl<'r> Solver<'r> {
    /// For a request of which nothing else is known.
    pub(super) fn of(request: &'r ReadRequest) -> Solver<'r> {
        let conjuncts = conjuncts_of(&request.filter);
        Solver { request, conjuncts, reads_records: true, intersects: false }
    }

    fn collation(&self) -> Option<&Collation> {
        self.request.collation.as_ref()
    }

    pub(super) fn texts<'i>(&self, index: &'i Index) -> Texts<'i> {
        Texts::new(index.spec.collation.as_ref(), self.collation())
    }

    fn with_indexes(&self, indexes: &[&Arc<Index>]) -> Vec<Node> {
        let complete: Vec<&Arc<Index>> = indexes
            .iter()
            .copied()
            .filter(|index| match &index.spec.partial {
                Some((_, condition)) => implies(&self.request.filter, condition, self.texts(index)),
                None => true,
            })
            .collect();
        let ways: Vec<Access> =
            complete.iter().flat_map(|index| accesses(index, self.conjuncts, self.collation())).collect();
        let mut found: Vec<Node> = ways.iter().map(|access| self.access_plan(access)).collect();
        for (at, conjunct) in self.conjuncts.iter().enumerate() {
            if let Filter::Or(branches) = conjunct {
                found.extend(self.or_plan(indexes, at, branches));
            }
        }
        let blocking = |node: &Node| node.any(&|node| matches!(node, Node::Sort { .. }));
        if let Some(sort) = &self.request.sort
            && found.iter().all(blocking)
        {
            for index in complete.iter().filter(|index| !index.spec.leaves_out_missing()) {
                let access = Access::full(index, self.conjuncts.len());
                if direction_for(index, &access.bounds, sort).is_some() {
                    found.push(self.access_plan(&access));
                }
            }
        }
        // Last, since of equals the first is taken.
        if self.intersects {
            found.extend(self.intersections(&ways));
        }
        found.truncate(SOLUTIONS_MAX);
        found
    }

    fn access_plan(&self, access: &Access) -> Node {
        let residual = conjunction(access.residual.iter().map(|&at| self.conjuncts[at].clone()));
        let sort = self.request.sort.as_ref();
        let backward = sort.map_or(Some(false), |sort| direction_for(&access.index, &access.bounds, sort));
        if backward.is_none()
            && let Some(sort) = sort
            && let Some(scans) = explode(access, sort)
            && self.request.purpose == Purpose::Documents
        {
            let inputs = scans
                .into_iter()
                .map(|(bounds, backward)| {
                    let access = Access { bounds, ..access.clone() };
                    self.index_scan(&access, backward, self.conjuncts, self.request.filter.clone())
                })
                .collect();
            let merge = Node::SortMerge { inputs, sort: Arc::new(sort.clone()), apart: true };
            return self.finish(merge, residual, true, None);
        }
        let scan =
            self.index_scan(access, backward.unwrap_or(false), self.conjuncts, self.request.filter.clone());
        let cover = match &self.request.projection {
            // Keys of paths below another do not tell what is there.
            Some(_) if access.index.may_repeat_records(&access.bounds) => None,
            Some(projection) if residual.is_none() && backward.is_some() && !self.reads_records => {
                cover(&access.index, &access.bounds, projection)
            }
            _ => None,
        };
        self.finish(scan, residual, backward.is_some(), cover)
    }

    fn index_scan(
        &self,
        access: &Access,
        backward: bool,
        conjuncts: &[Filter],
        recheck: Arc<Filter>,
    ) -> Node {
        Node::IndexScan(Arc::new(self.scan_of(access, backward, conjuncts, recheck)))
    }

    pub(super) fn scan_of(
        &self,
        access: &Access,
        backward: bool,
        conjuncts: &[Filter],
        recheck: Arc<Filter>,
    ) -> IndexScan {
        let on_key: Vec<KeyTest> = access
            .on_key
            .iter()
            .filter_map(|&(part, conjunct)| match &conjuncts[conjunct] {
                Filter::Field { predicate, .. } => Some(KeyTest {
                    part,
                    filter: Filter::Field { path: Path::parse("key"), predicate: predicate.clone() },
                }),
                _ => None,
            })
            .collect();
        IndexScan {
            index: access.index.clone(),
            bounds: access.bounds.clone(),
            backward,
            on_key,
            shown: conjunction(access.on_key.iter().map(|&(_, conjunct)| conjuncts[conjunct].clone())),
            recheck,
            skipping: None,
            tells_key: self.request.keys != Keys::Hidden,
            range: None,
        }
    }

    /// `$or`: each branch by its own index. The other conjuncts help where they bound further key parts.
    fn or_plan(&self, indexes: &[&Arc<Index>], at: usize, branches: &[Filter]) -> Option<Node> {
        let others: Vec<usize> = (0..self.conjuncts.len()).filter(|&other| other != at).collect();
        let mut ordered: Vec<&Filter> = branches.iter().collect();
        ordered.sort_by(|a, b| place(a).cmp(&place(b)));
        let mut chosen = Vec::with_capacity(branches.len());
        for branch in ordered {
            let own = conjuncts_of(branch);
            let all: Vec<Filter> = own
                .iter()
                .cloned()
                .chain(others.iter().map(|&other| self.conjuncts[other].clone()))
                .collect();
            let whole = Filter::And(all.clone());
            let best = indexes
                .iter()
                .filter(|index| match &index.spec.partial {
                    Some((_, condition)) => implies(&whole, condition, self.texts(index)),
                    None => true,
                })
                .filter(|index| !accesses(index, own, self.collation()).is_empty())
                .flat_map(|index| accesses(index, &all, self.collation()))
                .max_by_key(merit)?;
            chosen.push((best, own.len(), all, Arc::new(whole)));
        }
        // What some branch leaves open of the other conjuncts is tested once, above.
        let open = |position: usize| {
            chosen.iter().any(|(access, own, ..)| access.residual.contains(&(own + position)))
        };
        let residual = conjunction(
            others
                .iter()
                .enumerate()
                .filter(|(position, _)| open(*position))
                .map(|(_, &at)| self.conjuncts[at].clone()),
        );
        if let Some(access) = merged(&chosen) {
            let residual_at = |position: usize| open(position).then_some(others[position]);
            let access = Access { residual: (0..others.len()).filter_map(residual_at).collect(), ..access };
            return Some(self.access_plan(&access));
        }
        if let Some(sort) = &self.request.sort
            && self.request.purpose == Purpose::Documents
            && let Some(inputs) = self.ordered_branches(&chosen, sort)
        {
            let merge = Node::SortMerge { inputs, sort: Arc::new(sort.clone()), apart: false };
            return Some(self.finish(merge, residual, true, None));
        }
        let inputs = chosen
            .into_iter()
            .map(|(access, own, all, whole)| {
                let scan = self.index_scan(&access, false, &all, whole);
                match conjunction(access.residual.iter().filter(|&&at| at < own).map(|&at| all[at].clone())) {
                    Some(filter) => Node::Fetch { filter: Some(Arc::new(filter)), input: Box::new(scan) },
                    None => scan,
                }
            })
            .collect();
        Some(self.finish(Node::Or { inputs }, residual, self.request.sort.is_none(), None))
    }

    /// A branch of an `$or` by the most promising index; none where it has none.
    pub(super) fn indexed_branch(&self, indexes: &[&Arc<Index>], branch: &Filter) -> Option<Node> {
        let own = conjuncts_of(branch);
        let paths = paths_of(branch);
        let views = views_of(indexes, &paths);
        let usable = views.iter().filter(|index| match &index.spec.partial {
            Some((_, condition)) => implies(branch, condition, self.texts(index)),
            None => true,
        });
        let best = usable.flat_map(|index| accesses(index, own, self.collation())).max_by_key(merit)?;
        let scan = self.index_scan(&best, false, own, Arc::new(branch.clone()));
        let residual = conjunction(best.residual.iter().map(|&at| own[at].clone()));
        Some(match residual {
            Some(filter) => Node::Fetch { filter: Some(Arc::new(filter)), input: Box::new(scan) },
            None => scan,
        })
    }

    /// The branches of an `$or`, each in the sort's order; none where one of them is not.
    fn ordered_branches(&self, branches: &[Branch], sort: &Sort) -> Option<Vec<Node>> {
        let mut inputs = Vec::with_capacity(branches.len());
        for (access, own, all, whole) in branches {
            // Elements of arrays have several places, of which a merge would have to know the first.
            let plain = !access.index.multikey.is_multikey() && !access.index.multikey.has_long_keys();
            let scans = match direction_for(&access.index, &access.bounds, sort) {
                Some(backward) if plain => vec![(access.bounds.clone(), backward)],
                _ => explode(access, sort)?,
            };
            // A hash does not tell the value's place.
            let hashed = |path: &Path| {
                access.index.spec.key.iter().any(|part| part.holds == Holds::Hash && part.path == *path)
            };
            if sort.parts().iter().any(|part| hashed(&part.path)) || inputs.len() > BRANCHES_MAX {
                return None;
            }
            let open = access.residual.iter().filter(|at| *at < own);
            let filter = conjunction(open.map(|&at| all[at].clone())).map(Arc::new);
            for (bounds, backward) in scans {
                let access = Access { bounds, ..access.clone() };
                let scan = self.index_scan(&access, backward, all, whole.clone());
                inputs.push(match &filter {
                    Some(filter) => Node::Fetch { filter: Some(filter.clone()), input: Box::new(scan) },
                    None => scan,
                });
            }
        }
        Some(inputs)
    }

    /// `min` and `max`: a range of the hinted index's keys.
    fn range_plan(&self, index: &Arc<Index>, range: &KeyRange) -> Result<Node> {
        check_range(index, range, self.texts(index))?;
        let access = Access::full(index, self.conjuncts.len());
        let residual = conjunction(self.conjuncts.iter().cloned());
        let sort = self.request.sort.as_ref();
        // Some elements of arrays may lie outside of the range.
        let backward = match sort {
            None => Some(false),
            Some(_) if index.multikey.is_multikey() => None,
            Some(sort) => direction_for(index, &access.bounds, sort),
        };
        let scan = IndexScan {
            index: index.clone(),
            bounds: access.bounds,
            backward: backward.unwrap_or(false),
            on_key: Vec::new(),
            shown: None,
            recheck: self.request.filter.clone(),
            skipping: None,
            tells_key: self.request.keys != Keys::Hidden,
            range: Some(Box::new(range.clone())),
        };
        Ok(self.finish(Node::IndexScan(Arc::new(scan)), residual, backward.is_some(), None))
    }

    /// Puts the rest of the request around an access.
    pub(super) fn finish(
        &self,
        access: Node,
        residual: Option<Filter>,
        ordered: bool,
        cover: Option<Vec<(usize, String)>>,
    ) -> Node {
        let request = self.request;
        if request.purpose == Purpose::Count {
            return self.finish_count(access, residual);
        }
        let skip_early = residual.is_none() && ordered && !self.reads_records;
        let skip = |node: Node| match request.skip {
            0 => node,
            count => Node::Skip { count, input: Box::new(node) },
        };
        let limit = |node: Node| match request.limit {
            Some(count) if ordered => Node::Limit { count, input: Box::new(node) },
            _ => node,
        };
        if let Some(cover) = cover {
            return limit(covered(request, cover, skip(access)));
        }
        // Keys need no records.
        if matches!(request.keys, Keys::Returned { .. }) && skip_early {
            return limit(project(request, skip(access)));
        }
        let mut node = if skip_early { skip(access) } else { access };
        node = Node::Fetch { filter: residual.map(Arc::new), input: Box::new(node) };
        if !ordered && let Some(sort) = &request.sort {
            node = blocking_sort(request, sort, node);
        }
        if !skip_early {
            node = skip(node);
        }
        limit(project(request, node))
    }

    fn finish_count(&self, access: Node, residual: Option<Filter>) -> Node {
        let input = match (access, residual) {
            (access, residual) if self.reads_records => {
                Node::Fetch { filter: residual.map(Arc::new), input: Box::new(access) }
            }
            (Node::IndexScan(scan), None) if scan.on_key.is_empty() && scan.is_single_range() => {
                Node::CountScan(scan)
            }
            (access, None) => access,
            (access, Some(filter)) => Node::Fetch { filter: Some(Arc::new(filter)), input: Box::new(access) },
        };
        Node::Count { skip: self.request.skip, limit: self.request.limit, input: Box::new(input) }
    }
}

/// How promising an access looks without running it: fixed parts first, then bounded ones.
fn merit(access: &Access) -> (usize, usize, std::cmp::Reverse<usize>) {
    let fixed = access.bounds.iter().take_while(|list| list.is_point()).count();
    let bounded = access.bounds.iter().take_while(|list| !list.is_full()).count();
    (fixed, bounded, std::cmp::Reverse(access.residual.len()))
}

type Branch = (Access, usize, Vec<Filter>, Arc<Filter>);

/// Branches over one index that differ in one key part are one scan with the union of their bounds.
fn merged(branches: &[Branch]) -> Option<Access> {
    let (first, ..) = branches.first()?;
    let mut bounds = first.bounds.clone();
    let mut differing: Option<usize> = None;
    for (access, own, ..) in branches {
        let exact = access.on_key.is_empty() && access.residual.iter().all(|at| at >= own);
        if !exact || access.index.id != first.index.id || access.index.spec.key != first.index.spec.key {
            return None;
        }
        for (part, union) in bounds.iter_mut().enumerate() {
            if access.bounds[part] != first.bounds[part] {
                if differing.is_some_and(|known| known != part) {
                    return None;
                }
                differing = Some(part);
                *union = std::mem::take(union).union(access.bounds[part].clone());
            }
        }
    }
    Some(Access { bounds, ..first.clone() })
}

/// The key parts that a projection can be answered from; `None` where it needs the record.
pub(super) fn cover(
    index: &Index,
    bounds: &[IntervalList],
    projection: &Projection,
) -> Option<Vec<(usize, String)>> {
    let needed = projection.needed_fields()?;
    let mut parts = Vec::with_capacity(needed.len());
    for path in &needed {
        let part = index.spec.key.iter().position(|part| part.path == *path)?;
        // Arrays are not in the key as such, and null may stand for a document that ends before the path does.
        if index.array_bits(part) != 0 || index.spec.key[part].holds != Holds::Value {
            return None;
        }
        // Of texts there are a collation's keys only.
        if index.spec.is_collated(part) && may_hold_texts(&bounds[part]) {
            return None;
        }
        let tells_null = index.spec.kind.tells_null_from_missing(index, part);
        if path.components().len() > 1 && !tells_null && takes_null(&bounds[part]) {
            return None;
        }
        parts.push((part, path.as_str().to_owned()));
    }
    parts.sort_unstable();
    (!parts.is_empty() && in_one_place(&parts)).then_some(parts)
}

/// Whether the fields of each document stand side by side, so that it can be written in one go.
fn in_one_place(parts: &[(usize, String)]) -> bool {
    let mut opened: Vec<&str> = Vec::new();
    let mut before = "";
    for (_, name) in parts {
        for (end, _) in name.match_indices('.') {
            let parent = &name[..end];
            let still_open = before.strip_prefix(parent).is_some_and(|rest| rest.starts_with('.'));
            if !still_open && opened.contains(&parent) {
                return false;
            }
            opened.push(parent);
        }
        before = name;
    }
    true
}

fn takes_null(list: &IntervalList) -> bool {
    let nulls = Interval::new(Cut::before(Value::Undefined), Cut::after(Value::Null));
    !list.intersection(&IntervalList::one(nulls)).is_empty()
}

/// The projection, from keys.
pub(super) fn covered(request: &ReadRequest, cover: Vec<(usize, String)>, scan: Node) -> Node {
    match &request.projection {
        None => scan,
        Some(projection) => Node::Project(Project {
            narrowing: request.narrowing,
            kind: if projection.is_simple() { ProjectKind::Covered } else { ProjectKind::Default },
            cover,
            projection: Arc::new(projection.clone()),
            filter: request.filter.clone(),
            input: Box::new(scan),
        }),
    }
}

/// The projection, from records.
pub(super) fn fetched(request: &ReadRequest, scan: Node) -> Node {
    project(request, Node::Fetch { filter: None, input: Box::new(scan) })
}

fn blocking_sort(request: &ReadRequest, sort: &Sort, input: Node) -> Node {
    let limit = request.limit.map(|limit| limit.saturating_add(request.skip));
    Node::Sort { sort: Arc::new(sort.clone()), limit, input: Box::new(input) }
}

fn project(request: &ReadRequest, input: Node) -> Node {
    if let Keys::Returned { sort_keys } = &request.keys {
        let input = Box::new(input);
        let input = if sort_keys.is_empty() { input } else { Box::new(Node::SortKeys { input }) };
        let sort = request.sort.clone().map(Arc::new);
        return Node::ReturnKey { sort_keys: sort_keys.clone(), sort, input };
    }
    match &request.projection {
        Some(projection) if !projection.is_identity() => {
            let simple = projection.is_simple() && projection.needed_fields().is_some();
            let kind = if simple { ProjectKind::Simple } else { ProjectKind::Default };
            Node::Project(Project {
                kind,
                narrowing: request.narrowing,
                cover: Vec::new(),
                projection: Arc::new(projection.clone()),
                filter: request.filter.clone(),
                input: Box::new(input),
            })
        }
        _ => input,
    }
}

fn collection_scan(input: &Known<'_>, request: &ReadRequest, backward: bool) -> Node {
    let filter = (!request.filter.is_trivial()).then(|| request.filter.clone());
    let ordered_by = input.indexes.first().filter(|_| input.clustered).cloned();
    let is_natural = matches!(request.hint, Some(Hint::Natural { .. }))
        || request.sort.as_ref().is_some_and(|sort| sort.is_natural());
    around(request, Node::CollectionScan { from: input.oldest, filter, backward, is_natural, ordered_by })
}

/// By the indexes of a filter's branches, which together find all candidates, and the filter again on what is seen of
/// them. None where a branch has no index.
pub(crate) fn by_candidates(
    input: &Known<'_>,
    request: &ReadRequest,
    candidates: Filter,
    time: u64,
) -> Option<Node> {
    let wanted =
        ReadRequest { collation: request.collation.clone(), ..ReadRequest::new(Arc::new(candidates)) };
    let usable: Vec<&Arc<Index>> =
        input.indexes.iter().filter(|index| !index.spec.hidden && index.ready_since <= time).collect();
    let conjuncts = conjuncts_of(&wanted.filter);
    let solver = Solver { request: &wanted, conjuncts, reads_records: true, intersects: false };
    let found = solver.with_indexes(&usable).into_iter().next()?;
    let filter = Some(request.filter.clone());
    let found = match found {
        Node::Fetch { filter: None, input } => Node::Fetch { filter, input },
        other => Node::Fetch { filter, input: Box::new(other) },
    };
    Some(around(request, found))
}

/// Puts the rest of a request around what finds its documents, in no order.
pub(super) fn around(request: &ReadRequest, scan: Node) -> Node {
    if request.purpose == Purpose::Count {
        return Node::Count { skip: request.skip, limit: request.limit, input: Box::new(scan) };
    }
    let blocking = request.sort.as_ref().filter(|sort| !sort.is_natural() && !sort.is_empty());
    let mut node = match blocking {
        Some(sort) => blocking_sort(request, sort, scan),
        None => scan,
    };
    if request.skip > 0 {
        node = Node::Skip { count: request.skip, input: Box::new(node) };
    }
    node = project(request, node);
    match request.limit {
        Some(count) if blocking.is_none() => Node::Limit { count, input: Box::new(node) },
        _ => node,
    }
}
