//! What each operator matches.

use super::*;

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
        let found = parsed.matches_with_position(document.as_raw()).expect("no expression");
        assert_eq!(found, expected, "{filter:?} on {document:?}");
    }
}
