//! Filters against documents. Every expectation is what mongod answers.

use kilim_bson::{Decimal128, Document, Value, doc};

use super::Filter;

fn regex(pattern: &str, options: &str) -> Value {
    Value::Regex { pattern: pattern.into(), options: options.into() }
}

fn binary(bytes: &[u8]) -> Value {
    Value::Binary { subtype: 0, bytes: bytes.to_vec() }
}

fn decimal(text: &str) -> Decimal128 {
    Decimal128::parse(text).expect("a decimal")
}

/// Each filter with the documents that it matches and those that it does not.
fn check(cases: &[(Document, Vec<Document>, Vec<Document>)]) {
    for (filter, matching, others) in cases {
        let parsed = Filter::parse(filter.as_raw()).expect("a filter");
        for document in matching {
            assert!(parsed.matches(document.as_raw()), "{filter:?} on {document:?}");
        }
        for document in others {
            assert!(!parsed.matches(document.as_raw()), "{filter:?} not on {document:?}");
        }
    }
}

#[test]
fn a_value_equals_itself_whatever_its_number_type() {
    check(&[
        (
            doc! {"a": 1},
            vec![
                doc! {"a": 1},
                doc! {"a": 1.0},
                doc! {"a": 1i64},
                doc! {"a": decimal("1")},
                doc! {"a": decimal("1.0")},
            ],
            vec![doc! {"a": 2}, doc! {"a": "1"}, doc! {"a": true}, doc! {}],
        ),
        (
            doc! {"a": f64::NAN},
            vec![doc! {"a": f64::NAN}, doc! {"a": decimal("NaN")}],
            vec![doc! {"a": 1}, doc! {}],
        ),
        (doc! {"a": "x"}, vec![doc! {"a": "x"}, doc! {"a": ["y", "x"]}], vec![doc! {"a": "X"}]),
        (
            doc! {"a": regex("x", "i")},
            vec![doc! {"a": regex("x", "i")}, doc! {"a": "aXb"}],
            vec![doc! {"a": regex("x", "")}, doc! {"a": "b"}],
        ),
        (doc! {"a": {"$eq": regex("x", "")}}, vec![doc! {"a": regex("x", "")}], vec![doc! {"a": "x"}]),
    ]);
}

#[test]
fn arrays_are_traversed_and_compared_whole() {
    check(&[
        (doc! {"a": 1}, vec![doc! {"a": [1, 2]}], vec![doc! {"a": [2]}, doc! {"a": [[1]]}, doc! {"a": []}]),
        (
            doc! {"a": [1, 2]},
            vec![doc! {"a": [1, 2]}, doc! {"a": [[1, 2], 3]}],
            vec![doc! {"a": [2, 1]}, doc! {"a": [1, 2, 3]}, doc! {"a": 1}],
        ),
        (doc! {"a": []}, vec![doc! {"a": []}, doc! {"a": [[]]}], vec![doc! {"a": [1]}, doc! {}]),
        (doc! {"a": {"$gt": 1}}, vec![doc! {"a": [0, 2]}], vec![doc! {"a": [0, 1]}, doc! {"a": [[2]]}]),
        (doc! {"a": {"$gt": 1, "$lt": 0}}, vec![doc! {"a": [2, -1]}], vec![doc! {"a": [2]}]),
        (
            doc! {"a": {"$gt": [1]}},
            vec![doc! {"a": [2]}, doc! {"a": [1, 0]}, doc! {"a": [[3]]}],
            vec![doc! {"a": [0]}, doc! {"a": 2}],
        ),
    ]);
}

