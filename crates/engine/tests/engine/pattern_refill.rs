//! Refilling reads a few children by the supporting index, and comes to what all of them would say.

use std::sync::Arc;

use kilim_bson::{Document, Value, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::pattern::{declare, make, one, wait_until_active};
use crate::support::{Db, everywhere, ns, spec};

/// Documents that a write read for maintenance.
fn examined(db: &Db, write: impl FnOnce()) -> u64 {
    let before = db.engine.metrics.documents_examined.get();
    write();
    db.engine.metrics.documents_examined.get() - before
}

fn assert_true(db: &Db, name: &str) {
    let pattern = db.engine.pattern(&ns("products"), name).unwrap();
    let operation = Arc::clone(&db.engine.operations.start(1));
    let found = db.engine.verify_pattern(&operation, &pattern, None, 10).unwrap();
    assert_eq!(found.wrong, 0, "{name}: {:?}", found.examples);
}

fn recent() -> Document {
    doc! {"name": "recent", "subset": {
        "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"date": -1}, "limit": 5,
        "match": {"hidden": {"$ne": true}}, "fields": {"rating": 1},
    }}
}

/// Each keeps a few rows of an order of its own.
fn few() -> Document {
    doc! {"name": "few", "computed": {"from": "reviews", "pipeline": [
        {"$match": {"hidden": {"$ne": true}}},
        {"$group": {
            "_id": "$product", "count": {"$count": {}}, "sum": {"$sum": "$rating"},
            "best": {"$max": "$rating"}, "worst": {"$min": "$rating"},
            "first": {"$first": "$_id"}, "last": {"$lastN": {"n": 2, "input": "$_id"}},
            "top": {"$topN": {"n": 3, "sortBy": {"rating": -1}, "output": "$_id"}},
            "bottom": {"$bottomN": {"n": 3, "sortBy": {"rating": -1}, "output": "$_id"}},
        }},
    ]}}
}

fn load(db: &Db, count: i32, review: impl Fn(i32) -> Document) {
    make(db, &["products", "reviews"]);
    db.insert("products", &[doc! {"_id": 1}, doc! {"_id": 2}]);
    let reviews: Vec<Document> = (0..count).map(review).collect();
    if !reviews.is_empty() {
        db.insert("reviews", &reviews);
    }
    for (name, declaration) in [("recent", recent()), ("few", few())] {
        declare(db, "products", declaration).unwrap();
        wait_until_active(db, "products", name);
    }
}

#[test]
fn deleting_the_newest_of_many_reads_a_few() {
    everywhere(|db| {
        load(&db, 2000, |id| doc! {"_id": id, "product": 1, "date": id, "rating": f64::from(id)});
        for id in [1999, 1998, 0, 1] {
            let read = examined(&db, || drop(db.delete("reviews", doc! {"_id": id})));
            assert!(read <= 30, "read {read}");
        }
        let read = examined(&db, || {
            db.update("reviews", doc! {"_id": 1997}, doc! {"$set": {"date": -1, "rating": -1.0}}).unwrap();
        });
        assert!(read <= 30, "read {read}");
        assert_true(&db, "recent");
        assert_true(&db, "few");
    });
}

#[test]
fn a_change_that_stays_in_its_place_reads_nothing() {
    let db = Db::memory();
    load(&db, 100, |id| doc! {"_id": id, "product": 1, "date": id / 10, "rating": 3});
    let operation = Arc::clone(&db.engine.operations.start(1));
    let few = db.engine.pattern(&ns("products"), "few").unwrap();
    db.engine.drop_pattern(&operation, &few).unwrap();
    let read = examined(&db, || {
        db.update("reviews", doc! {"_id": 91}, doc! {"$set": {"rating": 5}}).unwrap();
    });
    // By its `_id`, for the update itself.
    assert!(read <= 1, "read {read}");
    assert_true(&db, "recent");
}

#[test]
fn ties_filters_and_missing_values_are_settled_as_if_all_were_read() {
    everywhere(|db| {
        load(&db, 0, |id| doc! {"_id": id});
        let mut random = StdRng::seed_from_u64(7);
        let rating = |random: &mut StdRng| match random.random_range(0..6) {
            0 => Value::Null,
            1 => Value::Double(f64::from(random.random_range(1..4))),
            2 => Value::Int64(random.random_range(1..4)),
            3 => "x".into(),
            _ => Value::Int32(random.random_range(1..4)),
        };
        for step in 0..250 {
            let product = random.random_range(1..3);
            match random.random_range(0..8) {
                0 => drop(db.delete("reviews", doc! {"product": product, "date": random.random_range(0..4)})),
                1 => drop(db.update(
                    "reviews",
                    doc! {"_id": random.random_range(0..step + 1)},
                    doc! {"$set": {"rating": rating(&mut random)}},
                )),
                2 => drop(db.update(
                    "reviews",
                    doc! {"_id": random.random_range(0..step + 1)},
                    doc! {"$unset": {"rating": 1}, "$set": {"date": random.random_range(0..4)}},
                )),
                // Several children in one command, each of which may be among those kept.
                3 => drop(db.update_many(
                    "reviews",
                    doc! {"product": product, "rating": {"$gte": 2}},
                    doc! {"$set": {"rating": rating(&mut random), "hidden": random.random_bool(0.3)}},
                )),
                4 => drop(db.update(
                    "reviews",
                    doc! {"_id": random.random_range(0..step + 1)},
                    doc! {"$set": {"product": product}},
                )),
                _ => {
                    let mut review =
                        doc! {"_id": step, "product": product, "hidden": random.random_bool(0.2)};
                    if random.random_range(0..5) > 0 {
                        review.push("rating", rating(&mut random));
                    }
                    if random.random_range(0..5) > 0 {
                        review.push("date", random.random_range(0..4));
                    }
                    db.insert("reviews", &[review]);
                }
            }
            if step % 10 == 9 {
                assert_true(&db, "recent");
                assert_true(&db, "few");
            }
        }
    });
}

#[test]
fn an_index_that_met_an_array_is_not_walked() {
    let db = Db::memory();
    load(&db, 20, |id| doc! {"_id": id, "product": 1, "date": id, "rating": id});
    db.insert("reviews", &[doc! {"_id": 100, "product": 1, "date": [3, 40], "rating": [1, 90]}]);
    db.delete("reviews", doc! {"_id": 19}).unwrap();
    db.delete("reviews", doc! {"_id": 18}).unwrap();
    assert_true(&db, "recent");
    assert_true(&db, "few");
    let product = one(&db, "products", doc! {"_id": 1});
    assert!(
        matches!(product.get("best"), Some(kilim_bson::RawValue::Array(_))),
        "an array is greater than a number"
    );
}

/// A user's index has a part behind those of the order. Its entries of ties lie in the order of that part, and accumulators
/// settle ties by the order in which children came.
#[test]
fn ties_are_settled_as_children_came_whatever_index_serves() {
    let by = |order: i32, n: i32| doc! {"n": n, "sortBy": {"y": order}, "output": "$_id"};
    let one = |order: i32| doc! {"sortBy": {"y": order}, "output": "$_id"};
    let fields = doc! {
        "top": {"$top": one(1)}, "topBack": {"$top": one(-1)}, "bottom": {"$bottom": one(1)},
        "topN": {"$topN": by(-1, 2)}, "bottomN": {"$bottomN": by(1, 2)},
        // Equal numbers of different types: the first is shown.
        "min": {"$min": "$y"}, "max": {"$max": "$y"}, "minN": {"$minN": {"n": 2, "input": "$y"}},
        "maxN": {"$maxN": {"n": 2, "input": "$y"}}, "first": {"$first": "$x"}, "last": {"$last": "$x"},
    };
    for (y, x) in [(1, 1), (-1, 1), (1, -1), (-1, -1)] {
        everywhere(|db| {
            make(&db, &["products", "reviews"]);
            db.insert("products", &[doc! {"_id": 1}]);
            db.build("reviews", vec![spec(doc! {"product": 1, "y": y, "x": x})]).unwrap();
            let mut group = doc! {"_id": "$product"};
            fields.iter().for_each(|(name, value)| group.push(name, value));
            let computed = doc! {"from": "reviews", "pipeline": [{"$group": group}]};
            declare(&db, "products", doc! {"name": "few", "computed": computed}).unwrap();
            wait_until_active(&db, "products", "few");
            let review = |id: i32| {
                let y = if id % 2 == 0 { Value::Int32(0) } else { Value::Double(0.0) };
                doc! {"_id": id, "product": 1, "y": y, "x": (id * 37) % 101}
            };
            // More ties than are held at once.
            db.insert("reviews", &(0..300).map(review).collect::<Vec<_>>());
            assert_true(&db, "few");
            for id in [0, 299, 1, 150, 2, 298, 3] {
                db.delete("reviews", doc! {"_id": id}).unwrap();
                assert_true(&db, "few");
            }
            db.update("reviews", doc! {"_id": 4}, doc! {"$set": {"y": 1}}).unwrap();
            db.delete("reviews", doc! {"_id": 5}).unwrap();
            assert_true(&db, "few");
            db.update("reviews", doc! {"_id": 4}, doc! {"$set": {"y": -1}}).unwrap();
            db.delete("reviews", doc! {"_id": 6}).unwrap();
            assert_true(&db, "few");
        });
    }
}
