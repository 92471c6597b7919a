//! How filters look in explain.

use super::*;

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
