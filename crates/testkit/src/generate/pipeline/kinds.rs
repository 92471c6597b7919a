//! Kinds of values, and shapes of documents: what the generator believes about the data it writes questions for.
//!
//! A belief, not a promise: fields are missing or null now and then, and in some histories of another type.

use kilim_bson::{Array, Document, Value};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::super::values::scalar;
use crate::shell::parse;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A small whole number of any numeric type.
    Int,
    /// Any number, NaN and the infinities among them.
    Num,
    Str,
    Date,
    Bool,
    Id,
    Bytes,
    Stamp,
    Any,
    Array(Box<Kind>),
    Object(Shape),
}

/// Fields and their kinds, in order.
pub(super) type Shape = Vec<(String, Kind)>;

impl Kind {
    pub fn array(of: Kind) -> Kind {
        Kind::Array(Box::new(of))
    }

    /// Whether a value of this kind serves where the other is asked for.
    pub fn serves(&self, asked: &Kind) -> bool {
        match (self, asked) {
            (_, Kind::Any) | (Kind::Int, Kind::Num) | (Kind::Object(_), Kind::Object(_)) => true,
            (Kind::Array(of), Kind::Array(asked)) => of.serves(asked),
            _ => self == asked,
        }
    }
}

/// What every collection holds. Few keys and few values, so that they meet.
pub(super) fn base() -> Shape {
    let inner = || {
        vec![
            field("i", Kind::Int),
            field("s", Kind::Str),
            field("n", Kind::Num),
            field("d", Kind::Date),
            field("x", Kind::Any),
        ]
    };
    let mut nested = inner();
    nested.push(field("a", Kind::array(Kind::Int)));
    nested.push(field("o", Kind::Object(inner())));
    vec![
        field("_id", Kind::Int),
        field("k", Kind::Int),
        field("p", Kind::Int),
        field("i", Kind::Int),
        field("n", Kind::Num),
        field("m", Kind::Num),
        field("s", Kind::Str),
        field("t", Kind::Str),
        field("d", Kind::Date),
        field("e", Kind::Date),
        field("f", Kind::Bool),
        field("a", Kind::array(Kind::Int)),
        field("b", Kind::array(Kind::Num)),
        field("c", Kind::array(Kind::Str)),
        field("o", Kind::Object(nested)),
        field("r", Kind::array(Kind::Object(inner()))),
        field("h", Kind::Id),
        field("u", Kind::Bytes),
        field("w", Kind::Stamp),
        field("x", Kind::Any),
    ]
}

fn field(name: &str, kind: Kind) -> (String, Kind) {
    (name.to_owned(), kind)
}

/// A document of the shape with the given `_id`. `odd` is the share of values of another kind.
pub(super) fn document(random: &mut StdRng, id: i32, shape: &Shape, odd: f64) -> Document {
    let mut document = Document::new();
    document.push("_id", id);
    for (name, kind) in shape.iter().filter(|(name, _)| name != "_id") {
        if random.random_bool(0.7) {
            document.push(name, value(random, kind, odd));
        }
    }
    document
}

pub(super) fn value(random: &mut StdRng, kind: &Kind, odd: f64) -> Value {
    if random.random_bool(0.05) {
        return Value::Null;
    }
    if odd > 0.0 && random.random_bool(odd) {
        return anything(random);
    }
    literal(random, kind, odd)
}

/// A value of any type but those that mongod turns into others in some plans: a JavaScript text into a plain one,
/// the ends of the order into documents.
fn anything(random: &mut StdRng) -> Value {
    loop {
        let value = scalar(random);
        if !matches!(value, Value::JavaScript(_) | Value::MinKey | Value::MaxKey) {
            return value;
        }
    }
}

