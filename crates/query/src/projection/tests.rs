//! Projections of documents. Every expectation is what mongod answers.

use kilim_bson::{Document, Writer, doc};
use kilim_error::Result;

use super::Projection;
use crate::filter::Filter;

fn apply(projection: &Document, filter: &Document, document: &Document) -> Result<Document> {
    let projection = Projection::parse(projection.as_raw())?;
    let filter = Filter::parse(filter.as_raw())?;
    let mut out = Writer::new();
    let position = projection.position(&filter, document.as_raw()).unwrap();
    projection.apply(document.as_raw(), position, &mut out)?;
    Ok(out.finish())
}

#[test]
fn fields_are_included_left_out_sliced_and_matched() {
    let document = doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5};
    for (projection, filter, expected) in [
        (
            doc! {"x": {"$elemMatch": {"y": 2}}, "b": 1},
            doc! {},
            Ok(doc! {"_id": 1, "b": {"c": 1, "d": [1, 2, 3]}, "x": [{"y": 2, "z": 2}]}),
        ),
        (
            doc! {"b": 1, "x": {"$elemMatch": {"y": 2}}},
            doc! {},
            Ok(doc! {"_id": 1, "b": {"c": 1, "d": [1, 2, 3]}, "x": [{"y": 2, "z": 2}]}),
        ),
        (doc! {"x": {"$elemMatch": {"y": 2}}}, doc! {}, Ok(doc! {"_id": 1, "x": [{"y": 2, "z": 2}]})),
        (doc! {"x": {"$elemMatch": {"y": 9}}}, doc! {}, Ok(doc! {"_id": 1})),
        (
            doc! {"x": {"$elemMatch": {"y": 2}}, "b": 0},
            doc! {},
            Ok(doc! {"_id": 1, "x": [{"y": 2, "z": 2}], "a": [1, 2, 3], "n": 5}),
        ),
        (doc! {"x": {"$elemMatch": {"y": 9}}, "b": 0}, doc! {}, Ok(doc! {"_id": 1, "a": [1, 2, 3], "n": 5})),
        (doc! {"a": {"$elemMatch": {"$gt": 1}}}, doc! {}, Ok(doc! {"_id": 1, "a": [2]})),
        (doc! {"n": {"$elemMatch": {"$gt": 1}}}, doc! {}, Ok(doc! {"_id": 1})),
        (doc! {"q": {"$elemMatch": {"$gt": 1}}}, doc! {}, Ok(doc! {"_id": 1})),
        (doc! {"x": {"$elemMatch": {"y": 2}}, "_id": 0}, doc! {}, Ok(doc! {"x": [{"y": 2, "z": 2}]})),
        (
            doc! {"x": {"$elemMatch": {"y": 2}}, "a": {"$slice": 1}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [{"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5}),
        ),
        (
            doc! {"a": {"$slice": 1}, "x": {"$elemMatch": {"y": 2}}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [{"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5}),
        ),
        (
            doc! {"a": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": -2}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [2, 3], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [1, 1]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [2], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [-2, 1]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [2], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [-9, 1]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [9, 1]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": 0}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [], "n": 5},
            ),
        ),
        (
            doc! {"n": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": 1}, "b": 1},
            doc! {},
            Ok(doc! {"_id": 1, "b": {"c": 1, "d": [1, 2, 3]}, "a": [1]}),
        ),
        (
            doc! {"b": 1, "a": {"$slice": 1}},
            doc! {},
            Ok(doc! {"_id": 1, "b": {"c": 1, "d": [1, 2, 3]}, "a": [1]}),
        ),
        (
            doc! {"b": 0, "a": {"$slice": 1}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "a": [1], "n": 5}),
        ),
        (
            doc! {"b.d": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"b.d": {"$slice": 1}, "n": 1}, doc! {}, Ok(doc! {"_id": 1, "b": {"d": [1]}, "n": 5})),
        (
            doc! {"b": {"d": {"$slice": 1}}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (
            doc! {"x.y": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (
            doc! {"x": {"$slice": 1}, "_id": 0},
            doc! {},
            Ok(doc! {"x": [{"y": 1, "z": 1}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5}),
        ),
        (doc! {"_id": 1, "a": {"$slice": 1}}, doc! {}, Ok(doc! {"_id": 1, "a": [1]})),
        (
            doc! {"a": {"$slice": 1.9}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": -1.9}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [3], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [0, 1099511627776i64]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"_id": 0, "a": {"$slice": 1}, "n": 1}, doc! {}, Ok(doc! {"a": [1], "n": 5})),
        (
            doc! {"q": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"q.r": {"$slice": 1}, "n": 1}, doc! {}, Ok(doc! {"_id": 1, "n": 5})),
        (
            doc! {"a": {"$slice": 1099511627776i64}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": -1099511627776i64}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (
            doc! {"a": {"$slice": [-1099511627776i64, 1]}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1], "n": 5},
            ),
        ),
        (doc! {"a": 1}, doc! {}, Ok(doc! {"_id": 1, "a": [1, 2, 3]})),
        (
            doc! {"a": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "n": 5},
            ),
        ),
        (doc! {"b.c": 1}, doc! {}, Ok(doc! {"_id": 1, "b": {"c": 1}})),
        (
            doc! {"b.c": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"x.y": 1}, doc! {}, Ok(doc! {"_id": 1, "x": [{"y": 1}, {"y": 2}]})),
        (
            doc! {"x.y": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"z": 1}, {"z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"b": {"c": 1}}, doc! {}, Ok(doc! {"_id": 1, "b": {"c": 1}})),
        (
            doc! {"b": {"c": 0}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"n.z": 1}, doc! {}, Ok(doc! {"_id": 1})),
        (
            doc! {"n.z": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"q.z": 1}, doc! {}, Ok(doc! {"_id": 1})),
        (
            doc! {"q.z": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"n": 1, "a": 1}, doc! {}, Ok(doc! {"_id": 1, "a": [1, 2, 3], "n": 5})),
        (
            doc! {"_id": 0},
            doc! {},
            Ok(
                doc! {"x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"_id": 1}, doc! {}, Ok(doc! {"_id": 1})),
        (doc! {"n": 1, "_id": 0}, doc! {}, Ok(doc! {"n": 5})),
        (
            doc! {"_id": 1, "n": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3]},
            ),
        ),
        (doc! {"b.c": 1, "b": {"d": 1}}, doc! {}, Ok(doc! {"_id": 1, "b": {"c": 1, "d": [1, 2, 3]}})),
        (doc! {"a.0": 1}, doc! {}, Ok(doc! {"_id": 1, "a": []})),
        (
            doc! {"a.0": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"x.0.y": 1}, doc! {}, Ok(doc! {"_id": 1, "x": [{}, {}]})),
        (
            doc! {"x.0.y": 0},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
        (doc! {"b.d.0": 1}, doc! {}, Ok(doc! {"_id": 1, "b": {"d": []}})),
        (
            doc! {},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [{"y": 1, "z": 1}, {"y": 2, "z": 2}], "b": {"c": 1, "d": [1, 2, 3]}, "a": [1, 2, 3], "n": 5},
            ),
        ),
    ] {
        let projected = apply(&projection, &filter, &document).map_err(|error| error.code().0);
        assert_eq!(projected, expected, "{projection:?} with {filter:?}");
    }
}

#[test]
fn the_answer_keeps_the_order_of_the_document() {
    let document = doc! {"_id": 2, "a": 1, "b": 3};
    for (projection, filter, expected) in [
        (doc! {"a": 1}, doc! {}, Ok(doc! {"_id": 2, "a": 1})),
        (doc! {"b": 1, "a": 1}, doc! {}, Ok(doc! {"_id": 2, "a": 1, "b": 3})),
        (doc! {"b": 0}, doc! {}, Ok(doc! {"_id": 2, "a": 1})),
    ] {
        let projected = apply(&projection, &filter, &document).map_err(|error| error.code().0);
        assert_eq!(projected, expected, "{projection:?} with {filter:?}");
    }
}

#[test]
fn arrays_are_projected_element_by_element() {
    let document =
        doc! {"_id": 1, "x": [[{"y": 1, "z": 1}], 5, {"y": [{"w": 1, "v": 2}, 3], "z": 2}, [], {}, null]};
    for (projection, filter, expected) in [
        (
            doc! {"x.y": 1},
            doc! {},
            Ok(doc! {"_id": 1, "x": [[{"y": 1}], {"y": [{"w": 1, "v": 2}, 3]}, [], {}]}),
        ),
        (doc! {"x.y": 0}, doc! {}, Ok(doc! {"_id": 1, "x": [[{"z": 1}], 5, {"z": 2}, [], {}, null]})),
        (doc! {"x.y.w": 1}, doc! {}, Ok(doc! {"_id": 1, "x": [[{}], {"y": [{"w": 1}]}, [], {}]})),
        (
            doc! {"x.y.w": 0},
            doc! {},
            Ok(doc! {"_id": 1, "x": [[{"y": 1, "z": 1}], 5, {"y": [{"v": 2}, 3], "z": 2}, [], {}, null]}),
        ),
        (
            doc! {"x.y": {"$slice": 1}},
            doc! {},
            Ok(
                doc! {"_id": 1, "x": [[{"y": 1, "z": 1}], 5, {"y": [{"w": 1, "v": 2}], "z": 2}, [], {}, null]},
            ),
        ),
        (
            doc! {"x.y": {"$slice": 1}, "n": 1},
            doc! {},
            Ok(doc! {"_id": 1, "x": [[{"y": 1}], {"y": [{"w": 1, "v": 2}]}, [], {}]}),
        ),
        (
            doc! {"x": {"$slice": [1, 2]}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [5, {"y": [{"w": 1, "v": 2}, 3], "z": 2}]}),
        ),
        (doc! {"x": {"$elemMatch": {"y": 1}}}, doc! {}, Ok(doc! {"_id": 1})),
        (
            doc! {"x": {"$elemMatch": {"0": {"$exists": true}}}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [[{"y": 1, "z": 1}]]}),
        ),
        (
            doc! {"x": {"y": 1}},
            doc! {},
            Ok(doc! {"_id": 1, "x": [[{"y": 1}], {"y": [{"w": 1, "v": 2}, 3]}, [], {}]}),
        ),
        (doc! {"x": {"y": {"w": 1}}}, doc! {}, Ok(doc! {"_id": 1, "x": [[{}], {"y": [{"w": 1}]}, [], {}]})),
    ] {
        let projected = apply(&projection, &filter, &document).map_err(|error| error.code().0);
        assert_eq!(projected, expected, "{projection:?} with {filter:?}");
    }
}

#[test]
fn the_positional_operator_shows_one_element() {
    let document = doc! {"_id": 1, "a": [1, 2, 3], "x": [7, {"y": 1, "z": [1, 2]}, {"y": 2, "z": [3, 4]}], "b": {"c": [5, 6], "d": 1}, "n": 1, "w": [[1, 2], [3, 4]]};
    for (projection, filter, expected) in [
        (doc! {"a.$": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1, "a": [2]})),
        (doc! {"a.$": 1}, doc! {"a": {"$gt": 1}}, Ok(doc! {"_id": 1, "a": [2]})),
        (doc! {"a.$": 1}, doc! {"a": {"$elemMatch": {"$gt": 2}}}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"x.$": 1}, doc! {"x.y": 2}, Ok(doc! {"_id": 1, "x": [{"y": 2, "z": [3, 4]}]})),
        (doc! {"x.y.$": 1}, doc! {"x.y": 2}, Ok(doc! {"_id": 1, "x": [{"y": 2}]})),
        (doc! {"x.z.$": 1}, doc! {"x.z": 4}, Ok(doc! {"_id": 1, "x": [{"z": [3, 4]}]})),
        (
            doc! {"x.$": 1},
            doc! {"x": {"$elemMatch": {"y": 2}}},
            Ok(doc! {"_id": 1, "x": [{"y": 2, "z": [3, 4]}]}),
        ),
        (doc! {"a.$": 1}, doc! {"x.y": 2}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"a.$": 1}, doc! {"x": {"$elemMatch": {"z": 3}}}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"b.c.$": 1}, doc! {"b.c": 6}, Ok(doc! {"_id": 1, "b": {"c": [6]}})),
        (doc! {"b.$": 1}, doc! {"b.c": 6}, Ok(doc! {"_id": 1, "b": {"c": [5, 6], "d": 1}})),
        (doc! {"n.$": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1, "n": 1})),
        (doc! {"q.$": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1})),
        (doc! {"a.$": 1}, doc! {"n": 1}, Err(51246)),
        (doc! {"a.$": 1, "n": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1, "a": [2], "n": 1})),
        (doc! {"n": 1, "a.$": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1, "a": [2], "n": 1})),
        (doc! {"b.c.$": 1}, doc! {"a": 2}, Ok(doc! {"_id": 1, "b": {"c": [6]}})),
        (doc! {"b.c.$": 1}, doc! {"a": 3}, Err(51247)),
        (doc! {"a.$": 1}, doc! {"x.z": 4, "a": 1}, Ok(doc! {"_id": 1, "a": [1]})),
        (doc! {"a.$": 1}, doc! {"a": 1, "x.z": 4}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"a.$": 1}, doc! {"$or": [{"a": 3}, {"a": 2}]}, Ok(doc! {"_id": 1, "a": [2]})),
        (doc! {"a.$": 1}, doc! {"$and": [{"a": 3}, {"a": 2}]}, Ok(doc! {"_id": 1, "a": [2]})),
        (doc! {"a.$": 1}, doc! {"a": {"$ne": 9}}, Err(51246)),
        (doc! {"w.$": 1}, doc! {"w": [3, 4]}, Ok(doc! {"_id": 1, "w": [[3, 4]]})),
        (doc! {"a.$": 1}, doc! {"a.1": 2}, Err(51246)),
        (doc! {"x.$": 1}, doc! {"x.2.z": 4}, Ok(doc! {"_id": 1, "x": [{"y": 1, "z": [1, 2]}]})),
        (doc! {"x.$": 1}, doc! {"x.2.y": 2}, Err(51246)),
        (doc! {"a.$": 1}, doc! {"a": {"$in": [3]}}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"a.$": 1}, doc! {"a": {"$all": [2, 3]}}, Ok(doc! {"_id": 1, "a": [3]})),
        (doc! {"a.$": 1}, doc! {"a": [1, 2, 3]}, Err(51246)),
        (doc! {"a.$": 1, "_id": 0}, doc! {"a": 2}, Ok(doc! {"a": [2]})),
        (doc! {"b": {"c.$": 1}}, doc! {"b.c": 6}, Ok(doc! {"_id": 1, "b": {"c": [6]}})),
        (
            doc! {"a.$": 1, "b": {"$slice": 1}},
            doc! {"a": 2},
            Ok(doc! {"_id": 1, "a": [2], "b": {"c": [5, 6], "d": 1}}),
        ),
        (
            doc! {"x.$": 1, "a": {"$slice": 1}},
            doc! {"x.y": 2},
            Ok(doc! {"_id": 1, "a": [1], "x": [{"y": 2, "z": [3, 4]}]}),
        ),
        (doc! {"a.$": 1}, doc! {"a": {"$exists": true}}, Ok(doc! {"_id": 1, "a": [1]})),
        (doc! {"a.$": 1}, doc! {"a": {"$type": "int"}}, Ok(doc! {"_id": 1, "a": [1]})),
        (doc! {"a.$": 1}, doc! {"a": {"$size": 3}}, Err(51246)),
        (doc! {"a.$": 1}, doc! {"a": {"$not": {"$gt": 5}}}, Err(51246)),
        (doc! {"a.$": 1}, doc! {"$nor": [{"a": 5}]}, Err(51246)),
        (doc! {"a.$": 1}, doc! {"a": {"$gt": 1, "$lt": 2.5}}, Ok(doc! {"_id": 1, "a": [1]})),
        (doc! {"a.$": 1}, doc! {"a": {"$gt": 2, "$lt": 3}}, Ok(doc! {"_id": 1, "a": [1]})),
    ] {
        let projected = apply(&projection, &filter, &document).map_err(|error| error.code().0);
        assert_eq!(projected, expected, "{projection:?} with {filter:?}");
    }
}

