//! Whether a filter implies a partial index's filter, so that no match is missing from the index.
//!
//! The test is one-sided: a "no" may be wrong and only costs a scan. It knows what MongoDB knows:
//! comparisons that narrow comparisons, equality that satisfies a predicate, `$exists`, `$type`, `$and` and
//! `$or`.

use kilim_bson::{RawValue, identical};
use kilim_query::filter::{Comparison, Filter, Predicate};

use crate::bounds::{PartTraits, Texts, Tightness, bounds_of};

/// Whether every document that `filter` selects is also selected by `condition`, which compares texts as its index
/// does.
pub fn implies(filter: &Filter, condition: &Filter, texts: Texts<'_>) -> bool {
    match (filter, condition) {
        (_, Filter::True) | (Filter::False, _) => true,
        (_, Filter::And(parts)) => parts.iter().all(|part| implies(filter, part, texts)),
        (Filter::Or(branches), _) => branches.iter().all(|branch| implies(branch, condition, texts)),
        (Filter::And(conjuncts), _) => {
            conjuncts.iter().any(|conjunct| implies(conjunct, condition, texts))
                || matches!(condition, Filter::Or(branches) if branches.iter().any(|branch| implies(filter, branch, texts)))
        }
        (_, Filter::Or(branches)) => branches.iter().any(|branch| implies(filter, branch, texts)),
        (Filter::Field { path, predicate }, Filter::Field { path: wanted, predicate: condition }) => {
            path == wanted && predicate_implies(predicate, condition, texts)
        }
        _ => false,
    }
}

fn predicate_implies(predicate: &Predicate, condition: &Predicate, texts: Texts<'_>) -> bool {
    match (predicate, condition) {
        (Predicate::Compare(comparison, value), Predicate::Exists) => {
            // Only a comparison with null, or with the ends of the order, is satisfied by a missing field.
            match value.as_raw() {
                RawValue::Null | RawValue::Undefined => false,
                RawValue::MinKey | RawValue::MaxKey => *comparison == Comparison::Eq,
                _ => true,
            }
        }
        (Predicate::In(list), Predicate::Exists) => !list.has_null(),
        (
            Predicate::Regex(_)
            | Predicate::Type(_)
            | Predicate::Mod { .. }
            | Predicate::Size(_)
            | Predicate::Bits(_)
            | Predicate::ElemMatchObject(_)
            | Predicate::ElemMatchValue(_)
            | Predicate::Exists,
            Predicate::Exists,
        ) => true,
        (Predicate::Not(negated), Predicate::Exists) => {
            matches!(&**negated, Predicate::Compare(Comparison::Eq, value) if matches!(value.as_raw(), RawValue::Null))
        }
        // What satisfies the one does not satisfy the other, so what does not satisfy the other does not satisfy the one.
        (Predicate::Not(ours), Predicate::Not(theirs)) => predicate_implies(theirs, ours, texts),
        (Predicate::Type(ours), Predicate::Type(theirs)) => ours.types().all(|kind| theirs.contains(kind)),
        (
            Predicate::Compare(..) | Predicate::In(_),
            Predicate::Compare(..) | Predicate::In(_) | Predicate::Type(_),
        ) => {
            let allowed = texts.allow(predicate) && texts.allow(condition);
            allowed && (same(predicate, condition) || within(predicate, condition, texts))
        }
        _ => false,
    }
}

/// Some value satisfies `predicate`, and that value also satisfies `condition`: bounds that are exact say so.
fn within(predicate: &Predicate, condition: &Predicate, texts: Texts<'_>) -> bool {
    let part =
        PartTraits { texts, multikey: true, dotted: true, sparse: true, single: false, element: false };
    match (bounds_of(predicate, part), bounds_of(condition, part)) {
        (Some(ours), Some(theirs)) => {
            ours.tightness == Tightness::Exact
                && theirs.tightness == Tightness::Exact
                && ours.intervals.is_within(&theirs.intervals)
        }
        _ => false,
    }
}

fn same(predicate: &Predicate, condition: &Predicate) -> bool {
    match (predicate, condition) {
        (Predicate::Compare(a, left), Predicate::Compare(b, right)) => {
            a == b && identical(left.as_raw(), right.as_raw())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_bson::{Document, doc};

    fn check(filter: Document, condition: Document, expected: bool) {
        let parse = |document: &Document| Filter::parse(document.as_raw()).expect("a filter");
        assert_eq!(
            implies(&parse(&filter), &parse(&condition), Texts { collation: None, agree: true }),
            expected,
            "{filter:?} implies {condition:?}"
        );
    }

    #[test]
    fn a_filter_implies_what_its_values_satisfy() {
        check(doc! {"b": 5}, doc! {"b": {"$gt": 3}}, true);
        check(doc! {"b": 3}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"b": {"$gte": 4}}, doc! {"b": {"$gt": 3}}, true);
        check(doc! {"b": {"$gte": 3}}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"b": {"$gt": 3}, "a": 1}, doc! {"b": {"$gt": 3}}, true);
        check(doc! {"b": "x"}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"b": {"$in": [4, 5]}}, doc! {"b": {"$gt": 3}}, true);
        check(doc! {"b": {"$in": [3, 5]}}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"b": 5}, doc! {"b": {"$exists": true}}, true);
        check(doc! {"b": null}, doc! {"b": {"$exists": true}}, false);
        check(doc! {"b": {"$ne": null}}, doc! {"b": {"$exists": true}}, true);
        check(doc! {"b": {"$ne": 3}}, doc! {"b": {"$exists": true}}, false);
        check(doc! {"b": null}, doc! {"b": null}, true);
        check(doc! {"$or": [{"b": 5}, {"b": 7}]}, doc! {"b": {"$gt": 3}}, true);
        check(doc! {"$or": [{"b": 5}, {"a": 7}]}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"a": 1}, doc! {"$or": [{"a": 1}, {"b": 1}]}, true);
        check(doc! {"a": 1, "b": 1}, doc! {"a": 1, "b": {"$gt": 0}}, true);
        check(doc! {"b": {"$type": "int"}}, doc! {"b": {"$type": "number"}}, true);
        check(doc! {}, doc! {"b": {"$gt": 3}}, false);
        check(doc! {"b": {"$not": {"$gt": 3}}}, doc! {"b": {"$not": {"$gt": 5}}}, true);
        check(doc! {"b": {"$not": {"$gt": 5}}}, doc! {"b": {"$not": {"$gt": 3}}}, false);
    }
}