/// A value of the kind.
pub(super) fn literal(random: &mut StdRng, kind: &Kind, odd: f64) -> Value {
    match kind {
        Kind::Int => match random.random_range(0..12) {
            0 => Value::Int64(random.random_range(0..7)),
            1 => Value::Double(f64::from(random.random_range(0..7))),
            2 => pick(random, &["NumberDecimal('2')", "NumberDecimal('3.0')"]),
            3 => Value::Int32(-1),
            _ => Value::Int32(random.random_range(0..7)),
        },
        Kind::Num => match random.random_range(0..10) {
            0..3 => Value::Int32(random.random_range(-3..20)),
            3..6 => Value::Double(f64::from(random.random_range(-6..20)) / 4.0),
            _ => pick(random, NUMBERS),
        },
        Kind::Str => pick(random, STRINGS),
        Kind::Date => pick(random, DATES),
        Kind::Bool => Value::Bool(random.random_bool(0.5)),
        Kind::Id => pick(random, IDS),
        Kind::Bytes => pick(random, BYTES),
        Kind::Stamp => pick(random, STAMPS),
        Kind::Any => match random.random_range(0..8) {
            0 => literal(random, &Kind::array(Kind::Any), odd),
            1 => literal(random, &Kind::Object(vec![field("i", Kind::Int), field("x", Kind::Str)]), odd),
            2 => literal(random, &Kind::Num, odd),
            3 => literal(random, &Kind::Str, odd),
            _ => anything(random),
        },
        Kind::Array(of) => {
            let count = random.random_range(0..5);
            Value::Array((0..count).map(|_| value(random, of, odd)).collect::<Array>())
        }
        Kind::Object(shape) => {
            let mut object = Document::new();
            for (name, kind) in shape {
                if random.random_bool(0.7) {
                    object.push(name, value(random, kind, odd));
                }
            }
            Value::Document(object)
        }
    }
}

pub(super) fn pick(random: &mut StdRng, pool: &[&str]) -> Value {
    parse(pool.choose(random).expect("a pool is not empty")).expect("a pool is valid")
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2147483647",
    "-2147483648",
    "Long(5)",
    "Long(2147483648)",
    "Long(-3)",
    "Long(1099511627776)",
    "Long(9007199254740993)",
    "Long(9223372036854775807)",
    "0.1",
    "0.5",
    "2.5",
    "-2.5",
    "3.0",
    "-0.0",
    "1e10",
    "1e300",
    "1e-7",
    "NaN",
    "Infinity",
    "-Infinity",
    "NumberDecimal('0.1')",
    "NumberDecimal('2.50')",
    "NumberDecimal('-7')",
    "NumberDecimal('1E+3')",
    "NumberDecimal('123456789.123456789')",
    "NumberDecimal('NaN')",
    "NumberDecimal('Infinity')",
];

const STRINGS: &[&str] = &[
    "''",
    "'a'",
    "'ab'",
    "'Ab'",
    "'b'",
    "'abc abc'",
    "'  x '",
    "'a,b,c'",
    "'äöÜ'",
    "'日本語'",
    "'😀x'",
    "'12'",
    "'-3.5'",
    "'x.y'",
    "'2024-02-29'",
    "'2023-07-01T12:30:45.678Z'",
    "'$a'",
    "'line\\nend'",
    "'foo123bar'",
    "'5ab9cbfa31c2ab715d42129e'",
];

const DATES: &[&str] = &[
    "ISODate('2024-01-15T00:00:00Z')",
    "ISODate('2024-02-29T23:59:59.999Z')",
    "ISODate('2023-12-31T22:30:00Z')",
    "ISODate('2021-01-03T10:20:30.400Z')",
    "ISODate('2020-07-04T12:00:00Z')",
    "ISODate('2016-03-27T01:30:00Z')",
    "ISODate('2019-11-03T06:15:00Z')",
    "ISODate('2000-01-01T00:00:00Z')",
    "ISODate('1999-12-31T23:59:59Z')",
    "ISODate('1970-01-01T00:00:00Z')",
    "ISODate('1969-12-31T23:59:59.999Z')",
    "ISODate('1985-10-26T09:00:00Z')",
    "ISODate('2037-06-15T08:07:06.005Z')",
    "ISODate('2100-03-01T00:00:00Z')",
];

const IDS: &[&str] = &[
    "ObjectId('5ab9cbfa31c2ab715d42129e')",
    "ObjectId('000000000000000000000001')",
    "ObjectId('65a4a8000000000000000000')",
];

const BYTES: &[&str] = &[
    "BinData(0, 'AAECAw==')",
    "BinData(0, '')",
    "BinData(2, 'AgAAAGhp')",
    "UUID('00010203-0405-0607-0809-0a0b0c0d0e0f')",
];

const STAMPS: &[&str] = &["Timestamp(1, 1)", "Timestamp(1700000000, 7)", "Timestamp(4294967295, 4294967295)"];
