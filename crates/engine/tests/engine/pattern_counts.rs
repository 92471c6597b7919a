//! Mistakes that others have made with counts, averages and lists of children: what `pattern_regression` leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use kilim_bson::{Document, RawValue, array, doc};
use kilim_engine::patterns::PatternState;

use crate::pattern::{declare, make, one, recent, stats, wait_until_active};
use crate::pattern_regression::{expect_count, expect_true, shop};
use crate::support::{Db, delete, eventually, everywhere, ns, number, numbered};

fn product(db: &Db, id: i32) -> Document {
    one(db, "products", doc! {"_id": id})
}

fn average(db: &Db, id: i32) -> Option<f64> {
    match product(db, id).get("average") {
        Some(RawValue::Double(average)) => Some(average),
        Some(RawValue::Null) => None,
        other => panic!("{other:?}"),
    }
}

/// A document for each rating that any review has.
fn by_rating() -> Document {
    doc! {"name": "byRating", "computed": {
        "from": "reviews", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$rating", "count": {"$count": {}}}}],
    }}
}

#[test]
fn r03_an_edited_rating_changes_the_average_and_not_the_count() {
    everywhere(|db| {
        shop(&db);
        db.insert("reviews", &numbered(0..4, |id| doc! {"product": 1, "rating": id, "at": id}));
        assert_eq!(average(&db, 1), Some(1.5));
        db.update("reviews", doc! {"_id": 0}, doc! {"$set": {"rating": 4}}).unwrap();
        assert_eq!(average(&db, 1), Some(2.5));
        expect_count(&db, 1, 4);
        db.update("reviews", doc! {"_id": 0}, doc! {"$inc": {"rating": -1}}).unwrap();
        assert_eq!(average(&db, 1), Some(2.25));
        db.update_many("reviews", doc! {}, doc! {"$set": {"rating": 1}}).unwrap();
        assert_eq!(average(&db, 1), Some(1.0));
        // What is no number counts and has no say.
        db.update("reviews", doc! {"_id": 0}, doc! {"$set": {"rating": "five"}}).unwrap();
        assert_eq!(average(&db, 1), Some(1.0));
        expect_count(&db, 1, 4);
    });
}

#[test]
fn r04_a_child_moves_between_parents() {
    everywhere(|db| {
        shop(&db);
        db.insert("reviews", &numbered(0..3, |id| doc! {"product": 1, "rating": id, "at": id}));
        for (to, counts) in [(2, (2, 1)), (2, (2, 1)), (1, (3, 0)), (9, (2, 0)), (1, (3, 0))] {
            db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"product": to}}).unwrap();
            expect_count(&db, 1, counts.0);
            expect_count(&db, 2, counts.1);
        }
        db.update("reviews", doc! {"_id": 2}, doc! {"$unset": {"product": 1}}).unwrap();
        expect_count(&db, 1, 2);
        // There and back, and on, in one transaction.
        let mut transaction = db.transaction(1, 1);
        for to in [1, 2, 1, 2] {
            transaction.update("reviews", doc! {"_id": 1}, doc! {"$set": {"product": to}}).unwrap();
        }
        transaction.commit().unwrap();
        expect_count(&db, 1, 1);
        expect_count(&db, 2, 1);
    });
}

#[test]
fn r05_two_and_three_patterns_on_one_source() {
    everywhere(|db| {
        shop(&db);
        make(&db, &["ratings"]);
        declare(&db, "ratings", by_rating()).unwrap();
        db.insert("reviews", &numbered(0..6, |id| doc! {"product": 1 + id % 2, "rating": id % 3, "at": id}));
        db.update("reviews", doc! {"_id": 0}, doc! {"$set": {"product": 2, "rating": 2, "at": 9}}).unwrap();
        db.delete("reviews", doc! {"_id": 5}).unwrap();
        expect_count(&db, 1, 2);
        expect_count(&db, 2, 3);
        expect_true(&db, "ratings", "byRating");
        assert_eq!(number(&one(&db, "ratings", doc! {"_id": 2}), "count"), 2);
        // One goes, and the others stay in force.
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("products"), "recent").unwrap();
        db.engine.drop_pattern(&operation, &pattern).unwrap();
        db.delete("reviews", doc! {"_id": 4}).unwrap();
        assert_eq!(number(&product(&db, 1), "count"), 1);
        expect_true(&db, "products", "stats");
        expect_true(&db, "ratings", "byRating");
    });
}

