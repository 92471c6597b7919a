//! What is kept by changes equals what is computed from scratch.

use kilim_bson::{Document, RawValue, Value, array, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{GroupState, Outcome, Rollup, Row};
use crate::declaration::{Declaration, Kind};

fn rollup(fields: Document) -> Rollup {
    match Declaration::parse("products", fields.as_raw()).unwrap().kind {
        Kind::Rollup(rollup) => rollup,
        other => panic!("{other:?}"),
    }
}

fn stats() -> Rollup {
    rollup(doc! {"name": "stats", "computed": {"from": "reviews", "pipeline": [
        {"$match": {"hidden": {"$ne": true}}},
        {"$group": {
            "_id": "$product",
            "count": {"$count": {}},
            "average": {"$avg": "$rating"},
            "sum": {"$sum": "$rating"},
            "best": {"$max": "$rating"},
            "worst": {"$min": "$rating"},
            "spread": {"$stdDevPop": "$rating"},
            "all": {"$push": "$rating"},
            "different": {"$addToSet": "$rating"},
            "first": {"$first": "$rating"},
            "top": {"$topN": {"n": 2, "sortBy": {"rating": -1, "_id": 1}, "output": "$_id"}},
        }},
        {"$set": {"known": {"$gt": ["$count", 0]}}},
    ]}})
}

fn rating(random: &mut StdRng) -> Value {
    match random.random_range(0..8) {
        0 => Value::Null,
        1 => "x".into(),
        2 => Value::Int64(random.random_range(0..5)),
        3 => Value::Double(random.random_range(0..50) as f64 / 10.0),
        _ => Value::Int32(random.random_range(0..5)),
    }
}

fn review(random: &mut StdRng, id: i32) -> Document {
    let mut review = doc! {"_id": id, "product": random.random_range(0..3)};
    if random.random_range(0..10) > 0 {
        review.push("rating", rating(random));
    }
    if random.random_range(0..5) == 0 {
        review.push("hidden", true);
    }
    review
}

fn from_scratch(rollup: &Rollup, key: RawValue<'_>, reviews: &[Document]) -> GroupState {
    let rows: Vec<Row> = reviews.iter().flat_map(|review| rollup.rows(review.as_raw()).unwrap()).collect();
    let key_bytes = Rollup::key_bytes(key);
    rollup.group_of(key, rows.iter().filter(|row| row.key_bytes == key_bytes)).unwrap()
}

#[test]
fn groups_kept_by_changes_are_what_their_rows_say() {
    let rollup = stats();
    let mut reads = 0;
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut reviews: Vec<Document> = Vec::new();
        let keys: Vec<Value> = (0..3).map(Value::Int32).collect();
        let mut groups: Vec<GroupState> =
            keys.iter().map(|key| rollup.empty_group(key.as_raw()).unwrap()).collect();
        for step in 0..60 {
            let (before, after) = match random.random_range(0..4) {
                0 if !reviews.is_empty() => {
                    (Some(reviews.remove(random.random_range(0..reviews.len()))), None)
                }
                1 if !reviews.is_empty() => {
                    let at = random.random_range(0..reviews.len());
                    let id = match reviews[at].get("_id") {
                        Some(RawValue::Int32(id)) => id,
                        _ => unreachable!(),
                    };
                    let after = review(&mut random, id);
                    (Some(std::mem::replace(&mut reviews[at], after.clone())), Some(after))
                }
                _ => {
                    let after = review(&mut random, step);
                    reviews.push(after.clone());
                    (None, Some(after))
                }
            };
            let rows = |review: &Option<Document>| {
                review.as_ref().map_or(Vec::new(), |review| rollup.rows(review.as_raw()).unwrap())
            };
            let (out, into) = (rows(&before), rows(&after));
            for (key, group) in keys.iter().zip(&mut groups) {
                let own = |rows: &'_ [Row]| -> Vec<usize> {
                    let bytes = Rollup::key_bytes(key.as_raw());
                    (0..rows.len()).filter(|at| rows[*at].key_bytes == bytes).collect()
                };
                let leave: Vec<&Row> = own(&out).into_iter().map(|at| &out[at]).collect();
                let enter: Vec<&Row> = own(&into).into_iter().map(|at| &into[at]).collect();
                if leave.is_empty() && enter.is_empty() {
                    continue;
                }
                let outcome =
                    rollup.change_group(key.as_raw(), group, &leave, &enter, before.is_none()).unwrap();
                if outcome == Outcome::ReadAnew {
                    reads += 1;
                    *group = from_scratch(&rollup, key.as_raw(), &reviews);
                }
                let stored = group.to_document();
                *group = rollup.restore_group(stored.as_raw()).unwrap();
                let expected = from_scratch(&rollup, key.as_raw(), &reviews);
                assert_eq!(
                    rollup.result_of(key.as_raw(), group).unwrap(),
                    rollup.result_of(key.as_raw(), &expected).unwrap(),
                    "seed {seed} step {step}"
                );
            }
        }
    }
    assert!(reads > 0, "some rows cannot be taken out");
}

