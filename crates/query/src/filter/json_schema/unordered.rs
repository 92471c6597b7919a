//! Equality for which the order of an object's fields does not count, as `enum` and `uniqueItems` have it.

use std::cmp::Ordering;

use kilim_bson::{RawDocument, RawValue, compare};

/// Whether two values are equal, with fields in any order at every depth.
pub(super) fn equal(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    match (left, right) {
        (RawValue::Document(left), RawValue::Document(right)) => equal_documents(left, right),
        (RawValue::Array(left), RawValue::Array(right)) => {
            let (mut left, mut right) = (left.iter(), right.iter());
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return true,
                    (Some(left), Some(right)) if equal(left, right) => {}
                    _ => return false,
                }
            }
        }
        _ => compare(left, right) == Ordering::Equal,
    }
}

/// An order by which values are equal exactly where [`equal`] says so.
pub(super) fn order(left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    match (left, right) {
        (RawValue::Document(left), RawValue::Document(right)) => {
            let (left, right) = (sorted(left), sorted(right));
            let differing = left.iter().zip(&right).find_map(|((name, value), (other, against))| {
                Some(name.cmp(other).then_with(|| order(*value, *against))).filter(|order| order.is_ne())
            });
            differing.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (RawValue::Array(left), RawValue::Array(right)) => {
            let (mut left, mut right) = (left.iter(), right.iter());
            loop {
                match (left.next(), right.next()) {
                    (Some(left), Some(right)) => match order(left, right) {
                        Ordering::Equal => {}
                        differing => return differing,
                    },
                    (left, right) => return left.is_some().cmp(&right.is_some()),
                }
            }
        }
        _ => compare(left, right),
    }
}

fn sorted(document: RawDocument<'_>) -> Vec<(&str, RawValue<'_>)> {
    let mut fields: Vec<(&str, RawValue<'_>)> = document.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

fn equal_documents(left: RawDocument<'_>, right: RawDocument<'_>) -> bool {
    let (mut fields, mut others) = (left.iter(), right.iter());
    // Written in the same order, as most are, they need no search.
    loop {
        match (fields.next(), others.next()) {
            (None, None) => return true,
            (Some((name, value)), Some((other, against))) if name == other && equal(value, against) => {}
            (Some(_), Some(_)) => break,
            _ => return false,
        }
    }
    left.iter().count() == right.iter().count()
        && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| equal(value, other)))
}
