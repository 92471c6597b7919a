//! Pipelines as written, and as they run: what mongod's explain shows of the same.

use kilim_bson::{Array, Document, Value, array, doc};

use super::super::{Context, Owner, Pipeline, Stage};
use crate::expression::{Scope, Variables};

fn optimised(stages: Vec<Document>) -> Vec<Document> {
    let stages: Array = stages.into_iter().map(Value::Document).collect();
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let context = Context::new(&scope, "test", Owner::Collection);
    let mut pipeline = Pipeline::parse(stages.as_raw(), &context).expect("a pipeline");
    pipeline.optimise();
    pipeline.to_documents()
}

#[test]
fn pipelines_are_rewritten_as_on_mongod() {
    for (written, expected) in [
        (
            vec![doc! {"$match": {"a": 1}}, doc! {"$match": {"b": 2}}],
            vec![doc! {"$match": {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}]}}],
        ),
        (vec![doc! {"$match": {}}, doc! {"$skip": 0}], vec![]),
        (vec![doc! {"$limit": 3}, doc! {"$skip": 1}], vec![doc! {"$skip": 1i64}, doc! {"$limit": 2i64}]),
        (
            vec![doc! {"$sort": {"z": 1}}, doc! {"$limit": 5}, doc! {"$skip": 1}, doc! {"$limit": 2}],
            vec![doc! {"$sort": {"sortKey": {"z": 1}, "limit": 3i64}}, doc! {"$skip": 1i64}],
        ),
        (
            vec![doc! {"$sort": {"z": 1}}, doc! {"$match": {"a": 1}}],
            vec![doc! {"$match": {"a": {"$eq": 1}}}, doc! {"$sort": {"sortKey": {"z": 1}}}],
        ),
        (
            vec![doc! {"$sort": {"z": 1}}, doc! {"$limit": 3}, doc! {"$match": {"a": 1}}],
            vec![doc! {"$sort": {"sortKey": {"z": 1}, "limit": 3i64}}, doc! {"$match": {"a": {"$eq": 1}}}],
        ),
        (
            vec![doc! {"$sort": {"a": 1}}, doc! {"$sort": {"b": 1}}],
            vec![doc! {"$sort": {"sortKey": {"b": 1}}}],
        ),
        (
            vec![doc! {"$project": {"x": "$a"}}, doc! {"$match": {"x": 1}}],
            vec![doc! {"$match": {"a": {"$eq": 1}}}, doc! {"$project": {"_id": true, "x": "$a"}}],
        ),
        (
            vec![doc! {"$project": {"x": {"$add": ["$a", 1]}, "a": 1}}, doc! {"$match": {"x": 1, "a": 2}}],
            vec![
                doc! {"$match": {"a": {"$eq": 2}}},
                doc! {"$project": {"_id": true, "a": true, "x": {"$add": ["$a", {"$const": 1}]}}},
                doc! {"$match": {"x": {"$eq": 1}}},
            ],
        ),
        (
            vec![doc! {"$addFields": {"x": "$a"}}, doc! {"$match": {"x.y": 1, "b": 2}}],
            vec![
                doc! {"$match": {"$and": [{"a.y": {"$eq": 1}}, {"b": {"$eq": 2}}]}},
                doc! {"$addFields": {"x": "$a"}},
            ],
        ),
        (
            vec![doc! {"$addFields": {"x": "$c.d"}}, doc! {"$match": {"x": 1}}],
            vec![doc! {"$addFields": {"x": "$c.d"}}, doc! {"$match": {"x": {"$eq": 1}}}],
        ),
        (
            vec![
                doc! {"$addFields": {"x": {"$add": ["$a", 1]}}},
                doc! {"$match": {"$nor": [{"x": 1}, {"z": 1}]}},
            ],
            vec![
                doc! {"$match": {"z": {"$not": {"$eq": 1}}}},
                doc! {"$addFields": {"x": {"$add": ["$a", {"$const": 1}]}}},
                doc! {"$match": {"x": {"$not": {"$eq": 1}}}},
            ],
        ),
        (
            vec![doc! {"$unset": "a"}, doc! {"$match": {"a": 1, "b": 1}}],
            vec![
                doc! {"$match": {"b": {"$eq": 1}}},
                doc! {"$project": {"a": false, "_id": true}},
                doc! {"$match": {"a": {"$eq": 1}}},
            ],
        ),
        (
            vec![doc! {"$addFields": {"x": 1}}, doc! {"$skip": 2}, doc! {"$limit": 3}],
            vec![doc! {"$skip": 2i64}, doc! {"$limit": 3i64}, doc! {"$addFields": {"x": {"$const": 1}}}],
        ),
        (
            vec![
                doc! {"$unwind": "$b"},
                doc! {"$addFields": {"x": 1}},
                doc! {"$limit": 3},
                doc! {"$skip": 1},
            ],
            vec![
                doc! {"$unwind": {"path": "$b"}},
                doc! {"$skip": 1i64},
                doc! {"$addFields": {"x": {"$const": 1}}},
                doc! {"$limit": 2i64},
            ],
        ),
        (
            vec![
                doc! {"$unwind": "$b"},
                doc! {"$sort": {"b": 1}},
                doc! {"$addFields": {"x": 1}},
                doc! {"$limit": 3},
            ],
            vec![
                doc! {"$unwind": {"path": "$b"}},
                doc! {"$sort": {"sortKey": {"b": 1}, "limit": 3i64}},
                doc! {"$addFields": {"x": {"$const": 1}}},
            ],
        ),
        (
            vec![doc! {"$unwind": "$b"}, doc! {"$match": {"a": 1, "b": 2}}],
            vec![
                doc! {"$match": {"a": {"$eq": 1}}},
                doc! {"$unwind": {"path": "$b"}},
                doc! {"$match": {"b": {"$eq": 2}}},
            ],
        ),
        (
            vec![doc! {"$unwind": "$b"}, doc! {"$sort": {"a": 1}}, doc! {"$limit": 2}],
            vec![
                doc! {"$sort": {"sortKey": {"a": 1}}},
                doc! {"$unwind": {"path": "$b"}},
                doc! {"$limit": 2i64},
            ],
        ),
        (
            vec![doc! {"$unwind": "$b"}, doc! {"$sort": {"b": 1}}],
            vec![doc! {"$unwind": {"path": "$b"}}, doc! {"$sort": {"sortKey": {"b": 1}}}],
        ),
        (
            vec![doc! {"$group": {"_id": "$a", "n": {"$sum": 1}}}, doc! {"$match": {"_id": 1, "n": 3}}],
            vec![
                doc! {"$match": {"a": {"$eq": 1}}},
                doc! {"$group": {"_id": "$a", "n": {"$sum": {"$const": 1}}}},
                doc! {"$match": {"n": {"$eq": 3}}},
            ],
        ),
        (
            vec![
                doc! {"$group": {"_id": {"x": "$a"}}},
                doc! {"$match": {"_id.x": 1, "_id.x.y": {"$exists": true}}},
            ],
            vec![
                doc! {"$match": {"a": {"$eq": 1}}},
                doc! {"$group": {"_id": {"x": "$a"}}},
                doc! {"$match": {"_id.x.y": {"$exists": true}}},
            ],
        ),
        (
            vec![doc! {"$group": {"_id": "$c.d"}}, doc! {"$match": {"_id": 1}}],
            vec![doc! {"$group": {"_id": "$c.d"}}, doc! {"$match": {"_id": {"$eq": 1}}}],
        ),
        (
            vec![doc! {"$limit": 1}, doc! {"$match": {"$alwaysFalse": 1}}],
            vec![doc! {"$limit": 1i64}, doc! {"$match": {"$alwaysFalse": 1}}],
        ),
        (
            vec![doc! {"$unionWith": "d"}, doc! {"$match": {"a": 1}}],
            vec![
                doc! {"$match": {"a": {"$eq": 1}}},
                doc! {"$unionWith": {"coll": "d", "pipeline": [{"$match": {"a": {"$eq": 1}}}]}},
            ],
        ),
    ] {
        let shown = format!("{written:?}");
        assert_eq!(optimised(written), expected, "{shown}");
    }
}