#[test]
fn an_empty_group_has_its_fields() {
    let rollup = stats();
    let empty = rollup.empty_group(RawValue::Int32(1)).unwrap();
    let parent = doc! {"_id": 1, "name": "lamp"};
    let made = rollup.merged(parent.as_raw(), RawValue::Int32(1), &empty).unwrap().unwrap();
    let expected = doc! {
        "_id": 1, "name": "lamp", "count": 0, "average": null, "sum": 0, "best": null, "worst": null, "spread": null,
        "all": [], "different": [], "first": null, "top": [], "known": false,
    };
    assert_eq!(made, expected);
    assert!(rollup.merged(made.as_raw(), RawValue::Int32(1), &empty).unwrap().is_none());
}

#[test]
fn a_subset_is_the_first_of_an_order() {
    let rollup = rollup(doc! {"name": "recent", "subset": {
        "from": "reviews", "localField": "_id", "foreignField": "product", "as": "recent.reviews",
        "sort": {"date": -1}, "limit": 2, "match": {"hidden": {"$ne": true}}, "fields": {"text": 1},
    }});
    let reviews = [
        doc! {"_id": 1, "product": 7, "date": 1, "text": "a", "more": 1},
        doc! {"_id": 3, "product": 7, "date": 5, "text": "b"},
        doc! {"_id": 2, "product": 7, "date": 5, "text": "c"},
        doc! {"_id": 4, "product": 7, "date": 9, "text": "d", "hidden": true},
    ];
    let group = from_scratch(&rollup, RawValue::Int32(7), &reviews);
    let parent = doc! {"_id": 7, "recent": {"x": 1}};
    let made = rollup.merged(parent.as_raw(), RawValue::Int32(7), &group).unwrap().unwrap();
    let expected = doc! {"_id": 7, "recent": {"x": 1, "reviews": array![
        doc! {"_id": 2, "text": "c"}, doc! {"_id": 3, "text": "b"},
    ]}};
    assert_eq!(made, expected);
    assert_eq!(rollup.supporting_index(), Some(doc! {"product": 1, "date": -1, "_id": 1}));
    assert_eq!(rollup.key_field(), Some("product"));
}

#[test]
fn an_unwound_child_is_in_several_groups() {
    let rollup = rollup(doc! {"name": "sold", "computed": {"from": "orders", "pipeline": [
        {"$unwind": "$lines"},
        {"$group": {"_id": "$lines.sku", "sold": {"$sum": "$lines.n"}}},
    ]}});
    let order = doc! {"_id": 1, "lines": array![doc! {"sku": "a", "n": 2}, doc! {"sku": "b", "n": 3}, doc! {"sku": "a", "n": 1}]};
    let rows = rollup.rows(order.as_raw()).unwrap();
    assert_eq!(rows.len(), 3);
    let key = Value::from("a");
    let group = from_scratch(&rollup, key.as_raw(), &[order]);
    assert_eq!(rollup.result_of(key.as_raw(), &group).unwrap(), doc! {"_id": "a", "sold": 3});
    assert_eq!(rollup.key_field(), None, "the key is not a field of the child");
}

#[test]
fn a_change_that_no_accumulator_sees_is_none() {
    let rollup = stats();
    let rows = |review: Document| rollup.rows(review.as_raw()).unwrap();
    let before = rows(doc! {"_id": 1, "product": 1, "rating": 3, "text": "a"});
    let same = rows(doc! {"_id": 1, "product": 1, "rating": 3, "text": "b"});
    let other = rows(doc! {"_id": 1, "product": 1, "rating": 3.0, "text": "b"});
    assert!(rollup.same_rows(&before, &same).unwrap());
    assert!(!rollup.same_rows(&before, &other).unwrap(), "the type shows");
}
