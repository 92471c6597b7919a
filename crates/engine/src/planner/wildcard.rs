//! Wildcard indexes seen as what they are to a query: for each path that it names, an index on that path.
//!
//! The view of an index for one path has two key parts, the path and the value there, and knows which components
//! of the path met arrays. Its first part is bounded by the path; where the value may be a document, also by all
//! paths below, since documents have no key of their own. A number in the path that follows an array may be a
//! position, which keys do not have: then the path without it is looked at too, and the record decides.
//!
//! Invariant: the view's bounds hold a key of every document in the index that satisfies the predicates.

use std::sync::Arc;

use kilim_bson::{Document, Path, Value};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::bounds::{Bounds, Tightness};
use super::interval::{Cut, Interval, IntervalList};
use super::leaf::leaves_of;
use crate::index::{Index, IndexSpec, KeyPart, Multikey};

/// The part of a wildcard index's key that holds the value.
pub const VALUE_PART: usize = 1;

/// Positions in a path beyond this number are not looked at, as on MongoDB: each doubles the paths.
const POSITIONS_MAX: usize = 8;

/// All paths that a filter has predicates on, each once.
pub fn paths_of(filter: &Filter) -> Vec<Path> {
    let mut paths = Vec::new();
    collect(filter, &mut paths);
    paths
}

fn collect(filter: &Filter, paths: &mut Vec<Path>) {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().for_each(|part| collect(part, paths)),
        Filter::Field { .. } => {
            for leaf in leaves_of(std::slice::from_ref(filter)) {
                if !paths.contains(&leaf.path) {
                    paths.push(leaf.path.into_owned());
                }
            }
        }
        _ => {}
    }
}

/// The index as one on `path`; none where it does not have all values there.
pub fn view(index: &Arc<Index>, path: &Path) -> Option<Arc<Index>> {
    let wildcard = index.spec.wildcard.as_ref()?;
    if !wildcard.covers(path.as_str()) || path.components().iter().any(|component| component.name.is_empty())
    {
        return None;
    }
    let stored = StoredPaths::of(path, &index.multikey)?;
    if !stored.paths.iter().all(|path| wildcard.covers(path)) {
        return None;
    }
    let long = index.multikey.bits.first().copied().unwrap_or(0);
    let mut key_document = Document::new();
    key_document.push("$_path", 1);
    key_document.push(path.as_str(), 1);
    Some(Arc::new(Index {
        id: index.id,
        spec: IndexSpec {
            name: index.spec.name.clone(),
            key: vec![KeyPart::path_part(), KeyPart { path: path.clone(), descending: false, hashed: false }],
            key_document,
            unique: false,
            prepare_unique: false,
            sparse: false,
            hidden: false,
            expire_after_seconds: None,
            partial: index.spec.partial.clone(),
            wildcard: Some(wildcard.clone()),
            collation: index.spec.collation.clone(),
        },
        multikey: index.multikey.with_bits(vec![long, stored.array_bits]),
        usage: index.usage.clone(),
        ready_since: index.ready_since,
    }))
}

/// The paths under which keys may stand for a path of a query.
struct StoredPaths {
    paths: Vec<String>,
    /// The components of the query's path that met arrays.
    array_bits: u64,
}

impl StoredPaths {
    fn of(path: &Path, multikey: &Multikey) -> Option<StoredPaths> {
        let mut paths = vec![String::new()];
        let mut array_bits = 0;
        let (mut positions, mut position_before) = (0, false);
        for (at, component) in path.components().iter().enumerate() {
            let mut next = Vec::with_capacity(paths.len());
            let mut position = false;
            for before in &paths {
                let array = !before.is_empty() && multikey.met_array_at(before);
                if component.index.is_some() && array {
                    // The elements of an array within an array have no keys of their own.
                    if position_before || multikey.met_nested_array_at(before) {
                        return None;
                    }
                    position = true;
                    next.push(before.clone());
                }
                let mut longer = before.clone();
                if !longer.is_empty() {
                    longer.push('.');
                }
                longer.push_str(&component.name);
                if multikey.met_array_at(&longer) {
                    array_bits |= Multikey::bit_of(at);
                }
                next.push(longer);
            }
            positions += usize::from(position);
            if positions > POSITIONS_MAX {
                return None;
            }
            position_before = position;
            paths = next;
        }
        Some(StoredPaths { paths, array_bits })
    }

    /// Whether the record must decide, because a number may have been a position.
    fn are_several(&self) -> bool {
        self.paths.len() > 1
    }
}

/// The bounds of the first part, given those of the value.
pub fn path_bounds(index: &Index, values: &IntervalList) -> IntervalList {
    let path = &index.spec.key[VALUE_PART].path;
    let stored = StoredPaths::of(path, &index.multikey).map_or_else(Vec::new, |stored| stored.paths);
    let below = overlaps_documents(values);
    let mut intervals = Vec::with_capacity(stored.len() * 2);
    for path in stored {
        if below {
            // `/` follows `.` in the order of bytes.
            let (first, end) = (format!("{path}."), format!("{path}/"));
            intervals.push(Interval::new(Cut::before(first.into()), Cut::before(end.into())));
        }
        intervals.push(Interval::point(path.into()));
    }
    IntervalList::union_of(intervals)
}

/// Makes the bounds of a predicate such that keys of leaves are enough for them; none where they are not.
pub fn adapt(index: &Index, predicate: &Predicate, bounds: Bounds) -> Option<Bounds> {
    if !is_supported(predicate) {
        return None;
    }
    let Bounds { mut intervals, mut tightness } = bounds;
    if matches!(predicate, Predicate::Exists) {
        tightness = Tightness::Exact;
    } else if overlaps_documents(&intervals) {
        intervals = IntervalList::full();
        tightness = Tightness::InexactFetch;
    }
    let empty = Value::Document(Document::new());
    let projected = index.spec.wildcard.as_ref().is_some_and(|wildcard| wildcard.empties_documents());
    if projected && !intervals.intersection(&IntervalList::point(empty)).is_empty() {
        tightness = if intervals.is_full() { tightness } else { Tightness::InexactFetch };
    }
    let stored = StoredPaths::of(&index.spec.key[VALUE_PART].path, &index.multikey)?;
    if stored.are_several() {
        tightness = Tightness::InexactFetch;
    }
    Some(Bounds { intervals, tightness })
}

/// Documents and arrays are not in the index as such, and what a document lacks has no key.
fn is_supported(predicate: &Predicate) -> bool {
    let leaf = |value: &Value, equality: bool| match value {
        Value::Document(document) => equality && document.is_empty(),
        Value::Array(array) => equality && array.as_raw().is_empty(),
        _ => true,
    };
    match predicate {
        Predicate::Compare(comparison, value) | Predicate::Expr(comparison, value) => {
            leaf(value, *comparison == Comparison::Eq)
        }
        Predicate::In(list) => list.values().iter().all(|value| leaf(value, true)),
        Predicate::Not(negated) => {
            matches!(&**negated, Predicate::Compare(Comparison::Eq, value) if matches!(**value, Value::Null | Value::Undefined))
        }
        Predicate::ElemMatchValue(predicates) => predicates.iter().all(|one| match one {
            Predicate::Not(negated) => is_supported(negated),
            one => is_supported(one),
        }),
        _ => true,
    }
}

/// Whether some document that is not empty is within: it has keys below the path only.
fn overlaps_documents(intervals: &IntervalList) -> bool {
    let documents = Interval::new(
        Cut::after(Value::Document(Document::new())),
        Cut::before(Value::Array(Default::default())),
    );
    !intervals.intersection(&IntervalList::one(documents)).is_empty()
}
