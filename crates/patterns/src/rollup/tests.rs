//! What is kept by changes equals what is computed from scratch.

use kilim_bson::{Document, RawDocument, RawValue, Value, array, doc, encode_value};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{GroupState, Outcome, Rollup, Row};
use crate::declaration::Declaration;
use crate::effect::key_bytes;

fn rollup(fields: Document) -> Rollup {
    Declaration::parse("products", fields.as_raw()).unwrap().kind.rollup().unwrap().clone()
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
    let bytes = key_bytes(key);
    rollup.group_of(key, rows.iter().filter(|row| row.key_bytes == bytes)).unwrap()
}

/// Accumulators that keep a few of their rows, with ties of all sorts.
fn few() -> Rollup {
    let order = doc! {"rating": -1};
    rollup(doc! {"name": "few", "computed": {"from": "reviews", "pipeline": [
        {"$match": {"hidden": {"$ne": true}}},
        {"$group": {
            "_id": "$product",
            "best": {"$max": "$rating"},
            "worst": {"$min": "$rating"},
            "bestOnes": {"$maxN": {"n": 3, "input": "$rating"}},
            "worstOnes": {"$minN": {"n": 3, "input": "$rating"}},
            "top": {"$top": {"sortBy": order.clone(), "output": "$_id"}},
            "topOnes": {"$topN": {"n": 3, "sortBy": order.clone(), "output": "$_id"}},
            "bottom": {"$bottom": {"sortBy": order.clone(), "output": "$_id"}},
            "bottomOnes": {"$bottomN": {"n": 3, "sortBy": order, "output": "$_id"}},
            "first": {"$first": "$rating"},
            "last": {"$last": "$_id"},
            "firstOnes": {"$firstN": {"n": 3, "input": "$_id"}},
            "lastOnes": {"$lastN": {"n": 3, "input": "$rating"}},
        }},
    ]}})
}

/// Walks the children as the index would give them, and says how many it looked at.
fn refill(rollup: &Rollup, key: &Value, group: &mut GroupState, part: usize, reviews: &[Document]) -> usize {
    let walk = rollup.walk(part).unwrap();
    let index_key = |review: &Document| {
        let mut bytes = Vec::new();
        for (path, descends) in &walk.order {
            encode_value(&mut bytes, review.get(path).unwrap_or(RawValue::Null), *descends);
        }
        bytes
    };
    let mut walked: Vec<(Vec<u8>, u64, &Document)> =
        reviews.iter().zip(0..).map(|(review, came)| (index_key(review), came, review)).collect();
    walked.sort_by(|left, right| (&left.0, left.1).cmp(&(&right.0, right.1)));
    if walk.backward {
        walked.reverse();
    }
    let mut refill = rollup.refill(key.as_raw(), part).unwrap().unwrap();
    let mut looked = 0;
    'walk: for (_, came, review) in walked {
        for row in rollup.rows(review.as_raw()).unwrap() {
            looked += usize::from(row.key_bytes == key_bytes(key.as_raw()));
            if row.key_bytes == key_bytes(key.as_raw()) && refill.offer(came, row).unwrap() {
                break 'walk;
            }
        }
    }
    refill.finish(key.as_raw(), group).unwrap();
    looked
}

#[test]
fn groups_kept_by_changes_are_what_their_rows_say() {
    let (_, reads, _) = check_histories(&stats());
    assert!(reads > 0, "$push is read anew, and everything with it");
}

#[test]
fn what_was_lost_is_found_again_by_walking() {
    let (refills, reads, lost) = check_histories(&few());
    assert!(refills > 0 && reads == 0 && lost);
}

#[test]
fn a_walk_ends_when_it_has_enough() {
    let rollup = few();
    let key = Value::Int32(1);
    let reviews: Vec<Document> = (0..1000)
        .map(|id| doc! {"_id": id, "product": 1, "rating": id / 2, "hidden": id % 10 == 0})
        .collect();
    let mut group = from_scratch(&rollup, key.as_raw(), &reviews);
    let expected = rollup.result_of(key.as_raw(), &group).unwrap();
    for (part, (name, _)) in rollup.group.fields.iter().enumerate() {
        let looked = refill(&rollup, &key, &mut group, part, &reviews);
        assert!(looked <= 6, "{name} looked at {looked}");
    }
    assert_eq!(rollup.result_of(key.as_raw(), &group).unwrap(), expected);
}

#[test]
fn each_order_has_its_index_and_shares_it_where_it_can() {
    let expected = [doc! {"product": 1, "rating": -1}, doc! {"product": 1, "rating": 1}, doc! {"product": 1}];
    assert_eq!(few().supporting_indexes(), expected);
    let one = rollup(doc! {"name": "one", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$product", "best": {"$max": "$rating"}, "count": {"$count": {}},
                    "top": {"$topN": {"n": 2, "sortBy": {"rating": -1, "product": 1, "_id": 1}, "output": "$_id"}}}},
    ]}});
    assert_eq!(one.supporting_indexes(), [doc! {"product": 1, "rating": -1, "_id": 1}]);
}

/// Random children come, change and go; how often was refilled and read anew, and whether a parent that shows something
/// else was noticed.
fn check_histories(rollup: &Rollup) -> (usize, usize, bool) {
    let (mut refills, mut reads) = (0, 0);
    let mut lost_some = false;
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
                    let bytes = key_bytes(key.as_raw());
                    (0..rows.len()).filter(|at| rows[*at].key_bytes == bytes).collect()
                };
                let leave: Vec<Row> = own(&out).into_iter().map(|at| out[at].clone()).collect();
                let enter: Vec<Row> = own(&into).into_iter().map(|at| into[at].clone()).collect();
                if leave.is_empty() && enter.is_empty() {
                    continue;
                }
                let outcome =
                    rollup.change_group(key.as_raw(), group, &leave, &enter, before.is_none()).unwrap();
                match outcome {
                    Outcome::Done => {}
                    Outcome::Refill(parts) => {
                        refills += 1;
                        for part in parts {
                            refill(rollup, key, group, part, &reviews);
                        }
                    }
                    Outcome::ReadAnew => {
                        reads += 1;
                        *group = from_scratch(rollup, key.as_raw(), &reviews);
                    }
                }
                // With a parent that shows it, and by itself.
                let parent = rollup.merged(RawDocument::empty(), key.as_raw(), group).unwrap();
                let parent = parent.as_ref().filter(|_| random.random_bool(0.8)).map(Document::as_raw);
                let stored = rollup.encode_group(group, parent);
                let other = doc! {"top": [1], "topOnes": []};
                let lost = rollup.restore_group(&stored, Some(other.as_raw())).unwrap();
                lost_some |= rollup.missing(&lost) != Outcome::Done;
                *group = rollup.restore_group(&stored, parent).unwrap();
                let expected = from_scratch(rollup, key.as_raw(), &reviews);
                assert_eq!(
                    rollup.result_of(key.as_raw(), group).unwrap(),
                    rollup.result_of(key.as_raw(), &expected).unwrap(),
                    "seed {seed} step {step}"
                );
            }
        }
    }
    (refills, reads, lost_some)
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
    assert_eq!(rollup.supporting_indexes(), [doc! {"product": 1, "date": -1, "_id": 1}]);
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