/// A group has one text for all that are equal to it, so what tells those apart must see the group.
#[test]
fn under_a_collation_only_comparisons_go_before_a_group() {
    let collation = kilim_collation::Collation::parse(doc! {"locale": "en", "strength": 2}.as_raw());
    let variables = Variables::default().under(collation.expect("a collation"));
    let scope = Scope::new(&variables);
    for (condition, passes) in [
        (doc! {"_id": "x"}, true),
        (doc! {"_id": {"$in": ["x", 3]}}, true),
        (doc! {"_id": {"$not": {"$gt": "x"}}}, true),
        (doc! {"_id": {"$regex": "x"}}, false),
        (doc! {"_id": {"$in": ["y", Value::Regex { pattern: "x".into(), options: String::new() }]}}, false),
        (doc! {"$expr": {"$eq": [{"$toUpper": "$_id"}, "X"]}}, false),
    ] {
        let stages = array![doc! {"$group": {"_id": "$a"}}, doc! {"$match": condition.clone()}];
        let context = Context::new(&scope, "test", Owner::Collection);
        let mut pipeline = Pipeline::parse(stages.as_raw(), &context).expect("a pipeline");
        pipeline.optimise();
        assert_eq!(matches!(pipeline.stages[0], Stage::Match(_)), passes, "{condition:?}");
    }
}
