//! Wildcard indexes seen as what they are to a query: for each path that it names, an index on that path.
//!
//! The view of an index for one path has the path and the value there among its key parts, and knows which components
//! of the path met arrays. The one is bounded by the path; where the value may be a document, also by all
//! paths below, since documents have no key of their own. A number in the path that follows an array may be a
//! position, which keys do not have: then the path without it is looked at too, and the record decides.
//!
//! What stands before the path in a compound index serves those who ask for nothing else: a view that ends with the
//! path, and has all of them.
//!
//! Invariant: the view's bounds hold a key of every document in the index that satisfies the predicates.

use std::sync::Arc;

use kilim_bson::{Document, Path, Value};
use kilim_query::filter::{Comparison, Predicate};

use super::{Wildcard, path_part};
use crate::bounds::{Bounds, Cut, Interval, IntervalList, Tightness};
use crate::index::{Holds, Index, IndexSpec, KeyPart, Multikey};

/// Positions in a path beyond this number are not looked at, as on MongoDB: each doubles the paths.
const POSITIONS_MAX: usize = 8;

/// The index as one on `path`; none where it does not have all values there.
pub(super) fn of_path(wildcard: &Wildcard, index: &Arc<Index>, path: &Path) -> Option<Arc<Index>> {
    if !wildcard.covers(path.as_str()) || path.components().iter().any(|component| component.name.is_empty())
    {
        return None;
    }
    let stored = StoredPaths::of(path, &index.multikey)?;
    if !stored.paths.iter().all(|path| wildcard.covers(path)) {
        return None;
    }
    let value = KeyPart { path: path.clone(), descending: wildcard.descending, holds: Holds::Value };
    let key = wildcard.before.iter().cloned().chain([path_part(), value]);
    let key: Vec<KeyPart> = key.chain(wildcard.after.iter().cloned()).collect();
    let mut bits = vec![0; key.len()];
    bits[wildcard.value_part()] = stored.array_bits;
    Some(seen_as(index, key, bits))
}

/// A compound index as one on what stands before its path; none where that is nothing.
pub(super) fn of_beginning(wildcard: &Wildcard, index: &Arc<Index>) -> Option<Arc<Index>> {
    if wildcard.before.is_empty() {
        return None;
    }
    let key: Vec<KeyPart> = wildcard.before.iter().cloned().chain([path_part()]).collect();
    let bits = vec![0; key.len()];
    Some(seen_as(index, key, bits))
}

/// The view of a wildcard index with other parts, and with what is known of their arrays.
fn seen_as(index: &Arc<Index>, key: Vec<KeyPart>, mut bits: Vec<u64>) -> Arc<Index> {
    // Of the index itself, only whether it has long keys.
    bits[0] |= index.multikey.bits.first().copied().unwrap_or(0);
    let mut key_document = Document::new();
    for part in &key {
        let given = index.spec.key_document.get(part.path.as_str());
        let direction = if part.descending { -1 } else { 1 };
        key_document
            .push(part.path.as_str(), given.map_or(Value::Int32(direction), |given| given.to_value()));
    }
    Arc::new(Index {
        id: index.id,
        spec: IndexSpec {
            name: index.spec.name.clone(),
            key,
            key_document,
            unique: false,
            prepare_unique: false,
            sparse: false,
            hidden: false,
            expire_after_seconds: None,
            partial: index.spec.partial.clone(),
            kind: index.spec.kind.clone(),
            collation: index.spec.collation.clone(),
            measurements: None,
        },
        multikey: index.multikey.with_bits(bits),
        usage: index.usage.clone(),
        ready_since: index.ready_since,
    })
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

/// The bounds of the path, given the part of the value and its bounds.
pub(super) fn path_bounds(index: &Index, value_part: usize, values: &IntervalList) -> IntervalList {
    let path = &index.spec.key[value_part].path;
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

/// Makes the bounds of a predicate on the value at the path such that keys of leaves are enough for them; none where they are not.
pub(super) fn adapt(
    wildcard: &Wildcard,
    index: &Index,
    path: &Path,
    predicate: &Predicate,
    bounds: Bounds,
) -> Option<Bounds> {
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
    if wildcard.empties_documents() && !intervals.intersection(&IntervalList::point(empty)).is_empty() {
        tightness = if intervals.is_full() { tightness } else { Tightness::InexactFetch };
    }
    let stored = StoredPaths::of(path, &index.multikey)?;
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
