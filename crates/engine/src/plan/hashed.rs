//! Bounds over a hashed key part: points only, each a hash, and the record decides.

use kilim_bson::{RawValue, Value};
use kilim_collation::Collation;
use kilim_query::filter::{Comparison, InList, Operand, Predicate};

use super::bounds::{Bounds, PartTraits, Tightness, bounds_of};
use super::interval::{Interval, IntervalList};
use crate::index::hash_of;

/// The bounds of a predicate; `None` where hashes cannot serve it.
pub fn hashed_bounds(predicate: &Predicate, part: PartTraits<'_>) -> Option<Bounds> {
    if !part.texts.allow(predicate) {
        return None;
    }
    let intervals = match predicate {
        Predicate::Compare(Comparison::Eq, value) => IntervalList::union_of(equal(value, part)?),
        Predicate::Expr(Comparison::Eq, value) if !matches!(**value, Value::Array(_)) => {
            IntervalList::union_of(equal(value, PartTraits { sparse: false, ..part })?)
        }
        Predicate::In(list) if list.regexes().is_empty() => one_of(list, part)?,
        Predicate::Exists => IntervalList::full(),
        Predicate::Not(negated) if matches!(**negated, Predicate::Exists) && !part.sparse => {
            IntervalList::one(point(RawValue::Null, part))
        }
        _ => return None,
    };
    Some(Bounds { intervals, tightness: Tightness::InexactFetch })
}

fn equal(value: &Value, part: PartTraits<'_>) -> Option<Vec<Interval>> {
    match value {
        Value::Null | Value::Undefined if part.sparse => None,
        Value::Null | Value::Undefined => {
            Some(vec![point(RawValue::Undefined, part), point(RawValue::Null, part)])
        }
        // No document in the index has an array here. The bounds are those that MongoDB shows.
        Value::Array(_) => {
            let operand = Operand::new(value.clone(), &part.texts.collation.cloned());
            let shown = bounds_of(&Predicate::Compare(Comparison::Eq, operand), part)?;
            Some(shown.intervals.intervals().to_vec())
        }
        value => Some(vec![point(value.as_raw(), part)]),
    }
}

/// Values that share a hash are refused: a part that is one point is taken to be one value where order is asked
/// for.
fn one_of(list: &InList, part: PartTraits<'_>) -> Option<IntervalList> {
    let mut points = Vec::with_capacity(list.values().len());
    for value in list.values() {
        points.extend(equal(value, part)?);
    }
    let number = points.len();
    let intervals = IntervalList::union_of(points);
    (intervals.intervals().len() == number).then_some(intervals)
}

fn point(value: RawValue<'_>, part: PartTraits<'_>) -> Interval {
    let collator = part.texts.collation.map(Collation::as_collator);
    Interval::point(Value::Int64(hash_of(value, collator)))
}
