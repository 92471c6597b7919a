//! Random values from small pools, so that they often meet.

use kilim_bson::{Array, Document, ObjectId, Timestamp, Value};
use rand::Rng;
use rand::seq::IndexedRandom;

use crate::shell::parse;

/// Field names of generated documents.
pub(super) const FIELDS: [&str; 4] = ["a", "b", "c", "d"];

/// Paths that lead through documents, arrays and neither.
pub(super) const PATHS: [&str; 14] =
    ["a", "b", "c", "d", "a.b", "b.c", "a.0", "a.b.c", "b.0.a", "_id", "c.d", "d.1", "a.b.0", "c.0.0"];

const SCALARS: [&str; 43] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "2147483647",
    "Long(1)",
    "Long(2)",
    "Long(9223372036854775807)",
    "1.0",
    "1.5",
    "2.0",
    "-0.0",
    "NaN",
    "Infinity",
    "1e300",
    "NumberDecimal(\"1\")",
    "NumberDecimal(\"1.50\")",
    "NumberDecimal(\"NaN\")",
    "NumberDecimal(\"-1E+3\")",
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"B\"",
    "null",
    "null",
    "true",
    "false",
    "ObjectId(\"000000000000000000000001\")",
    "ISODate(\"2024-01-15T00:00:00Z\")",
    "Timestamp(1, 1)",
    "BinData(0, \"AAE=\")",
    "/^a/",
    "MinKey",
    "MaxKey",
    "undefined",
    "Code(\"a\")",
    "0.1",
    "NumberDecimal(\"0.1\")",
    "Long(-9223372036854775808)",
    "{}",
    "[]",
];

pub(super) fn scalar(random: &mut impl Rng) -> Value {
    let text = SCALARS.choose(random).expect("the pool is not empty");
    parse(text).expect("the pool is valid")
}

/// A plain number: what arithmetic takes.
pub(super) fn number(random: &mut impl Rng) -> Value {
    match random.random_range(0..5) {
        0 => Value::Int64(random.random_range(-3..10)),
        1 => Value::Double(f64::from(random.random_range(-6..20)) / 2.0),
        2 => parse(["NumberDecimal(\"1.5\")", "NumberDecimal(\"0.10\")"].choose(random).expect("two"))
            .expect("valid"),
        _ => Value::Int32(random.random_range(-3..10)),
    }
}

pub(super) fn value(random: &mut impl Rng, depth: usize) -> Value {
    match random.random_range(0..10) {
        0..2 if depth > 0 => Value::Document(document(random, depth - 1)),
        2..4 if depth > 0 => {
            let count = random.random_range(0..4);
            Value::Array((0..count).map(|_| value(random, depth - 1)).collect::<Array>())
        }
        4..7 => Value::Int32(random.random_range(0..6)),
        _ => scalar(random),
    }
}

/// A document of a few fields in random order.
pub(super) fn document(random: &mut impl Rng, depth: usize) -> Document {
    let mut names: Vec<&str> = FIELDS.to_vec();
    names.retain(|_| random.random_bool(0.6));
    if random.random_bool(0.3) {
        names.reverse();
    }
    names.into_iter().map(|name| (name, value(random, depth))).collect()
}

pub(super) fn path(random: &mut impl Rng) -> &'static str {
    PATHS.choose(random).expect("the pool is not empty")
}

/// An `_id` among few, of several types.
pub(super) fn id(random: &mut impl Rng) -> Value {
    match random.random_range(0..12) {
        0 => Value::String("id".to_owned()),
        1 => Value::ObjectId(ObjectId::from_bytes([1; 12])),
        2 => Value::Double(2.5),
        3 => Value::Timestamp(Timestamp { seconds: 1, increment: 1 }),
        _ => Value::Int32(random.random_range(0..12)),
    }
}
