//! Random filters, sorts and projections.

use kilim_bson::{Array, Document, Value, doc};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::values::{document, path, scalar, value};

pub(super) fn filter(random: &mut impl Rng, depth: usize) -> Document {
    let mut filter = Document::new();
    for _ in 0..*[0, 1, 1, 1, 2, 2].choose(random).expect("not empty") {
        if depth > 0 && random.random_bool(0.2) {
            let operator = ["$and", "$or", "$nor"].choose(random).expect("three");
            let count = random.random_range(1..4);
            let clauses: Array =
                (0..count).map(|_| Value::Document(self::filter(random, depth - 1))).collect();
            if filter.get(operator).is_none() {
                filter.push(operator, clauses);
            }
            continue;
        }
        let path = path(random);
        if filter.get(path).is_none() {
            let condition = condition(random, depth);
            filter.push(path, condition);
        }
    }
    filter
}

fn condition(random: &mut impl Rng, depth: usize) -> Value {
    if random.random_bool(0.35) {
        return value(random, 1);
    }
    let mut condition = Document::new();
    for _ in 0..random.random_range(1..3) {
        let (name, operand) = operator(random, depth);
        if condition.get(name).is_none() {
            condition.push(name, operand);
        }
    }
    Value::Document(condition)
}

fn operator(random: &mut impl Rng, depth: usize) -> (&'static str, Value) {
    let list = |random: &mut _| -> Value {
        let count = Rng::random_range(random, 0..4);
        Value::Array((0..count).map(|_| value(random, 1)).collect::<Array>())
    };
    match random.random_range(0..22) {
        0 => ("$eq", value(random, 1)),
        1 => ("$ne", value(random, 1)),
        2 | 3 => ("$gt", bound(random)),
        4 => ("$gte", bound(random)),
        5 | 6 => ("$lt", bound(random)),
        7 => ("$lte", bound(random)),
        8 | 9 => ("$in", list(random)),
        10 => ("$nin", list(random)),
        11 | 12 => ("$exists", Value::Bool(random.random_bool(0.5))),
        13 => {
            let names = ["number", "string", "array", "object", "null", "double", "int", "decimal", "bool"];
            let mut name = || Value::String((*names.choose(random).expect("not empty")).to_owned());
            let (one, other) = (name(), name());
            ("$type", if random.random_bool(0.7) { one } else { Value::from(vec![one, other]) })
        }
        14 => ("$size", Value::Int32(random.random_range(0..4))),
        15 => ("$all", list(random)),
        16 | 17 if depth > 0 => {
            let inner = if random.random_bool(0.5) {
                filter(random, depth - 1)
            } else {
                doc! {"$gte": scalar(random), "$lt": scalar(random)}
            };
            ("$elemMatch", Value::Document(inner))
        }
        18 => (
            "$mod",
            Value::from(vec![
                Value::Int32(random.random_range(1..4)),
                Value::Int32(random.random_range(0..3)),
            ]),
        ),
        19 => (
            "$regex",
            Value::String((*["^a", "b$", "A", ".", "^"].choose(random).expect("not empty")).to_owned()),
        ),
        20 => {
            let names = ["$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear"];
            (names.choose(random).expect("four"), Value::Int32(random.random_range(0..8)))
        }
        _ if depth > 0 => {
            let (name, operand) = operator(random, depth - 1);
            ("$not", Value::Document([(name, operand)].into_iter().collect()))
        }
        _ => ("$eq", scalar(random)),
    }
}

/// A value but for the two ends of the order: what lies between them depends on the plan on mongod, where a
/// path leads through an empty array.
fn bound(random: &mut impl Rng) -> Value {
    loop {
        let value = value(random, 1);
        if !matches!(value, Value::MinKey | Value::MaxKey) {
            return value;
        }
    }
}

/// Up to two keys and then `_id`, so that the order is total.
pub(super) fn sort(random: &mut impl Rng) -> Document {
    let mut sort = Document::new();
    for _ in 0..random.random_range(0..3) {
        let path = path(random);
        if path != "_id" && !sort.iter().any(|(name, _)| overlap(name, path)) {
            sort.push(path, if random.random_bool(0.5) { 1 } else { -1 });
        }
    }
    sort.push("_id", if random.random_bool(0.8) { 1 } else { -1 });
    sort
}

/// Whether one path leads through the other.
pub(super) fn overlap(left: &str, right: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    inside(left, right) || inside(right, left)
}

pub(super) fn projection(random: &mut impl Rng) -> Document {
    let mut projection = Document::new();
    let inclusion = random.random_bool(0.5);
    for _ in 0..random.random_range(0..4) {
        let path = path(random);
        if projection.iter().any(|(name, _)| overlap(name, path)) {
            continue;
        }
        match random.random_range(0..8) {
            0 if random.random_bool(0.3) => {
                let (skip, limit) = (random.random_range(-3..4), random.random_range(1..3));
                projection.push(path, doc! {"$slice": [skip, limit]});
            }
            0 => projection.push(path, doc! {"$slice": random.random_range(-3..4)}),
            1 if !path.contains('.') => projection.push(path, doc! {"$elemMatch": filter(random, 1)}),
            // Of a longer path, mongod takes other fields with the last name for its end.
            2 if !path.contains('.') && random.random_bool(0.4) => {
                projection.push(&format!("{path}.$"), 1);
            }
            _ => projection.push(path, i32::from(inclusion)),
        }
    }
    if random.random_bool(0.2) && projection.get("_id").is_none() {
        projection.push("_id", 0);
    }
    projection
}

/// A replacement: a document without an `_id`.
pub(super) fn replacement(random: &mut impl Rng) -> Document {
    document(random, 2)
}