#[test]
fn null_matches_missing_and_undefined_fields() {
    check(&[
        (
            doc! {"a": null},
            vec![doc! {"a": null}, doc! {}, doc! {"a": [null]}],
            vec![doc! {"a": 0}, doc! {"a": []}, doc! {"a": [1]}],
        ),
        (
            doc! {"a.b": null},
            vec![
                doc! {"a": {}},
                doc! {"a": {"b": null}},
                doc! {"a": 1},
                doc! {"a": [{}]},
                doc! {"a": [{"b": 1}, {}]},
                doc! {},
            ],
            vec![doc! {"a": []}, doc! {"a": [1]}, doc! {"a": [{"b": 1}]}, doc! {"a": [[]]}],
        ),
        (
            doc! {"a": {"$ne": null}},
            vec![doc! {"a": 1}],
            vec![doc! {}, doc! {"a": null}, doc! {"a": [null, 1]}],
        ),
        (doc! {"a": {"$gte": null}}, vec![doc! {"a": null}, doc! {}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$gt": null}}, vec![], vec![doc! {"a": null}, doc! {}]),
        (doc! {"a": {"$in": [null]}}, vec![doc! {}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$in": [null, 2]}}, vec![doc! {}, doc! {"a": null}, doc! {"a": 2}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$exists": true}}, vec![doc! {"a": null}, doc! {"a": []}], vec![doc! {}]),
        (doc! {"a": {"$exists": false}}, vec![doc! {}], vec![doc! {"a": null}]),
        (
            doc! {"a.b": {"$exists": false}},
            vec![doc! {"a": []}, doc! {"a": [1]}],
            vec![doc! {"a": [{"b": 1}]}],
        ),
    ]);
}

#[test]
fn comparison_stays_within_a_type_bracket() {
    check(&[
        (
            doc! {"a": {"$gt": 5}},
            vec![doc! {"a": 6}, doc! {"a": 1099511627776i64}, doc! {"a": decimal("5.1")}],
            vec![doc! {"a": "x"}, doc! {"a": null}, doc! {"a": {"x": 9}}, doc! {"a": f64::NAN}],
        ),
        (doc! {"a": {"$lt": "b"}}, vec![doc! {"a": "a"}], vec![doc! {"a": 1}, doc! {"a": "c"}]),
        (
            doc! {"a": {"$lt": Value::MaxKey}},
            vec![doc! {"a": 1}, doc! {}, doc! {"a": []}],
            vec![doc! {"a": Value::MaxKey}],
        ),
        (doc! {"a": {"$gt": Value::MinKey}}, vec![doc! {"a": 1}, doc! {}], vec![doc! {"a": Value::MinKey}]),
        (doc! {"a": {"$gte": Value::MaxKey}}, vec![doc! {"a": Value::MaxKey}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$lte": f64::NAN}}, vec![doc! {"a": f64::NAN}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$lt": f64::NAN}}, vec![], vec![doc! {"a": f64::NAN}, doc! {"a": f64::NEG_INFINITY}]),
        (
            doc! {"a": {"$lt": 5}},
            vec![doc! {"a": f64::NEG_INFINITY}, doc! {"a": 4.9}],
            vec![doc! {"a": f64::NAN}],
        ),
        (
            doc! {"a": {"$lt": {"x": 2}}},
            vec![doc! {"a": {"x": 1}}, doc! {"a": {}}, doc! {"a": {"w": 9}}],
            vec![doc! {"a": {"y": 1}}],
        ),
        (doc! {"a": true}, vec![doc! {"a": true}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$lt": true}}, vec![doc! {"a": false}], vec![doc! {"a": 0}]),
        (
            doc! {"a": {"$gt": Value::DateTime(1577836800000)}},
            vec![doc! {"a": Value::DateTime(1609459200000)}],
            vec![doc! {"a": 2000000000000i64}],
        ),
    ]);
}

#[test]
fn documents_compare_in_field_order() {
    check(&[
        (
            doc! {"a": {"x": 1, "y": 2}},
            vec![
                doc! {"a": {"x": 1, "y": 2}},
                doc! {"a": {"x": 1.0, "y": 2}},
                doc! {"a": [{"x": 1, "y": 2}]},
            ],
            vec![doc! {"a": {"y": 2, "x": 1}}, doc! {"a": {"x": 1}}],
        ),
        (doc! {"a": {}}, vec![doc! {"a": {}}], vec![doc! {"a": {"x": 1}}, doc! {}]),
    ]);
}

#[test]
fn paths_go_through_documents_arrays_and_indexes() {
    check(&[
        (
            doc! {"a.b": 1},
            vec![
                doc! {"a": {"b": 1}},
                doc! {"a": [{"b": 1}]},
                doc! {"a": [{"b": [1]}]},
                doc! {"a": {"b": [2, 1]}},
            ],
            vec![doc! {"a": [[{"b": 1}]]}],
        ),
        (
            doc! {"a.0": 1},
            vec![doc! {"a": [1, 2]}, doc! {"a": {"0": 1}}, doc! {"a": [{"0": 1}]}],
            vec![doc! {"a": [2, 1]}, doc! {"a": [[1]]}],
        ),
        (
            doc! {"a.0.b": 1},
            vec![
                doc! {"a": [{"b": 1}]},
                doc! {"a": {"0": {"b": 1}}},
                doc! {"a": [{"0": {"b": 1}}]},
                doc! {"a": [[{"b": 1}]]},
            ],
            vec![doc! {"a": [{"b": 2}, {"b": 1}]}],
        ),
        (doc! {"a.b.1": 5}, vec![doc! {"a": [{"b": [4, 5]}]}, doc! {"a": {"b": {"1": 5}}}], vec![]),
        (doc! {"a.0.0": 1}, vec![doc! {"a": [[1]]}, doc! {"a": [{"0": 1}]}], vec![]),
        (doc! {"a.00": 1}, vec![doc! {"a": {"00": 1}}], vec![doc! {"a": [1]}]),
        (doc! {"a.0": [1]}, vec![doc! {"a": [[1]]}], vec![doc! {"a": [1]}]),
        (doc! {"a.0": {"$size": 1}}, vec![doc! {"a": [[7]]}], vec![doc! {"a": [7]}]),
        (doc! {"": 1}, vec![doc! {"": 1}], vec![doc! {"a": 1}]),
        (doc! {"a..b": 1}, vec![doc! {"a": {"": {"b": 1}}}], vec![doc! {"a": {"b": 1}}]),
    ]);
}

#[test]
fn in_and_nin_know_values_and_regexes() {
    check(&[
        (
            doc! {"a": {"$in": [1, "x", null]}},
            vec![doc! {"a": 1.0}, doc! {"a": "x"}, doc! {}, doc! {"a": [3, "x"]}],
            vec![doc! {"a": 2}],
        ),
        (
            doc! {"a": {"$in": [regex("^b", ""), 1]}},
            vec![doc! {"a": "bc"}, doc! {"a": 1}, doc! {"a": regex("^b", "")}],
            vec![doc! {"a": "cb"}],
        ),
        (doc! {"a": {"$in": []}}, vec![], vec![doc! {"a": 1}, doc! {}]),
        (doc! {"a": {"$nin": []}}, vec![doc! {"a": 1}, doc! {}], vec![]),
        (doc! {"a": {"$nin": [1, 2]}}, vec![doc! {"a": 3}, doc! {}], vec![doc! {"a": [1, 3]}]),
        (doc! {"a": {"$in": [[1, 2]]}}, vec![doc! {"a": [1, 2]}], vec![doc! {"a": 1}]),
        (
            doc! {"a": {"$nin": [regex("^b", "")]}},
            vec![doc! {"a": "c"}, doc! {"a": 5}],
            vec![doc! {"a": "b"}],
        ),
        (doc! {"a": {"$in": [{"x": 1}]}}, vec![doc! {"a": {"x": 1}}], vec![doc! {"a": {"x": 1, "y": 1}}]),
    ]);
}

#[test]
fn logic_combines_filters() {
    check(&[
        (doc! {"$and": [{"a": 1}, {"b": 2}]}, vec![doc! {"a": 1, "b": 2}], vec![doc! {"a": 1}]),
        (doc! {"$or": [{"a": 1}, {"b": 2}]}, vec![doc! {"a": 1}, doc! {"b": 2}], vec![doc! {}]),
        (doc! {"$nor": [{"a": 1}, {"b": 2}]}, vec![doc! {}], vec![doc! {"a": 1}]),
        (
            doc! {"a": {"$not": {"$gt": 1}}},
            vec![doc! {"a": 1}, doc! {}, doc! {"a": "x"}],
            vec![doc! {"a": 2}, doc! {"a": [0, 2]}],
        ),
        (
            doc! {"a": {"$not": {"$gt": 1, "$lt": 5}}},
            vec![doc! {"a": 9}],
            vec![doc! {"a": 3}, doc! {"a": [0, 9]}],
        ),
        (doc! {"a": {"$not": regex("x", "")}}, vec![doc! {"a": 1}], vec![doc! {"a": "x"}]),
        (doc! {"$alwaysFalse": 1}, vec![], vec![doc! {}]),
        (doc! {"$alwaysTrue": 1}, vec![doc! {}], vec![]),
        (doc! {"$comment": "c"}, vec![doc! {}], vec![]),
        (doc! {"$or": [{}]}, vec![doc! {}], vec![]),
        (doc! {"$nor": [{}]}, vec![], vec![doc! {}]),
        (
            doc! {"$or": [{"a": 1}, {"a": regex("^x", "")}]},
            vec![doc! {"a": 1}, doc! {"a": "xy"}],
            vec![doc! {"a": "y"}],
        ),
        (doc! {"a": {"$not": {"$not": {"$gt": 1}}}}, vec![doc! {"a": 2}], vec![doc! {"a": 1}]),
    ]);
}

#[test]
fn type_takes_numbers_aliases_and_lists() {
    check(&[
        (
            doc! {"a": {"$type": "number"}},
            vec![
                doc! {"a": 1},
                doc! {"a": 1.5},
                doc! {"a": 1i64},
                doc! {"a": decimal("1")},
                doc! {"a": ["x", 1]},
            ],
            vec![doc! {"a": "1"}],
        ),
        (doc! {"a": {"$type": 2}}, vec![doc! {"a": "x"}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$type": "array"}}, vec![doc! {"a": []}, doc! {"a": [1]}], vec![doc! {"a": 1}]),
        (
            doc! {"a": {"$type": ["string", "null"]}},
            vec![doc! {"a": "x"}, doc! {"a": null}],
            vec![doc! {"a": 1}, doc! {}],
        ),
        (doc! {"a": {"$type": -1}}, vec![doc! {"a": Value::MinKey}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$type": 127}}, vec![doc! {"a": Value::MaxKey}], vec![doc! {"a": 1}]),
        (doc! {"a": {"$type": "object"}}, vec![doc! {"a": {}}, doc! {"a": [{}]}], vec![doc! {"a": []}]),
    ]);
}

#[test]
fn all_wants_every_value_somewhere() {
    check(&[
        (doc! {"a": {"$all": [1, 2]}}, vec![doc! {"a": [2, 1, 3]}], vec![doc! {"a": [1]}, doc! {"a": 1}]),
        (doc! {"a": {"$all": [1]}}, vec![doc! {"a": 1}, doc! {"a": [1]}], vec![]),
        (doc! {"a": {"$all": []}}, vec![], vec![doc! {"a": []}, doc! {"a": 1}]),
        (
            doc! {"a": {"$all": [[1, 2]]}},
            vec![doc! {"a": [1, 2]}, doc! {"a": [[1, 2]]}],
            vec![doc! {"a": [1]}],
        ),
        (doc! {"a": {"$all": [regex("^x", ""), 2]}}, vec![doc! {"a": ["xy", 2]}], vec![doc! {"a": ["y", 2]}]),
        (
            doc! {"a": {"$all": [{"$elemMatch": {"x": 1}}, {"$elemMatch": {"x": 2}}]}},
            vec![doc! {"a": [{"x": 1}, {"x": 2}]}],
            vec![doc! {"a": [{"x": 1}]}],
        ),
        (doc! {"a": {"$all": [null]}}, vec![doc! {}, doc! {"a": [null]}], vec![doc! {"a": [1]}]),
        (doc! {"a": {"$not": {"$all": [1, 2]}}}, vec![doc! {"a": [1]}], vec![doc! {"a": [1, 2]}]),
    ]);
}

#[test]
fn elem_match_tests_one_element_at_a_time() {
    check(&[
        (
            doc! {"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}},
            vec![doc! {"a": [2]}],
            vec![doc! {"a": [0, 5]}, doc! {"a": 2}, doc! {"a": [[2]]}],
        ),
        (
            doc! {"a": {"$elemMatch": {"x": 1, "y": 2}}},
            vec![doc! {"a": [{"x": 1, "y": 2}]}],
            vec![doc! {"a": [{"x": 1}, {"y": 2}]}, doc! {"a": {"x": 1, "y": 2}}],
        ),
        (
            doc! {"a": {"$elemMatch": {}}},
            vec![doc! {"a": [{}]}, doc! {"a": [[]]}],
            vec![doc! {"a": [1]}, doc! {"a": []}],
        ),
        (doc! {"a": {"$elemMatch": {"0": 1}}}, vec![doc! {"a": [[1]]}], vec![doc! {"a": [1]}]),
        (
            doc! {"a": {"$elemMatch": {"b": null}}},
            vec![doc! {"a": [[]]}, doc! {"a": [{}]}],
            vec![doc! {"a": [1]}],
        ),
        (
            doc! {"a": {"$elemMatch": {"$elemMatch": {"$gt": 1}}}},
            vec![doc! {"a": [[2]]}],
            vec![doc! {"a": [2]}],
        ),
        (
            doc! {"a": {"$elemMatch": {"$not": {"$gt": 1}}}},
            vec![doc! {"a": [1]}],
            vec![doc! {"a": [2]}, doc! {"a": []}],
        ),
        (doc! {"a": {"$elemMatch": {"$ne": 1}}}, vec![doc! {"a": [1, 2]}], vec![doc! {"a": [1]}]),
        (
            doc! {"a.b": {"$elemMatch": {"$gt": 1}}},
            vec![doc! {"a": [{"b": [2]}]}],
            vec![doc! {"a": [{"b": 2}]}],
        ),
        (
            doc! {"a": {"$elemMatch": {"$or": [{"x": 1}, {"y": 1}]}}},
            vec![doc! {"a": [{"y": 1}]}],
            vec![doc! {"a": [{"z": 1}]}],
        ),
        (doc! {"a": {"$elemMatch": {"$exists": true}}}, vec![doc! {"a": [1]}], vec![doc! {"a": []}]),
        (doc! {"a": {"$elemMatch": {"$all": []}}}, vec![], vec![doc! {"a": [1]}]),
        (
            doc! {"a": {"$not": {"$elemMatch": {"$gt": 1}}}},
            vec![doc! {"a": 2}, doc! {}],
            vec![doc! {"a": [2]}],
        ),
    ]);
}

#[test]
fn size_counts_the_array_itself() {
    check(&[
        (doc! {"a": {"$size": 0}}, vec![doc! {"a": []}], vec![doc! {"a": [1]}, doc! {}, doc! {"a": [[]]}]),
        (doc! {"a": {"$size": 2.0}}, vec![doc! {"a": [1, 2]}], vec![doc! {"a": "ab"}]),
        (
            doc! {"a.b": {"$size": 1}},
            vec![doc! {"a": [{"b": [1]}]}, doc! {"a": {"b": [1]}}],
            vec![doc! {"a": [{"b": 1}]}],
        ),
    ]);
}

#[test]
fn mod_truncates_what_it_divides() {
    check(&[
        (
            doc! {"a": {"$mod": [4, 1]}},
            vec![doc! {"a": 5}, doc! {"a": 5.9}, doc! {"a": decimal("5.9")}, doc! {"a": [8, 9]}],
            vec![doc! {"a": -3}, doc! {"a": "5"}, doc! {"a": f64::NAN}, doc! {"a": f64::INFINITY}],
        ),
        (doc! {"a": {"$mod": [4, -3]}}, vec![doc! {"a": -3}, doc! {"a": -7}], vec![]),
        (doc! {"a": {"$mod": [-4, 1]}}, vec![doc! {"a": 5}], vec![]),
        (doc! {"a": {"$mod": [2.9, 1]}}, vec![doc! {"a": 3}], vec![doc! {"a": 2}]),
        (doc! {"a": {"$mod": [-1, 0]}}, vec![doc! {"a": -9223372036854775808i64}], vec![]),
    ]);
}

#[test]
fn regexes_search_strings() {
    check(&[
        (
            doc! {"a": {"$regex": "B", "$options": "i"}},
            vec![doc! {"a": "abc"}, doc! {"a": ["b"]}],
            vec![doc! {"a": "x"}, doc! {"a": 1}],
        ),
        (doc! {"a": {"$options": "i", "$regex": "B"}}, vec![doc! {"a": "abc"}], vec![]),
        (doc! {"a": {"$regex": regex("b", "i")}}, vec![doc! {"a": "B"}], vec![]),
        (doc! {"a": {"$regex": "^b", "$options": "m"}}, vec![doc! {"a": "a\nb"}], vec![]),
        (doc! {"a": {"$regex": "a b", "$options": "x"}}, vec![doc! {"a": "ab"}], vec![]),
        (doc! {"a": {"$regex": "a.b", "$options": "s"}}, vec![doc! {"a": "a\nb"}], vec![]),
        (doc! {"a": {"$regex": "a(?=b)"}}, vec![doc! {"a": "ab"}], vec![doc! {"a": "ac"}]),
        (doc! {"a": {"$regex": "b", "$gt": "a"}}, vec![doc! {"a": "b"}], vec![doc! {"a": "Ab"}]),
    ]);
}

#[test]
fn bits_of_numbers_and_binary_data() {
    check(&[
        (
            doc! {"a": {"$bitsAllSet": 5}},
            vec![doc! {"a": 5}, doc! {"a": 7.0}, doc! {"a": binary(&[5])}, doc! {"a": decimal("5")}],
            vec![doc! {"a": 4}, doc! {"a": 5.5}, doc! {"a": binary(&[])}, doc! {"a": "x"}],
        ),
        (doc! {"a": {"$bitsAnySet": [0, 63]}}, vec![doc! {"a": -2}, doc! {"a": 1}], vec![doc! {"a": 2}]),
        (
            doc! {"a": {"$bitsAllClear": [70]}},
            vec![doc! {"a": 1}, doc! {"a": binary(&[1])}],
            vec![doc! {"a": -1}],
        ),
        (doc! {"a": {"$bitsAnyClear": binary(&[3])}}, vec![doc! {"a": 1}], vec![doc! {"a": 3}]),
        (doc! {"a": {"$bitsAllSet": []}}, vec![doc! {"a": 0}], vec![doc! {"a": f64::NAN}, doc! {"a": 1.5}]),
        (doc! {"a": {"$bitsAllSet": 1}}, vec![doc! {"a": decimal("0.6")}, doc! {"a": [2, 3]}], vec![]),
    ]);
}

#[test]
fn the_positional_operator_stands_for_the_index_of_the_last_match() {
    for (filter, document, expected) in [
        (doc! {"a": 2}, doc! {"a": [1, 2]}, Some(Some(1))),
        (doc! {"a": 1}, doc! {"a": 1}, Some(None)),
        (doc! {"a.b": 2}, doc! {"a": [{"b": 1}, {"b": 2}]}, Some(Some(1))),
        (doc! {"a.b": 2}, doc! {"a": [{"b": 1}, {"b": [9, 2]}]}, Some(Some(1))),
        (doc! {"a.1": 2}, doc! {"a": [1, 2]}, Some(None)),
        (doc! {"a.1.x": 1}, doc! {"a": [{}, {"x": [5, 1]}]}, Some(Some(1))),
        (doc! {"a": {"$elemMatch": {"x": 2}}}, doc! {"a": [{"x": 1}, {"x": 2}]}, Some(Some(1))),
        (doc! {"a": {"$ne": 5}}, doc! {"a": [1]}, Some(None)),
        (doc! {"a": {"$gt": 1, "$lt": 2.5}}, doc! {"a": [1, 2, 3]}, Some(Some(1))),
        (doc! {"a": 1, "b": 7}, doc! {"a": [1], "b": [5, 6, 7]}, Some(Some(2))),
        (doc! {"b": 7, "a": 1}, doc! {"a": [1], "b": [5, 6, 7]}, Some(Some(2))),
        (doc! {"$or": [{"a": 3}, {"a": {"$gt": 1}}]}, doc! {"a": [1, 2, 3]}, Some(None)),
        (doc! {"$or": [{"a": 3}, {"a": 2}]}, doc! {"a": [1, 2, 3]}, Some(Some(1))),
        (doc! {"a": {"$all": [3, 2]}}, doc! {"a": [1, 2, 3]}, Some(Some(1))),
        (doc! {"a": [1, 2]}, doc! {"a": [[1, 2]]}, Some(Some(0))),
        (doc! {"a": [1, 2]}, doc! {"a": [1, 2]}, Some(None)),
        (doc! {"a": 9}, doc! {"a": [1]}, None),
    ] {
        let parsed = Filter::parse(filter.as_raw()).expect("a filter");
        assert_eq!(parsed.matches_with_position(document.as_raw()), expected, "{filter:?} on {document:?}");
    }
}

#[test]
fn malformed_filters_get_the_errors_of_mongod() {
    for (filter, code, message) in [
        (doc! {"a": {"$foo": 1}}, 2, "unknown operator: $foo"),
        (
            doc! {"$foo": 1},
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (doc! {"a": {"$in": 1}}, 2, "$in needs an array"),
        (doc! {"a": {"$nin": 1}}, 2, "$nin needs an array"),
        (doc! {"a": {"$in": [{"$a": 1}]}}, 2, "cannot nest $ under $in"),
        (doc! {"a": {"$in": [{"$regex": "a"}]}}, 2, "cannot nest $ under $in"),
        (doc! {"$and": 1}, 2, "$and must be an array"),
        (doc! {"$and": []}, 2, "$and/$or/$nor must be a nonempty array"),
        (doc! {"$and": [1]}, 2, "$or/$and/$nor entries need to be full objects"),
        (doc! {"$or": []}, 2, "$and/$or/$nor must be a nonempty array"),
        (doc! {"$nor": []}, 2, "$and/$or/$nor must be a nonempty array"),
        (doc! {"$or": {}}, 2, "$or must be an array"),
        (doc! {"$nor": [3]}, 2, "$or/$and/$nor entries need to be full objects"),
        (doc! {"a": {"$not": 1}}, 2, "$not needs a regex or a document"),
        (doc! {"a": {"$not": {}}}, 2, "$not cannot be empty"),
        (doc! {"a": {"$not": {"$foo": 1}}}, 2, "unknown operator: $foo"),
        (doc! {"a": {"$not": {"x": 1}}}, 2, "unknown operator: x"),
        (doc! {"a": {"$type": "foo"}}, 2, "Unknown type name alias: foo"),
        (doc! {"a": {"$type": 300}}, 2, "Invalid numerical type code: 300"),
        (doc! {"a": {"$type": 1.5}}, 2, "Invalid numerical type code: 1.5"),
        (doc! {"a": {"$type": []}}, 9, "a must match at least one type"),
        (doc! {"a": {"$type": {}}}, 14, "type must be represented as a number or a string"),
        (doc! {"a": {"$type": ["foo"]}}, 2, "Unknown type name alias: foo"),
        (doc! {"a": {"$type": 0}}, 2, "Invalid numerical type code: 0. Instead use {$exists:false}."),
        (doc! {"a": {"$type": 255}}, 2, "Invalid numerical type code: 255"),
        (doc! {"a": {"$type": 20}}, 2, "Invalid numerical type code: 20"),
        (
            doc! {"a": {"$type": "missing"}},
            2,
            "'missing' is not a legal type name. To query for non-existence of a field, use {$exists:false}.",
        ),
        (doc! {"a": {"$type": true}}, 14, "type must be represented as a number or a string"),
        (doc! {"a": {"$type": [[1]]}}, 14, "type must be represented as a number or a string"),
        (doc! {"a": {"$type": f64::NAN}}, 2, "Invalid numerical type code: nan"),
        (doc! {"a": {"$type": "eoo"}}, 2, "Unknown type name alias: eoo"),
        (doc! {"a": {"$type": 1099511627776i64}}, 2, "Invalid numerical type code: 1.09951e+12"),
        (doc! {"a": {"$all": 1}}, 2, "$all needs an array"),
        (doc! {"a": {"$all": [{"$elemMatch": {"a": 1}}, 1]}}, 2, "$all/$elemMatch has to be consistent"),
        (doc! {"a": {"$all": [{"$gt": 1}]}}, 2, "no $ expressions in $all"),
        (doc! {"a": {"$all": [1, {"$elemMatch": {"a": 1}}]}}, 2, "no $ expressions in $all"),
        (doc! {"a": {"$all": [{"$elemMatch": 1}]}}, 2, "$elemMatch needs an Object"),
        (
            doc! {"a": {"$all": [{"$elemMatch": {"a": 1}}, {"$gt": 1}]}},
            2,
            "$all/$elemMatch has to be consistent",
        ),
        (doc! {"a": {"$elemMatch": 1}}, 2, "$elemMatch needs an Object"),
        (doc! {"a": {"$elemMatch": [1]}}, 2, "$elemMatch needs an Object"),
        (doc! {"a": {"$elemMatch": {"$foo": 1}}}, 2, "unknown operator: $foo"),
        (
            doc! {"a": {"$elemMatch": {"$where": "1"}}},
            2,
            "$where can only be applied to the top-level document",
        ),
        (doc! {"a": {"$elemMatch": {"$gt": 1, "b": 1}}}, 2, "unknown operator: b"),
        (
            doc! {"a": {"$elemMatch": {"b": 1, "$gt": 1}}},
            2,
            "unknown top level operator: $gt. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! {"a": {"$elemMatch": {"$or": [{"$gt": 1}]}}},
            2,
            "unknown top level operator: $gt. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (doc! {"a": {"$size": -1}}, 2, "Failed to parse $size. Expected a non-negative number in: $size: -1"),
        (doc! {"a": {"$size": 1.5}}, 2, "Failed to parse $size. Expected an integer: $size: 1.5"),
        (doc! {"a": {"$size": "x"}}, 2, "Failed to parse $size. Expected a number in: $size: \"x\""),
        (
            doc! {"a": {"$size": 1099511627776i64}},
            2,
            "Failed to parse $size. Cannot represent $size: 1099511627776 in an int",
        ),
        (doc! {"a": {"$size": null}}, 2, "Failed to parse $size. Expected a number in: $size: null"),
        (
            doc! {"a": {"$size": decimal("1.5")}},
            2,
            "Failed to parse $size. Cannot represent as a 64-bit integer: $size: 1.5",
        ),
        (
            doc! {"a": {"$size": f64::NAN}},
            2,
            "Failed to parse $size. Expected an integer, but found NaN in: $size: nan.0",
        ),
        (doc! {"a": {"$mod": 1}}, 2, "malformed mod, needs to be an array"),
        (doc! {"a": {"$mod": []}}, 2, "malformed mod, not enough elements"),
        (doc! {"a": {"$mod": [1]}}, 2, "malformed mod, not enough elements"),
        (doc! {"a": {"$mod": [1, 2, 3]}}, 2, "malformed mod, too many elements"),
        (doc! {"a": {"$mod": [0, 1]}}, 2, "divisor cannot be 0"),
        (doc! {"a": {"$mod": ["a", 1]}}, 2, "malformed mod, divisor not a number"),
        (doc! {"a": {"$mod": [1, "a"]}}, 2, "malformed mod, remainder not a number"),
        (
            doc! {"a": {"$mod": [f64::NAN, 1]}},
            2,
            "malformed mod, divisor value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type",
        ),
        (
            doc! {"a": {"$mod": [1, f64::INFINITY]}},
            2,
            "malformed mod, remainder value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type",
        ),
        (
            doc! {"a": {"$mod": [1e+30, 1]}},
            2,
            "malformed mod, divisor value is invalid :: caused by :: Out of bounds coercing to integral value",
        ),
        (
            doc! {"a": {"$mod": [decimal("NaN"), 1]}},
            2,
            "malformed mod, divisor value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type",
        ),
        (
            doc! {"a": {"$mod": [decimal("1E+40"), 1]}},
            2,
            "malformed mod, divisor value is invalid :: caused by :: Out of bounds coercing to integral value",
        ),
        (doc! {"a": {"$mod": [0.5, 1]}}, 2, "divisor cannot be 0"),
        (doc! {"a": {"$mod": [2, null]}}, 2, "malformed mod, remainder not a number"),
        (doc! {"a": {"$regex": 1}}, 2, "$regex has to be a string"),
        (doc! {"a": {"$regex": "("}}, 51091, "Regular expression is invalid: missing )"),
        (doc! {"a": {"$regex": "a", "$options": "z"}}, 51108, " invalid flag in regex options: z"),
        (doc! {"a": {"$regex": "a", "$options": 1}}, 2, "$options has to be a string"),
        (doc! {"a": {"$options": "i"}}, 2, "$options needs a $regex"),
        (
            doc! {"a": {"$regex": regex("a", "i"), "$options": "m"}},
            51075,
            "options set in both $regex and $options",
        ),
        (
            doc! {"a": {"$regex": regex("a", "i"), "$options": ""}},
            51075,
            "options set in both $regex and $options",
        ),
        (doc! {"a": {"$options": "i", "$gt": 1}}, 2, "$options needs a $regex"),
        (
            doc! {"a": {"$options": "i", "$regex": regex("A", "m")}},
            51074,
            "options set in both $regex and $options",
        ),
        (doc! {"a": {"$options": "g", "$regex": "a"}}, 51108, " invalid flag in regex options: g"),
        (doc! {"a": regex("(a", "")}, 51091, "Regular expression is invalid: missing )"),
        (doc! {"a": {"$ne": regex("a", "")}}, 2, "Can't have regex as arg to $ne."),
        (doc! {"a": {"$gt": regex("a", "")}}, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        (doc! {"a": {"$lte": regex("a", "")}}, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        (
            doc! {"a": {"$bitsAllSet": "x"}},
            2,
            "a takes an Array, a number, or a BinData but received: $bitsAllSet: \"x\"",
        ),
        (doc! {"a": {"$bitsAllSet": -1}}, 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        (doc! {"a": {"$bitsAllSet": 1.5}}, 9, "Expected an integer: $bitsAllSet: 1.5"),
        (
            doc! {"a": {"$bitsAllSet": [-1]}},
            2,
            "Failed to parse bit position. Expected a non-negative number in: 0: -1",
        ),
        (
            doc! {"a": {"$bitsAllSet": ["a"]}},
            2,
            "Failed to parse bit position. Expected a number in: 0: \"a\"",
        ),
        (doc! {"a": {"$bitsAllSet": [1.5]}}, 2, "Failed to parse bit position. Expected an integer: 0: 1.5"),
        (doc! {"a": {"$bitsAllSet": 1e+30}}, 9, "Cannot represent as a 64-bit integer: $bitsAllSet: 1e+30.0"),
        (
            doc! {"a": {"$bitsAllSet": [1e+30]}},
            2,
            "Failed to parse bit position. Cannot represent as a 64-bit integer: 0: 1e+30.0",
        ),
        (
            doc! {"a": {"$bitsAllSet": f64::NAN}},
            9,
            "Expected an integer, but found NaN in: $bitsAllSet: nan.0",
        ),
        (
            doc! {"a": {"$bitsAllSet": null}},
            2,
            "a takes an Array, a number, or a BinData but received: $bitsAllSet: null",
        ),
        (
            doc! {"a": {"$bitsAnyClear": {}}},
            2,
            "a takes an Array, a number, or a BinData but received: $bitsAnyClear: {}",
        ),
        (
            doc! {"a": {"$bitsAllSet": decimal("5.5")}},
            9,
            "Cannot represent as a 64-bit integer: $bitsAllSet: 5.5",
        ),
        (
            doc! {"a": {"$bitsAllSet": [8589934592i64]}},
            2,
            "Failed to parse bit position. Cannot represent 0: 8589934592 in an int",
        ),
        (doc! {"a": {"$comment": 1}}, 2, "unknown operator: $comment"),
        (doc! {"$alwaysTrue": 2}, 9, "$alwaysTrue must be an integer value of 1"),
        (doc! {"$alwaysFalse": "x"}, 9, "Expected a number in: $alwaysFalse: \"x\""),
        (doc! {"a": {"$expr": 1}}, 2, "unknown operator: $expr"),
        (doc! {"a": {"$where": 1}}, 2, "$where cannot be applied to a field"),
        (doc! {"a": {"$jsonSchema": {}}}, 2, "unknown operator: $jsonSchema"),
        (doc! {"a": {"$maxDistance": 1}}, 2, "unknown operator: $maxDistance"),
        (doc! {"a": {"$minDistance": 1}}, 2, "unknown operator: $minDistance"),
        (doc! {"a": {"$center": 1}}, 2, "unknown operator: $center"),
        (doc! {"a": {"$ref": 1}}, 2, "unknown operator: $ref"),
        (doc! {"a": {"$id": 1}}, 2, "unknown operator: $id"),
        (doc! {"a": {"$db": "x"}}, 2, "unknown operator: $db"),
        (doc! {"a": {"$gt": 1, "x": 1}}, 2, "unknown operator: x"),
        (doc! {"a": {"$and": []}}, 2, "unknown operator: $and"),
        (doc! {"a": {"$or": []}}, 2, "unknown operator: $or"),
        (doc! {"a": {"$nor": []}}, 2, "unknown operator: $nor"),
        (doc! {"a": {"$alwaysTrue": 1}}, 2, "unknown operator: $alwaysTrue"),
        (doc! {"a": {"$not": {"$and": []}}}, 2, "unknown operator: $and"),
        (
            doc! {"$gt": 1},
            2,
            "unknown top level operator: $gt. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! {"$eq": 1},
            2,
            "unknown top level operator: $eq. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! {"$not": {"a": 1}},
            2,
            "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
        ),
        (
            doc! {"$in": [1]},
            2,
            "unknown top level operator: $in. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (doc! {"a": {"$sampleRate": 1}}, 2, "unknown operator: $sampleRate"),
        (
            doc! {"$": 1},
            2,
            "unknown top level operator: $. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (doc! {"a": {"$": 1}}, 2, "unknown operator: $"),
        (
            doc! {"$exists": 1},
            2,
            "unknown top level operator: $exists. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! {"$regex": "a"},
            2,
            "unknown top level operator: $regex. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! {"$type": 1},
            2,
            "unknown top level operator: $type. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (doc! {"a": {"$size": true}}, 2, "Failed to parse $size. Expected a number in: $size: true"),
        (doc! {"$and": {}}, 2, "$and must be an array"),
        (doc! {"a": {"$uniqueDocs": 1}}, 2, "unknown operator: $uniqueDocs"),
        (doc! {"a": {"$elemMatch": {"$eq": 1, "$comment": "x"}}}, 2, "unknown operator: $comment"),
        (
            doc! {"a": {"$elemMatch": {"$expr": true}}},
            2,
            "$expr can only be applied to the top-level document",
        ),
        (
            doc! {"a": {"$elemMatch": {"b": 1, "$text": {}}}},
            2,
            "$text can only be applied to the top-level document",
        ),
        (doc! {"a": {"$not": {"$near": [0, 0]}}}, 2, "geo $near must be top-level expr"),
        (doc! {"a": {"$elemMatch": {"b": {"$near": [0, 0]}}}}, 2, "geo $near must be top-level expr"),
        (doc! {"a": {"$nin": [{"$gt": 1}]}}, 2, "cannot nest $ under $in"),
        (doc! {(&vec!["a"; 181].join(".")): 1}, 5729100, "FieldPath is too long"),
    ] {
        let error = Filter::parse(filter.as_raw()).expect_err("malformed");
        assert_eq!((error.code().0, error.to_string().as_str()), (code, message), "{filter:?}");
    }
}

#[test]
fn operators_on_documents_have_no_place_in_conditions_on_elements() {
    let forbidden = |name: &str| format!("{name} is not allowed in this context");
    for (filter, code, message) in [
        (doc! {"$expr": true}, 224, forbidden("$expr")),
        (doc! {"$and": [{"$jsonSchema": {}}]}, 224, forbidden("$jsonSchema")),
        (doc! {"x": {"$elemMatch": {"$jsonSchema": {}}}}, 224, forbidden("$jsonSchema")),
        (doc! {"$where": "1"}, 2, forbidden("$where")),
        (doc! {"x": {"$elemMatch": {"$where": "1"}}}, 2, forbidden("$where")),
        (doc! {"$text": {}}, 2, forbidden("$text")),
        (
            doc! {"x": {"$elemMatch": {"$expr": true}}},
            2,
            "$expr can only be applied to the top-level document".to_owned(),
        ),
        (
            doc! {"x": {"$nearSphere": [0, 0]}},
            5626500,
            "$geoNear, $near, and $nearSphere are not allowed in this context".to_owned(),
        ),
    ] {
        let error = Filter::parse_for_elements(filter.as_raw()).expect_err("out of place");
        assert_eq!((error.code().0, error.to_string()), (code, message), "{filter:?}");
    }
}

#[test]
fn explain_prints_filters_as_mongod_does() {
    for (filter, expected) in [
        (doc! {}, doc! {}),
        (doc! {"a": 1}, doc! {"a": {"$eq": 1}}),
        (doc! {"a": {"$ne": 1}}, doc! {"a": {"$not": {"$eq": 1}}}),
        (doc! {"a": {"$in": [3, 1, 2, 1.0]}}, doc! {"a": {"$in": [1, 2, 3]}}),
        (doc! {"a": {"$in": [1]}}, doc! {"a": {"$eq": 1}}),
        (doc! {"a": {"$in": []}}, doc! {"a": {"$in": []}}),
        (doc! {"a": {"$nin": [1]}}, doc! {"a": {"$not": {"$eq": 1}}}),
        (doc! {"a": {"$nin": []}}, doc! {"a": {"$not": {"$in": []}}}),
        (doc! {"a": {"$nin": [1, 2]}}, doc! {"a": {"$not": {"$in": [1, 2]}}}),
        (doc! {"a": {"$exists": true}}, doc! {"a": {"$exists": true}}),
        (doc! {"a": {"$exists": false}}, doc! {"a": {"$not": {"$exists": true}}}),
        (doc! {"a": {"$type": "string"}}, doc! {"a": {"$type": [2]}}),
        (doc! {"a": {"$type": ["number", "string", -1]}}, doc! {"a": {"$type": ["number", -1, 2]}}),
        (doc! {"a": {"$type": [2, 1, "minKey", "maxKey"]}}, doc! {"a": {"$type": [-1, 1, 2, 127]}}),
        (doc! {"a": {"$all": [1, 2]}}, doc! {"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}),
        (doc! {"a": {"$all": [1]}}, doc! {"a": {"$eq": 1}}),
        (doc! {"a": {"$all": []}}, doc! {"$alwaysFalse": 1}),
        (
            doc! {"a": {"$all": [regex("a", ""), 1]}},
            doc! {"$and": [{"a": {"$eq": 1}}, {"a": {"$regex": "a"}}]},
        ),
        (
            doc! {"a": {"$all": [{"$elemMatch": {"b": 1}}, {"$elemMatch": {"$gt": 1}}]}},
            doc! {"$and": [{"a": {"$elemMatch": {"b": {"$eq": 1}}}}, {"a": {"$elemMatch": {"$gt": 1}}}]},
        ),
        (doc! {"a": {"$elemMatch": {}}}, doc! {"a": {"$elemMatch": {}}}),
        (
            doc! {"a": {"$elemMatch": {"b": 1, "c": 2}}},
            doc! {"a": {"$elemMatch": {"$and": [{"b": {"$eq": 1}}, {"c": {"$eq": 2}}]}}},
        ),
        (doc! {"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}, doc! {"a": {"$elemMatch": {"$lt": 3, "$gt": 1}}}),
        (
            doc! {"a": {"$elemMatch": {"$not": {"$gt": 1, "$lt": 3}}}},
            doc! {"a": {"$elemMatch": {"$not": {"$lt": 3, "$gt": 1}}}},
        ),
        (
            doc! {"a": {"$elemMatch": {"$ne": 1, "$in": [1]}}},
            doc! {"a": {"$elemMatch": {"$eq": 1, "$not": {"$eq": 1}}}},
        ),
        (doc! {"a": {"$elemMatch": {"$in": []}}}, doc! {"a": {"$elemMatch": {"$in": []}}}),
        (
            doc! {"a": {"$elemMatch": {"$all": [1, 2]}}},
            doc! {"a": {"$elemMatch": {"$and": [{"$eq": 1}, {"$eq": 2}]}}},
        ),
        (doc! {"a": {"$size": 2}}, doc! {"a": {"$size": 2}}),
        (doc! {"a": {"$mod": [4.0, 1i64]}}, doc! {"a": {"$mod": [4i64, 1i64]}}),
        (doc! {"a": {"$regex": "a"}}, doc! {"a": {"$regex": "a"}}),
        (doc! {"a": regex("a", "i")}, doc! {"a": {"$regex": "a", "$options": "i"}}),
        (doc! {"a": regex("a", "im")}, doc! {"a": {"$regex": "a", "$options": "im"}}),
        (doc! {"a": {"$regex": "a", "$options": "xmi"}}, doc! {"a": {"$regex": "a", "$options": "xmi"}}),
        (
            doc! {"a": {"$in": [regex("b", "i"), regex("a", ""), 1]}},
            doc! {"a": {"$in": [1, regex("b", "i"), regex("a", "")]}},
        ),
        (doc! {"a": {"$in": [regex("a", "")]}}, doc! {"a": {"$regex": "a"}}),
        (doc! {"a": {"$not": regex("a", "")}}, doc! {"a": {"$not": {"$regex": "a"}}}),
        (doc! {"a": {"$not": {"$gt": 1}}}, doc! {"a": {"$not": {"$gt": 1}}}),
        (
            doc! {"a": {"$not": {"$gt": 1, "$lt": 0}}},
            doc! {"$nor": [{"$and": [{"a": {"$lt": 0}}, {"a": {"$gt": 1}}]}]},
        ),
        (doc! {"a": {"$not": {"$not": {"$gt": 1}}}}, doc! {"$nor": [{"a": {"$not": {"$gt": 1}}}]}),
        (doc! {"a": {"$not": {"$ne": 1}}}, doc! {"$nor": [{"a": {"$not": {"$eq": 1}}}]}),
        (doc! {"a": {"$not": {"$in": []}}}, doc! {"a": {"$not": {"$in": []}}}),
        (
            doc! {"a": {"$not": {"$all": [1, 2]}}},
            doc! {"$nor": [{"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}]},
        ),
        (doc! {"a": {"$bitsAllSet": 5}}, doc! {"a": {"$bitsAllSet": [0, 2]}}),
        (doc! {"a": {"$bitsAnyClear": [7, 1, 1]}}, doc! {"a": {"$bitsAnyClear": [7, 1, 1]}}),
        (doc! {"a": {"$bitsAllSet": binary(&[3])}}, doc! {"a": {"$bitsAllSet": [0, 1]}}),
        (doc! {"$and": [{"a": 1}, {"b": 2}]}, doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}]}),
        (doc! {"$and": [{"a": 1}]}, doc! {"a": {"$eq": 1}}),
        (
            doc! {"$and": [{"$and": [{"b": 1}, {"a": 1}]}, {"c": 1}]},
            doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}, {"c": {"$eq": 1}}]},
        ),
        (doc! {"$or": [{"a": 1}]}, doc! {"a": {"$eq": 1}}),
        (doc! {"$or": [{"b": 1}, {"a": 1}]}, doc! {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}),
        (
            doc! {"$or": [{"$or": [{"b": 1}, {"a": 1}]}, {"c": 1}]},
            doc! {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}, {"c": {"$eq": 1}}]},
        ),
        (doc! {"$nor": [{"b": 1}]}, doc! {"b": {"$not": {"$eq": 1}}}),
        (doc! {"$nor": [{"b": 1}, {"a": 1}]}, doc! {"$nor": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}),
        (
            doc! {"$nor": [{"b": 1, "a": 1}]},
            doc! {"$nor": [{"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}]},
        ),
        (doc! {"$and": [{}]}, doc! {}),
        (doc! {"$or": [{}]}, doc! {}),
        (doc! {"$nor": [{}]}, doc! {"$alwaysFalse": 1}),
        (doc! {"$or": [{"a": {"$in": []}}, {"b": 1}]}, doc! {"$or": [{"b": {"$eq": 1}}, {"a": {"$in": []}}]}),
        (doc! {"b": 1, "a": {"$in": []}}, doc! {"$and": [{"b": {"$eq": 1}}, {"a": {"$in": []}}]}),
        (doc! {"$nor": [{"a": {"$in": []}}]}, doc! {"a": {"$not": {"$in": []}}}),
        (doc! {"b": 1, "a": 1}, doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}),
        (
            doc! {"b": {"$gt": 1}, "a": 1, "c": {"$lt": 3}},
            doc! {"$and": [{"a": {"$eq": 1}}, {"c": {"$lt": 3}}, {"b": {"$gt": 1}}]},
        ),
        (
            doc! {"a": {"$gte": 1, "$lt": 2, "$gt": 0, "$lte": 5, "$eq": 1, "$exists": true, "$type": "int", "$in": [1, 2], "$mod": [2, 1], "$regex": "a", "$size": 1, "$elemMatch": {"b": 1}, "$ne": 5, "$bitsAllSet": 1, "$bitsAllClear": 1, "$bitsAnySet": 1, "$bitsAnyClear": 1, "$not": {"$gt": 4}}, "$or": [{"x": 1}, {"y": 1}], "$nor": [{"z": 1}, {"y": 1}]},
            doc! {"$and": [{"$or": [{"x": {"$eq": 1}}, {"y": {"$eq": 1}}]}, {"a": {"$elemMatch": {"b": {"$eq": 1}}}}, {"a": {"$size": 1}}, {"a": {"$eq": 1}}, {"a": {"$lte": 5}}, {"a": {"$lt": 2}}, {"a": {"$gt": 0}}, {"a": {"$gte": 1}}, {"a": {"$regex": "a"}}, {"a": {"$mod": [2i64, 1i64]}}, {"a": {"$exists": true}}, {"a": {"$in": [1, 2]}}, {"a": {"$bitsAllSet": [0]}}, {"a": {"$bitsAllClear": [0]}}, {"a": {"$bitsAnySet": [0]}}, {"a": {"$bitsAnyClear": [0]}}, {"a": {"$not": {"$eq": 5}}}, {"a": {"$not": {"$gt": 4}}}, {"$nor": [{"y": {"$eq": 1}}, {"z": {"$eq": 1}}]}, {"a": {"$type": [16]}}]},
        ),
        (
            doc! {"b": {"$elemMatch": {"$gt": 1}}, "a": {"$elemMatch": {"b": 1}}},
            doc! {"$and": [{"a": {"$elemMatch": {"b": {"$eq": 1}}}}, {"b": {"$elemMatch": {"$gt": 1}}}]},
        ),
        (doc! {"$or": [{"a": 1}, {"a": 2}]}, doc! {"a": {"$in": [1, 2]}}),
        (
            doc! {"$or": [{"a": 1}, {"a": 2}, {"b": 1}]},
            doc! {"$or": [{"b": {"$eq": 1}}, {"a": {"$in": [1, 2]}}]},
        ),
        (
            doc! {"$or": [{"a": {"$in": [1, 3]}}, {"a": 2}]},
            doc! {"$or": [{"a": {"$eq": 2}}, {"a": {"$in": [1, 3]}}]},
        ),
        (doc! {"$or": [{"a": regex("a", "")}, {"a": 2}]}, doc! {"a": {"$in": [2, regex("a", "")]}}),
        (doc! {"a": 1, "$and": [{"a": 1}]}, doc! {"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 1}}]}),
        (doc! {"$and": [{"a": 1}, {"a": 1}]}, doc! {"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 1}}]}),
        (doc! {"a": {"$gt": 1, "$gte": 1}}, doc! {"$and": [{"a": {"$gt": 1}}, {"a": {"$gte": 1}}]}),
        (
            doc! {"$or": [{"a": 1, "b": 1}, {"a": 1, "c": 1}]},
            doc! {"$or": [{"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}, {"$and": [{"a": {"$eq": 1}}, {"c": {"$eq": 1}}]}]},
        ),
        (
            doc! {"$and": [{"$or": [{"a": 1}, {"b": 1}]}, {"$or": [{"c": 1}, {"d": 1}]}]},
            doc! {"$and": [{"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}, {"$or": [{"c": {"$eq": 1}}, {"d": {"$eq": 1}}]}]},
        ),
        (doc! {"a": {"$eq": {"$x": 1}}}, doc! {"a": {"$eq": {"$x": 1}}}),
        (doc! {"a": null}, doc! {"a": {"$eq": null}}),
        (doc! {"a": {"$gt": null}}, doc! {"a": {"$gt": null}}),
        (doc! {"$alwaysFalse": 1}, doc! {"$alwaysFalse": 1}),
        (doc! {"$alwaysTrue": 1, "a": 1}, doc! {"a": {"$eq": 1}}),
        (doc! {"$alwaysFalse": 1, "a": 1}, doc! {"$alwaysFalse": 1}),
        (doc! {"$comment": "x"}, doc! {}),
        (doc! {"$comment": "x", "a": 1}, doc! {"a": {"$eq": 1}}),
        (doc! {"a.b": {"x": 1}}, doc! {"a.b": {"$eq": {"x": 1}}}),
        (doc! {"a": [1, 2]}, doc! {"a": {"$eq": [1, 2]}}),
        (doc! {"a": {"$gt": 5}, "b": {"$gt": 3}}, doc! {"$and": [{"a": {"$gt": 5}}, {"b": {"$gt": 3}}]}),
        (
            doc! {"b": {"$gt": 5}, "a": {"$gt": 3}, "$and": [{"b": {"$gt": 1}}, {"a": {"$gt": 1}}]},
            doc! {"$and": [{"a": {"$gt": 3}}, {"a": {"$gt": 1}}, {"b": {"$gt": 5}}, {"b": {"$gt": 1}}]},
        ),
        (
            doc! {"$or": [{"a": 1}, {"$and": [{"b": 1}]}]},
            doc! {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]},
        ),
        (
            doc! {"$nor": [{"$or": [{"a": 1}, {"b": 1}]}]},
            doc! {"$nor": [{"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]}]},
        ),
        (doc! {"$nor": [{"$nor": [{"a": 1}]}]}, doc! {"$nor": [{"a": {"$not": {"$eq": 1}}}]}),
        (doc! {"a": {"$ne": null}}, doc! {"a": {"$not": {"$eq": null}}}),
        (doc! {"a": {"$nin": [regex("a", ""), 1]}}, doc! {"a": {"$not": {"$in": [1, regex("a", "")]}}}),
        (doc! {"$or": [{"a": 1}, {"a": 1}]}, doc! {"a": {"$in": [1]}}),
        (doc! {"a": {"$in": [null]}}, doc! {"a": {"$eq": null}}),
        (doc! {"a": {"$gt": Value::MinKey}}, doc! {"a": {"$gt": Value::MinKey}}),
        (
            doc! {"a": {"$elemMatch": {"$or": [{"b": 1}, {"c": 1}]}}},
            doc! {"a": {"$elemMatch": {"$or": [{"b": {"$eq": 1}}, {"c": {"$eq": 1}}]}}},
        ),
        (doc! {"a": {"$elemMatch": {"$exists": true}}}, doc! {"a": {"$elemMatch": {"$exists": true}}}),
        (
            doc! {"$and": [{"a": 1}, {"$or": [{"b": 1}]}]},
            doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]},
        ),
        (
            doc! {"a": {"$not": {"$regex": "a", "$options": "i"}}},
            doc! {"a": {"$not": {"$regex": "a", "$options": "i"}}},
        ),
        (doc! {"a": {"$regex": regex("a", "i")}}, doc! {"a": {"$regex": "a", "$options": "i"}}),
        (doc! {"a": {"$eq": regex("a", "i")}}, doc! {"a": {"$eq": regex("a", "i")}}),
        (
            doc! {"a": {"$not": {"$elemMatch": {"b": 1}}}},
            doc! {"a": {"$not": {"$elemMatch": {"b": {"$eq": 1}}}}},
        ),
        (
            doc! {"a": {"$not": {"$size": 1, "$all": [1, 2]}}},
            doc! {"$nor": [{"$and": [{"a": {"$size": 1}}, {"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}]},
        ),
        (
            doc! {"$or": [{"a": {"$elemMatch": {"x": 1}}}, {"a": {"$elemMatch": {"x": 2}}}]},
            doc! {"$or": [{"a": {"$elemMatch": {"x": {"$eq": 1}}}}, {"a": {"$elemMatch": {"x": {"$eq": 2}}}}]},
        ),
        (doc! {"a": {"$in": [{"b": 1}, [1], null, "x"]}}, doc! {"a": {"$in": [null, "x", {"b": 1}, [1]]}}),
        (
            doc! {"a": {"$in": [regex("x", "")], "$eq": 1}},
            doc! {"$and": [{"a": {"$eq": 1}}, {"a": {"$regex": "x"}}]},
        ),
        (doc! {"$and": [{"$nor": [{"a": 1}]}]}, doc! {"a": {"$not": {"$eq": 1}}}),
        (doc! {"a": {"$gt": 1}, "a.b": 1}, doc! {"$and": [{"a.b": {"$eq": 1}}, {"a": {"$gt": 1}}]}),
        (doc! {"a": {"$all": [[1, 2]]}}, doc! {"a": {"$eq": [1, 2]}}),
        (
            doc! {"a": {"$elemMatch": {"$elemMatch": {"$gt": 1}}}},
            doc! {"a": {"$elemMatch": {"$elemMatch": {"$gt": 1}}}},
        ),
        (doc! {"a": {"$elemMatch": {"$nin": [1]}}}, doc! {"a": {"$elemMatch": {"$not": {"$eq": 1}}}}),
    ] {
        let parsed = Filter::parse(filter.as_raw()).expect("a filter");
        assert_eq!(parsed.to_document(), expected, "{filter:?}");
    }
}