#[test]
fn positions_count_in_the_outermost_array() {
    let document = doc! {"_id": 1, "x": [{"y": [{"z": 1}, {"z": 2}]}, {"y": [{"z": 3}, {"z": 4}]}]};
    for (projection, filter, expected) in [
        (doc! {"x.y.$": 1}, doc! {"x.y.z": 4}, Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]})),
        (doc! {"x.$": 1}, doc! {"x.y.z": 4}, Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]})),
        (doc! {"x.y.z.$": 1}, doc! {"x.y.z": 2}, Ok(doc! {"_id": 1, "x": [{"y": [{"z": 1}, {"z": 2}]}]})),
        (doc! {"x.$": 1}, doc! {"x.1.y.z": 4}, Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]})),
        (
            doc! {"x.$": 1},
            doc! {"x": {"$elemMatch": {"y.z": 3}}},
            Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]}),
        ),
        (
            doc! {"x.$": 1},
            doc! {"x.y": {"$elemMatch": {"z": 4}}},
            Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]}),
        ),
        (
            doc! {"x.$": 1},
            doc! {"x.1.y": {"$elemMatch": {"z": 3}}},
            Ok(doc! {"_id": 1, "x": [{"y": [{"z": 1}, {"z": 2}]}]}),
        ),
        (doc! {"x.$": 1}, doc! {"x.1.y.1.z": 4}, Err(51246)),
        (doc! {"x.$": 1}, doc! {"x.y.1.z": 4}, Ok(doc! {"_id": 1, "x": [{"y": [{"z": 3}, {"z": 4}]}]})),
    ] {
        let projected = apply(&projection, &filter, &document).map_err(|error| error.code().0);
        assert_eq!(projected, expected, "{projection:?} with {filter:?}");
    }
}