#[test]
fn r09_the_last_child_goes() {
    everywhere(|db| {
        shop(&db);
        make(&db, &["ratings"]);
        declare(&db, "ratings", by_rating()).unwrap();
        for _ in 0..3 {
            db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 5, "at": 1}]);
            expect_count(&db, 1, 1);
            assert_eq!(db.count("ratings", doc! {}), 1);
            db.delete("reviews", doc! {"_id": 1}).unwrap();
            expect_count(&db, 1, 0);
            assert_eq!(average(&db, 1), None);
            assert_eq!(product(&db, 1).get("recent").and_then(RawValue::as_array).unwrap().len(), 0);
            assert!(matches!(product(&db, 1).get("best"), Some(RawValue::Null)));
            assert_eq!(db.count("ratings", doc! {}), 0);
        }
    });
}

#[test]
fn r10_a_child_before_its_parent() {
    everywhere(|db| {
        shop(&db);
        db.insert("reviews", &numbered(0..3, |id| doc! {"product": 7, "rating": id, "at": id}));
        db.insert("products", &[doc! {"_id": 7, "count": 99, "recent": "mine"}]);
        expect_count(&db, 7, 3);
        assert_eq!(average(&db, 7), Some(1.0));
        db.delete("products", doc! {"_id": 7}).unwrap();
        db.delete("reviews", doc! {"_id": 0}).unwrap();
        db.upsert("products", doc! {"_id": 7}, doc! {"$set": {"title": "t"}}).unwrap();
        expect_count(&db, 7, 2);
        // Both in one transaction, in either order.
        let mut transaction = db.transaction(1, 1);
        transaction.insert("reviews", doc! {"_id": 20, "product": 8, "rating": 1, "at": 1}).unwrap();
        transaction.insert("products", doc! {"_id": 8}).unwrap();
        transaction.insert("reviews", doc! {"_id": 21, "product": 8, "rating": 1, "at": 2}).unwrap();
        transaction.commit().unwrap();
        expect_count(&db, 8, 2);
    });
}

#[test]
fn r12_a_backfill_under_constant_inserts_ends() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        db.insert("products", &numbered(0..200, |_| doc! {}));
        let (stop, next) = (AtomicBool::new(false), AtomicI32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        db.insert(
                            "reviews",
                            &[doc! {"_id": id, "product": id % 300, "rating": id % 5, "at": id}],
                        );
                        db.insert("products", &[doc! {"_id": 1000 + id}]);
                    }
                });
            }
            let mut slow = stats();
            slow.push("backfill", doc! {"batch": 10, "throttleMs": 1});
            declare(&db, "products", slow).unwrap();
            declare(&db, "products", recent()).unwrap();
            let state = |name: &str| db.engine.pattern(&ns("products"), name).unwrap().state.clone();
            eventually("both patterns are active", || {
                state("stats") == PatternState::Active && state("recent") == PatternState::Active
            });
            stop.store(true, Ordering::Relaxed);
        });
        wait_until_active(&db, "products", "stats");
        expect_true(&db, "products", "stats");
        expect_true(&db, "products", "recent");
    });
}

#[test]
fn r22_a_subset_with_its_limit_down_and_up() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        db.insert("products", &numbered(0..3, |_| doc! {}));
        db.insert("reviews", &numbered(0..12, |id| doc! {"product": id % 2, "at": id / 4, "rating": 1}));
        for limit in [5, 2, 4, 100] {
            let list = doc! {"name": "list", "subset": {
                "from": "reviews", "foreignField": "product", "as": "list", "sort": {"at": -1}, "limit": limit,
            }};
            declare(&db, "products", list).unwrap();
            wait_until_active(&db, "products", "list");
            expect_true(&db, "products", "list");
            let shown = |id: i32| product(&db, id).get("list").and_then(RawValue::as_array).unwrap().len();
            assert_eq!([shown(0), shown(1), shown(2)], [limit.min(6) as usize, limit.min(6) as usize, 0]);
            let operation = Arc::clone(&db.engine.operations.start(1));
            let pattern = db.engine.pattern(&ns("products"), "list").unwrap();
            db.engine.drop_pattern(&operation, &pattern).unwrap();
        }
    });
}

#[test]
fn groups_that_go_while_their_pattern_is_paused_leave_no_document() {
    everywhere(|db| {
        make(&db, &["reviews", "ratings"]);
        db.insert("ratings", &[doc! {"_id": 7, "note": "a user's"}]);
        declare(&db, "ratings", by_rating()).unwrap();
        wait_until_active(&db, "ratings", "byRating");
        db.insert("reviews", &numbered(0..3, |id| doc! {"rating": id}));
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("ratings"), "byRating").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        db.delete("reviews", doc! {"_id": 1}).unwrap();
        let pattern = db.engine.pattern(&ns("ratings"), "byRating").unwrap();
        let pattern = db.engine.restart_pattern(&operation, &pattern).unwrap();
        db.engine.begin_filling(&pattern);
        wait_until_active(&db, "ratings", "byRating");
        expect_true(&db, "ratings", "byRating");
        assert_eq!(db.count("ratings", doc! {"_id": 1}), 0);
        assert_eq!(db.count("ratings", doc! {"note": "a user's"}), 1);
        assert_eq!(db.count("ratings", doc! {}), 3);
    });
}

