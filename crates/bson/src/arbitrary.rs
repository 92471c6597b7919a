//! Random values of every type for property tests, leaning towards the edges where types meet.

use proptest::prelude::*;

use crate::{Array, Decimal128, Document, ObjectId, Timestamp, Value};

pub(crate) fn number() -> BoxedStrategy<Value> {
    let edges = prop::sample::select(vec![
        0i64,
        1,
        -1,
        127,
        128,
        -128,
        255,
        256,
        32767,
        32768,
        i32::MAX.into(),
        i32::MIN.into(),
        i64::from(i32::MAX) + 1,
        1 << 53,
        (1 << 53) + 1,
        (1 << 53) - 1,
        i64::MAX,
        i64::MIN,
        i64::MIN + 1,
    ]);
    let decimal_text = (any::<bool>(), 0u128..10u128.pow(34), 0u32..34, -40i32..40, 0u8..10).prop_map(
        |(negative, coefficient, cut, exponent, far)| {
            let exponent = match far {
                0 => exponent * 150,
                1..=4 => exponent,
                _ => -(cut as i32),
            };
            Decimal128::finite(negative, coefficient / 10u128.pow(cut), exponent)
        },
    );
    prop_oneof![
        any::<i32>().prop_map(Value::Int32),
        (-300i32..300).prop_map(Value::Int32),
        edges.clone().prop_map(Value::Int64),
        edges.clone().prop_map(|value| Value::Double(value as f64)),
        edges.prop_map(|value| Value::Decimal128(value.into())),
        any::<i64>().prop_map(Value::Int64),
        any::<u64>().prop_map(|bits| Value::Double(f64::from_bits(bits))),
        (-1000i32..1000, 0u32..8).prop_map(|(n, p)| Value::Double(f64::from(n) / f64::from(1 << p))),
        (-1000i64..1000, 0i32..3).prop_map(|(n, e)| Value::Decimal128(Decimal128::finite(
            n < 0,
            n.unsigned_abs().into(),
            -e
        ))),
        any::<f64>().prop_map(|value| Value::Decimal128(Decimal128::from_f64_all_digits(value))),
        decimal_text.prop_map(Value::Decimal128),
        any::<[u8; 16]>().prop_map(|bytes| Value::Decimal128(Decimal128::from_bytes(bytes))),
        prop::sample::select(vec![0.1, -0.1, 0.0, -0.0, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY])
            .prop_map(Value::Double),
    ]
    .boxed()
}

fn text() -> BoxedStrategy<String> {
    prop_oneof!["[ab\\x00\\x01\\x02é]{0,4}", "\\PC{0,8}"].boxed()
}

/// The options of a regular expression, in the order that text brings them into.
fn options() -> impl Strategy<Value = String> {
    prop::sample::subsequence(vec!['i', 'l', 'm', 's', 'u', 'x', 'é'], 0..4).prop_map(String::from_iter)
}

fn name() -> BoxedStrategy<String> {
    "[ab\\x01é]{0,2}".boxed()
}

pub(crate) fn document(value: BoxedStrategy<Value>) -> BoxedStrategy<Document> {
    prop::collection::vec((name(), value), 0..4)
        .prop_map(|fields| fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect())
        .boxed()
}

/// Any value, nested a few levels.
pub(crate) fn value() -> BoxedStrategy<Value> {
    let id = || any::<[u8; 12]>().prop_map(ObjectId::from_bytes);
    let leaf = prop_oneof![
        6 => number(),
        4 => text().prop_map(Value::String),
        1 => text().prop_map(Value::Symbol),
        1 => (prop::sample::select(vec![0u8, 2, 5, 128]), prop::collection::vec(any::<u8>(), 0..7))
            .prop_map(|(subtype, bytes)| Value::Binary { subtype, bytes }),
        1 => (0u8..3, 250usize..260).prop_map(|(fill, n)| Value::Binary { subtype: 0, bytes: vec![fill; n] }),
        1 => Just(Value::Undefined),
        1 => id().prop_map(Value::ObjectId),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<i64>().prop_map(Value::DateTime),
        1 => Just(Value::Null),
        1 => (name(), options()).prop_map(|(pattern, options)| Value::Regex { pattern, options }),
        1 => (text(), id()).prop_map(|(namespace, id)| Value::DbPointer { namespace, id }),
        1 => text().prop_map(Value::JavaScript),
        1 => any::<u64>().prop_map(|bits| Value::Timestamp(Timestamp::from_bits(bits))),
        1 => Just(Value::MaxKey),
        1 => Just(Value::MinKey),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            2 => document(inner.clone()).prop_map(Value::Document),
            2 => prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| Value::Array(values.into_iter().collect::<Array>())),
            1 => (text(), document(inner)).prop_map(|(code, scope)| Value::JavaScriptWithScope { code, scope }),
        ]
        .boxed()
    })
    .boxed()
}