#[test]
fn malformed_projections_get_the_errors_of_mongod() {
    for (projection, code, message) in [
        (doc! {"a": 1, "b": 0}, 31254, "Cannot do exclusion on field b in inclusion projection"),
        (doc! {"a": 0, "b": 1}, 31253, "Cannot do inclusion on field b in exclusion projection"),
        (doc! {"a.b": 1, "a": 1}, 31250, "Path collision at a"),
        (doc! {"a": 1, "a.b": 1}, 31249, "Path collision at a.b remaining portion b"),
        (doc! {"a.b": 1, "a.b.c": 1}, 31249, "Path collision at a.b.c remaining portion b.c"),
        (doc! {"a": 0, "a.b": 0}, 31249, "Path collision at a.b remaining portion b"),
        (doc! {"a": {"b": 1}, "a.b": 1}, 31250, "Path collision at a.b"),
        (doc! {"a.b": 1, "a": {"b": 1}}, 31250, "Path collision at b"),
        (doc! {"a": {}}, 51270, "An empty sub-projection is not a valid value. Found empty object at path"),
        (
            doc! {"a": {"b": {}}},
            51270,
            "An empty sub-projection is not a valid value. Found empty object at path",
        ),
        (doc! {"": 1}, 40352, "FieldPath cannot be constructed with empty string"),
        (doc! {"a.": 1}, 40353, "FieldPath must not end with a '.'."),
        (doc! {".a": 1}, 15998, "FieldPath field names may not be empty strings."),
        (doc! {"a..b": 1}, 15998, "FieldPath field names may not be empty strings."),
        (
            doc! {"$a": 1},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (
            doc! {"a.$b": 1},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (
            doc! {"a.$b.c": 1},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (doc! {"a.$": 0}, 31395, "positional projection cannot be used with exclusion"),
        (doc! {"a.$": 1, "x.$": 1}, 31276, "Cannot specify more than one positional projection per query."),
        (
            doc! {"a.$.b": 1},
            31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
        ),
        (doc! {"a.$": 1, "b": 0}, 31254, "Cannot do exclusion on field b in inclusion projection"),
        (doc! {"b": 0, "a.$": 1}, 31253, "Cannot do inclusion on field a.$ in exclusion projection"),
        (
            doc! {"$": 1},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (doc! {"a.$": 1, "a": 1}, 31250, "Path collision at a"),
        (doc! {"a": 1, "a.$": 1}, 31250, "Path collision at a"),
        (
            doc! {"a.$.$": 1},
            31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
        ),
        (doc! {"a.$": "x"}, 31308, "positional projection cannot be used with a literal"),
        (
            doc! {"a.$": {"x": 1}},
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        (
            doc! {"a.$": {"$slice": 1}},
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        (
            doc! {"a.$": {"$elemMatch": {"b": 1}}},
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        (
            doc! {"a.$": 1, "x": {"$elemMatch": {"y": 1}}},
            31255,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (
            doc! {"x": {"$elemMatch": {"y": 1}}, "a.$": 1},
            31256,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (doc! {"a": {"$slice": 1}, "a.$": 1}, 31250, "Path collision at a"),
        (
            doc! {"a": {"$slice": "x"}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: \"x\" } did not match the find() syntax because :: Location31273: $slice only supports numbers and [skip, limit] arrays :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
        (
            doc! {"a": {"$slice": [1]}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: [ 1 ] } did not match the find() syntax because :: Location31272: $slice array argument should be of form [skip, limit] :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
        (
            doc! {"a": {"$slice": [1, 2, 3]}},
            28724,
            "First argument to $slice must be an array, but is of type: int",
        ),
        (
            doc! {"a": {"$slice": [1, -1]}},
            28724,
            "First argument to $slice must be an array, but is of type: int",
        ),
        (
            doc! {"a": {"$slice": [1, 0]}},
            28724,
            "First argument to $slice must be an array, but is of type: int",
        ),
        (
            doc! {"a": {"$slice": ["a", 1]}},
            28724,
            "First argument to $slice must be an array, but is of type: string",
        ),
        (
            doc! {"a": {"$slice": [1, "a"]}},
            28724,
            "First argument to $slice must be an array, but is of type: int",
        ),
        (
            doc! {"a": {"$slice": null}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: null } did not match the find() syntax because :: Location31273: $slice only supports numbers and [skip, limit] arrays :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
        (
            doc! {"a": {"$slice": []}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: [] } did not match the find() syntax because :: Location31272: $slice array argument should be of form [skip, limit] :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 0 were passed in.",
        ),
        (
            doc! {"a": {"$slice": 1, "$elemMatch": {}}},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (
            doc! {"a": {"$slice": 1, "x": 1}},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (doc! {"x": {"$elemMatch": 1}}, 31274, "elemMatch: Invalid argument, object required, but got int"),
        (
            doc! {"x.y": {"$elemMatch": {"y": 1}}},
            31275,
            "Cannot use $elemMatch projection on a nested field.",
        ),
        (doc! {"x": {"$elemMatch": {"$foo": 1}}}, 2, "unknown operator: $foo"),
        (doc! {"x": {"$elemMatch": {"y": 1}}, "x.y": 1}, 31249, "Path collision at x.y remaining portion y"),
        (
            doc! {"b": {"x": {"$elemMatch": {"y": 1}}}},
            31275,
            "Cannot use $elemMatch projection on a nested field.",
        ),
        (
            doc! {"a": {"$meta": "textScore"}},
            40218,
            "query requires text score metadata, but it is not available",
        ),
        (doc! {"a": {"$meta": "foo"}}, 17308, "Unsupported argument to $meta: foo"),
        (doc! {"b": 0, "a": "x"}, 31310, "Cannot use an expression a: \"x\" in an exclusion projection"),
        (doc! {"_id.x": 1, "a": 0}, 31254, "Cannot do exclusion on field a in inclusion projection"),
        (doc! {"_id.x": 0, "a": 1}, 31253, "Cannot do inclusion on field a in exclusion projection"),
        (doc! {"_id": 0, "_id.x": 0}, 31249, "Path collision at _id.x remaining portion x"),
        (doc! {"_id": {"x": 0}, "a": 1}, 31253, "Cannot do inclusion on field a in exclusion projection"),
        (doc! {"a": true, "b": false}, 31254, "Cannot do exclusion on field b in inclusion projection"),
        (doc! {"b": {"c": 1, "d": 0}}, 31254, "Cannot do exclusion on field d in inclusion projection"),
        (doc! {"b": {"c": 1}, "a": 0}, 31254, "Cannot do exclusion on field a in inclusion projection"),
        (doc! {"b": {"c": 0}, "a": 1}, 31253, "Cannot do inclusion on field a in exclusion projection"),
        (
            doc! {"b": {"c": 1, "$slice": 1}},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (
            doc! {"b": {"$slice": 1, "c": 1}},
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (doc! {"b": {"": 1}}, 40352, "FieldPath cannot be constructed with empty string"),
        (doc! {".": 1}, 40353, "FieldPath must not end with a '.'."),
        (
            doc! {"a.$.": 1},
            31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
        ),
        (
            doc! {"x": 1, "x.y": {"$slice": 1}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: 1 } did not match the find() syntax because :: Location31249: Path collision at x.y remaining portion y :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
        (doc! {"x.y": {"$slice": 1}, "x": 1}, 31250, "Path collision at x"),
        (doc! {"x": {"$slice": 1}, "x.y": 1}, 31249, "Path collision at x.y remaining portion y"),
        (
            doc! {"x.y": 1, "x": {"$slice": 1}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: 1 } did not match the find() syntax because :: Location31250: Path collision at x :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
        (
            doc! {"a": {"$slice": {"x": 1}}},
            28667,
            "Invalid $slice syntax. The given syntax { $slice: { x: 1 } } did not match the find() syntax because :: Location31273: $slice only supports numbers and [skip, limit] arrays :: The given syntax did not match the expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
        ),
    ] {
        let error = Projection::parse(projection.as_raw()).expect_err("malformed");
        assert_eq!((error.code().0, error.to_string().as_str()), (code, message), "{projection:?}");
    }
}

#[test]
fn the_planner_learns_which_fields_are_enough() {
    for (projection, expected) in [
        (doc! {"a": 1}, Some(vec!["_id", "a"])),
        (doc! {"a": 1, "_id": 0}, Some(vec!["a"])),
        (doc! {"a.b": 1, "c": {"d": true}, "_id": 0}, Some(vec!["a.b", "c.d"])),
        (doc! {"_id": 1}, Some(vec!["_id"])),
        (doc! {"a": 0}, None),
        (doc! {"_id": 0}, None),
        (doc! {}, None),
        (doc! {"a": {"$slice": 1}, "b": 1}, None),
        (doc! {"a": {"$elemMatch": {"b": 1}}}, None),
        (doc! {"a.$": 1}, None),
    ] {
        let parsed = Projection::parse(projection.as_raw()).expect("a projection");
        let needed = parsed.needed_fields().map(|paths| {
            let mut names: Vec<String> = paths.iter().map(|path| path.to_string()).collect();
            names.sort();
            names
        });
        assert_eq!(
            needed,
            expected.map(|names| names.into_iter().map(String::from).collect()),
            "{projection:?}"
        );
    }
}