#[test]
fn a_sum_of_zero_goes_with_its_group_though_that_was_emptied_while_paused() {
    everywhere(|db| {
        make(&db, &["entries", "sums"]);
        let sums = doc! {"name": "sums", "computed": {
            "from": "entries", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": "$of", "sum": {"$sum": "$amount"}}}],
        }};
        declare(&db, "sums", sums).unwrap();
        wait_until_active(&db, "sums", "sums");
        // A sum of zero is what an empty group would show.
        db.insert("entries", &[doc! {"_id": 1, "of": 1, "amount": 0}, doc! {"_id": 2, "of": 2, "amount": 5}]);
        assert_eq!(db.count("sums", doc! {}), 2);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("sums"), "sums").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        db.delete("entries", doc! {"_id": {"$gte": 1}}).unwrap();
        let pattern = db.engine.pattern(&ns("sums"), "sums").unwrap();
        let pattern = db.engine.restart_pattern(&operation, &pattern).unwrap();
        db.engine.begin_filling(&pattern);
        wait_until_active(&db, "sums", "sums");
        assert_eq!(db.find("sums", doc! {}), Vec::<Document>::new());
        expect_true(&db, "sums", "sums");
    });
}

#[test]
fn declared_at_the_instant_of_the_first_insert() {
    for round in 0..40 {
        let db = if round % 4 == 0 { Db::disk() } else { Db::memory() };
        make(&db, &["reviews"]);
        let twice = doc! {"name": "twice", "computed": {"set": {"twice": {"$multiply": ["$rating", 2]}}}};
        thread::scope(|scope| {
            for id in 0..3 {
                let db = &db;
                scope.spawn(move || db.insert("reviews", &[doc! {"_id": id, "rating": 2}]));
            }
            declare(&db, "reviews", twice).unwrap();
        });
        wait_until_active(&db, "reviews", "twice");
        assert_eq!(db.count("reviews", doc! {"twice": 4}), 3, "round {round}");
    }
}

#[test]
fn a_parent_that_changes_its_children_counts_each_of_them_once() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    db.insert("reviews", &numbered(1..6, |id| doc! {"_id": id, "productId": id}));
    let weight = doc! {"name": "product", "extendedReference": {
        "from": "products", "localField": "productId", "as": "product", "fields": {"weight": 1},
    }};
    declare(&db, "reviews", weight).unwrap();
    wait_until_active(&db, "reviews", "product");
    let total = doc! {
        "name": "total",
        "computed": {
            "from": "reviews", "pipeline": [{"$group": {"_id": "$productId", "total": {"$sum": "$product.weight"}}}],
        },
        "backfill": {"batch": 1, "throttleMs": 60_000},
    };
    declare(&db, "products", total).unwrap();
    // Its group has no state yet, and its review gets the weight that it counts by the same change.
    db.insert("products", &[doc! {"_id": 5, "weight": 7}]);
    assert_eq!(number(&product(&db, 5), "total"), 7);
    db.update("products", doc! {"_id": 5}, doc! {"$set": {"weight": 8}}).unwrap();
    assert_eq!(number(&product(&db, 5), "total"), 8);
}

#[test]
fn a_transaction_that_exchanges_equal_children_changes_their_order() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    db.insert("products", &[doc! {"_id": 1}]);
    let review = |id: i32, rating: i32| doc! {"_id": id, "productId": 1, "rating": rating};
    db.insert("reviews", &[review(1, 3), review(2, 4)]);
    let first = doc! {"name": "first", "computed": {"from": "reviews", "pipeline": [
        {"$project": {"_id": 0, "productId": 1, "rating": 1}},
        {"$group": {"_id": "$productId", "ratings": {"$push": "$rating"}}},
    ]}};
    declare(&db, "products", first).unwrap();
    wait_until_active(&db, "products", "first");
    let mut transaction = db.transaction(1, 1);
    transaction.insert("reviews", review(3, 3)).unwrap();
    transaction.run(|unit| delete(unit, "reviews", doc! {"_id": 1}, true)).unwrap();
    transaction.commit().unwrap();
    let product = one(&db, "products", doc! {});
    assert_eq!(product.as_bytes(), doc! {"_id": 1, "ratings": array![4, 3]}.as_bytes());
}
