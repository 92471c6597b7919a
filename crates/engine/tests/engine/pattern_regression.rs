//! Mistakes that others have made with copied and counted data, each by its name. Those of the list in the
//! contract for patterns have its numbers; `pattern_counts`, `pattern_copies` and `pattern_crash` have the others.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::ids::SessionId;
use kilim_engine::patterns::PatternState;
use kilim_engine::upkeep::Verification;
use kilim_error::{Error, ErrorCode};

use crate::pattern::{card, declare, make, one, recent, stats, wait_until_active};
use crate::support::{Db, eventually, everywhere, find_and_modify, insert, ns, number, numbered, spec};

pub fn verify(db: &Db, target: &str, name: &str) -> Verification {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns(target), name).unwrap();
    db.engine.verify_pattern(&operation, &pattern, None, 10).unwrap()
}

#[track_caller]
pub fn expect_true(db: &Db, target: &str, name: &str) {
    let found = verify(db, target, name);
    assert_eq!(found.wrong, 0, "{:?}", found.examples);
    db.check();
}

pub fn shop(db: &Db) {
    make(db, &["products", "reviews"]);
    declare(db, "products", stats()).unwrap();
    declare(db, "products", recent()).unwrap();
    db.insert("products", &[doc! {"_id": 1}, doc! {"_id": 2}]);
}

pub fn expect_count(db: &Db, id: i32, count: i64) {
    assert_eq!(number(&one(db, "products", doc! {"_id": id}), "count"), count);
    expect_true(db, "products", "stats");
    expect_true(db, "products", "recent");
}

#[test]
fn r01_two_writers_delete_one_child_and_it_is_counted_once() {
    everywhere(|db| {
        shop(&db);
        for turn in 0..10 {
            db.insert("reviews", &numbered(0..3, |id| doc! {"product": 1, "rating": id, "at": turn}));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| db.delete("reviews", doc! {"_id": 1}).unwrap());
                }
            });
            expect_count(&db, 1, 2);
            db.run(|unit| crate::support::delete(unit, "reviews", doc! {}, false)).unwrap();
            db.run(|unit| crate::support::delete(unit, "reviews", doc! {}, false)).unwrap();
            expect_count(&db, 1, 0);
        }
    });
}

#[test]
fn r02_a_retried_write_counts_once() {
    everywhere(|db| {
        shop(&db);
        for _ in 0..3 {
            let review = doc! {"_id": 1, "product": 1, "rating": 4, "at": 1};
            db.run_numbered(SessionId([7; 16]), 1, |unit| insert(unit, "reviews", &[review], true)).unwrap();
        }
        expect_count(&db, 1, 1);
    });
}

#[test]
fn r06_a_filter_flips_and_flips_back() {
    let db = Db::memory();
    shop(&db);
    db.insert("reviews", &numbered(0..4, |id| doc! {"product": 1, "rating": id, "at": id}));
    for (hidden, count) in [(true, 3), (false, 4), (true, 3), (true, 3), (false, 4)] {
        db.update("reviews", doc! {"_id": 3}, doc! {"$set": {"hidden": hidden}}).unwrap();
        expect_count(&db, 1, count);
    }
}

#[test]
fn r07_the_max_is_edited_down_deleted_filtered_out_and_missing() {
    let db = Db::memory();
    shop(&db);
    db.insert("reviews", &numbered(0..5, |id| doc! {"product": 1, "rating": id, "at": id}));
    let best = || number(&one(&db, "products", doc! {"_id": 1}), "best");
    db.update("reviews", doc! {"_id": 4}, doc! {"$set": {"rating": -1}}).unwrap();
    assert_eq!(best(), 3);
    db.update("reviews", doc! {"_id": 3}, doc! {"$unset": {"rating": 1}}).unwrap();
    assert_eq!(best(), 2);
    db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"hidden": true}}).unwrap();
    assert_eq!(best(), 1);
    db.delete("reviews", doc! {"_id": 1}).unwrap();
    assert_eq!(best(), 0);
    expect_count(&db, 1, 3);
}

#[test]
fn r08_a_sum_comes_back_to_nothing_and_changes_again() {
    let db = Db::memory();
    make(&db, &["accounts", "moves"]);
    let balance = doc! {"name": "balance", "computed": {
        "from": "moves", "pipeline": [{"$group": {"_id": "$account", "balance": {"$sum": "$amount"}}}],
    }};
    declare(&db, "accounts", balance).unwrap();
    db.insert("accounts", &[doc! {"_id": 1}]);
    for id in 0..200 {
        db.insert("moves", &[doc! {"_id": id, "account": 1, "amount": 0.1 * f64::from(id) + 1e15}]);
    }
    for id in 0..200 {
        db.delete("moves", doc! {"_id": id}).unwrap();
    }
    let balance = || format!("{:?}", one(&db, "accounts", doc! {}).get("balance"));
    assert_eq!(balance(), "Some(Int32(0))");
    db.insert("moves", &[doc! {"_id": 1, "account": 1, "amount": 0.25}]);
    assert_eq!(balance(), "Some(Double(0.25))");
    expect_true(&db, "accounts", "balance");
}

#[test]
fn r11_declared_while_a_transaction_is_open() {
    everywhere(|db| {
        make(&db, &["products", "reviews", "others"]);
        db.insert("products", &[doc! {"_id": 1}]);
        let mut early = db.transaction(1, 1);
        early.insert("reviews", doc! {"_id": 1, "product": 1, "rating": 5}).unwrap();
        let mut late = db.transaction(2, 1);
        late.count("others", doc! {}).unwrap();
        thread::scope(|scope| {
            let declaring = scope.spawn(|| declare(&db, "products", stats()).unwrap());
            thread::sleep(Duration::from_millis(100));
            early.commit().unwrap();
            declaring.join().unwrap();
        });
        late.insert("reviews", doc! {"_id": 2, "product": 1, "rating": 3}).unwrap();
        // Whoever fills the pattern may hold the product at that moment. Drivers then try again.
        let mut committed = late.commit();
        for number in 2..100 {
            let Err(error) = &committed else { break };
            assert!(matches!(error, Error::Conflict(_)), "{error}");
            let mut again = db.transaction(2, number);
            again.insert("reviews", doc! {"_id": 2, "product": 1, "rating": 3}).unwrap();
            committed = again.commit();
        }
        committed.unwrap();
        wait_until_active(&db, "products", "stats");
        assert_eq!(number(&one(&db, "products", doc! {}), "count"), 2);
        expect_true(&db, "products", "stats");
    });
}

/// `b` copies from `a`, and `c` from `b`.
fn chain(db: &Db, on_source_delete: &str) {
    make(db, &["a", "b", "c"]);
    let copies = |from: &str, field: &str| {
        doc! {"name": "copy", "extendedReference": {
            "from": from, "localField": "ref", "as": "source", "fields": {"name": field},
            "onSourceDelete": on_source_delete,
        }}
    };
    declare(db, "b", copies("a", "$name")).unwrap();
    declare(db, "c", copies("b", "$source.name")).unwrap();
    db.insert("a", &[doc! {"_id": 1, "name": "x"}]);
    db.insert("b", &[doc! {"_id": 2, "ref": 1}]);
    db.insert("c", &[doc! {"_id": 3, "ref": 2}]);
}

#[test]
fn r17_a_chain_whose_first_source_is_deleted() {
    let keep = doc! {"name": "x"};
    let empty = Document::new();
    let cases: [(&str, Option<Value>, Option<Value>); 3] = [
        ("keep", Some(Value::Document(keep.clone())), Some(Value::Document(keep))),
        ("unset", None, Some(Value::Document(empty.clone()))),
        ("null", Some(Value::Null), Some(Value::Document(empty))),
    ];
    for (on_source_delete, in_b, in_c) in cases {
        let db = Db::memory();
        chain(&db, on_source_delete);
        db.delete("a", doc! {}).unwrap();
        let mut b = doc! {"_id": 2, "ref": 1};
        in_b.into_iter().for_each(|value| b.push("source", value));
        let mut c = doc! {"_id": 3, "ref": 2};
        in_c.into_iter().for_each(|value| c.push("source", value));
        assert_eq!(one(&db, "b", doc! {}), b, "{on_source_delete}");
        assert_eq!(one(&db, "c", doc! {}), c, "{on_source_delete}");
        expect_true(&db, "b", "copy");
        expect_true(&db, "c", "copy");
    }
    let db = Db::memory();
    chain(&db, "cascade");
    db.delete("a", doc! {}).unwrap();
    assert_eq!((db.count("b", doc! {}), db.count("c", doc! {})), (0, 0));
    db.check();
    let db = Db::memory();
    chain(&db, "restrict");
    assert_eq!(db.delete("a", doc! {}).unwrap_err().code(), ErrorCode::PatternRestrict);
    db.delete("c", doc! {}).unwrap();
    db.delete("b", doc! {}).unwrap();
    db.delete("a", doc! {}).unwrap();
    assert_eq!(db.count("a", doc! {}), 0);
}

#[test]
fn r19_a_reference_that_is_pushed_fills_its_copy() {
    let db = Db::memory();
    make(&db, &["tags", "posts"]);
    let tags = doc! {"name": "tags", "extendedReference": {
        "from": "tags", "localField": "tagIds", "as": "tags", "fields": {"name": 1},
    }};
    declare(&db, "posts", tags).unwrap();
    db.insert("tags", &[doc! {"_id": 1, "name": "a"}, doc! {"_id": 2, "name": "b"}]);
    db.insert("posts", &[doc! {"_id": 1, "tagIds": []}]);
    let names = || {
        let post = one(&db, "posts", doc! {});
        let list = post.get("tags").and_then(RawValue::as_array).expect("an array").to_array();
        list.as_raw()
            .iter()
            .map(|tag| format!("{:?}", tag.as_document().and_then(|tag| tag.get("name"))))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for operator in ["$push", "$addToSet", "$addToSet"] {
        db.update("posts", doc! {}, doc! {operator: {"tagIds": 2}}).unwrap();
    }
    assert_eq!(names(), "Some(String(\"b\"))");
    db.update("posts", doc! {}, doc! {"$push": {"tagIds": {"$each": array![1], "$position": 0}}}).unwrap();
    assert_eq!(names(), "Some(String(\"a\")) Some(String(\"b\"))");
    db.update("tags", doc! {"_id": 1}, doc! {"$set": {"name": "z"}}).unwrap();
    db.update("posts", doc! {}, doc! {"$pull": {"tagIds": 2}}).unwrap();
    assert_eq!(names(), "Some(String(\"z\"))");
    expect_true(&db, "posts", "tags");
}

#[test]
fn r20_every_way_to_write_is_counted() {
    everywhere(|db| {
        shop(&db);
        db.build(
            "reviews",
            vec![kilim_engine::index::IndexSpec { expire_after_seconds: Some(0), ..spec(doc! {"until": 1}) }],
        )
        .unwrap();
        db.insert("reviews", &numbered(0..6, |id| doc! {"product": 1, "rating": id, "at": id}));
        db.upsert("reviews", doc! {"_id": 6, "product": 1}, doc! {"$set": {"rating": 5}}).unwrap();
        expect_count(&db, 1, 7);
        db.run(|unit| {
            find_and_modify(
                unit,
                "reviews",
                doc! {"product": 1},
                doc! {"$set": {"product": 2}},
                Some(doc! {"_id": 1}),
            )
        })
        .unwrap();
        expect_count(&db, 1, 6);
        expect_count(&db, 2, 1);
        db.update_many("reviews", doc! {"_id": {"$lt": 3}}, doc! {"$set": {"product": 2}}).unwrap();
        expect_count(&db, 2, 3);
        db.update_many("reviews", doc! {"_id": {"$gte": 4}}, doc! {"$set": {"until": Value::DateTime(0)}})
            .unwrap();
        let operation = Arc::clone(&db.engine.operations.start(0));
        assert_eq!(db.engine.expire(&operation).unwrap(), 3);
        expect_count(&db, 1, 1);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("reviews", doc! {"_id": 20, "product": 1, "rating": 1}).unwrap();
        transaction.update("reviews", doc! {"_id": 20}, doc! {"$set": {"product": 2}}).unwrap();
        transaction.update("reviews", doc! {"_id": 3}, doc! {"$set": {"rating": 1}}).unwrap();
        transaction.commit().unwrap();
        expect_count(&db, 1, 1);
        expect_count(&db, 2, 4);
    });
}

#[test]
fn r21_a_whole_document_saved_with_a_stale_count() {
    everywhere(|db| {
        shop(&db);
        db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 5, "at": 1}]);
        let mut stale = one(&db, "products", doc! {"_id": 1});
        stale.push("title", "new");
        db.insert("reviews", &[doc! {"_id": 2, "product": 1, "rating": 3, "at": 2}]);
        db.update("products", doc! {"_id": 1}, stale).unwrap();
        assert_eq!(db.count("products", doc! {"title": "new"}), 1);
        expect_count(&db, 1, 2);
        let pattern = db.engine.pattern(&ns("products"), "stats").unwrap();
        assert_eq!(pattern.counters.user_writes_replaced.get(), 1);
    });
}

#[test]
fn r22_a_subset_is_refilled_and_its_ties_are_in_order() {
    everywhere(|db| {
        shop(&db);
        db.insert("reviews", &numbered(0..6, |id| doc! {"product": 1, "rating": 1, "at": id / 2}));
        let shown = || {
            let product = one(&db, "products", doc! {"_id": 1});
            let list = product.get("recent").and_then(RawValue::as_array).expect("a list").to_array();
            list.as_raw()
                .iter()
                .map(|one| number(&one.as_document().expect("a document").to_document(), "_id"))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(), [4, 5]);
        db.delete("reviews", doc! {"_id": 4}).unwrap();
        assert_eq!(shown(), [5, 2]);
        db.update("reviews", doc! {"_id": 5}, doc! {"$set": {"at": -1}}).unwrap();
        assert_eq!(shown(), [2, 3]);
        db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"product": 2}}).unwrap();
        assert_eq!(shown(), [3, 0]);
        expect_true(&db, "products", "recent");
    });
}

#[test]
fn what_a_pause_missed_is_found_and_filled() {
    everywhere(|db| {
        shop(&db);
        make(&db, &["customers", "orders"]);
        declare(&db, "orders", card()).unwrap();
        db.insert("customers", &numbered(0..5, |id| doc! {"name": format!("n{id}")}));
        db.insert("orders", &numbered(0..10, |id| doc! {"customerId": id % 5}));
        db.insert("reviews", &numbered(0..10, |id| doc! {"product": 1 + id % 2, "rating": id, "at": id}));
        let operation = Arc::clone(&db.engine.operations.start(1));
        let names = [("products", "stats"), ("products", "recent"), ("orders", "card")];
        for (target, name) in names {
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            db.engine.pause_pattern(&operation, &pattern).unwrap();
        }
        db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "other"}}).unwrap();
        db.delete("reviews", doc! {"_id": 9}).unwrap();
        for (target, name) in names {
            let found = verify(&db, target, name);
            assert!(found.wrong > 0, "{name}");
            assert!(found.examples[0].get("path").is_some());
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            // As a fault would leave it.
            db.engine.set_pattern_state(&operation, &pattern, PatternState::Active).unwrap();
            assert_eq!(verify(&db, target, name).wrong, found.wrong);
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            assert_eq!(pattern.state, PatternState::Suspect);
            let repaired = db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
            assert_eq!(repaired.wrong, found.wrong);
            assert_eq!(db.engine.pattern(&ns(target), name).unwrap().state, PatternState::Active);
            expect_true(&db, target, name);
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            db.engine.pause_pattern(&operation, &pattern).unwrap();
        }
        db.update("customers", doc! {"_id": 2}, doc! {"$set": {"name": "another"}}).unwrap();
        db.delete("reviews", doc! {"_id": 8}).unwrap();
        for (target, name) in names {
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            let pattern = db.engine.restart_pattern(&operation, &pattern).unwrap();
            db.engine.begin_filling(&pattern);
            wait_until_active(&db, target, name);
            expect_true(&db, target, name);
        }
        // And is kept as before.
        db.insert("reviews", &[doc! {"_id": 30, "product": 1, "rating": 1, "at": 30}]);
        expect_true(&db, "products", "stats");
    });
}

#[test]
fn groups_without_documents_and_documents_without_groups_are_found() {
    everywhere(|db| {
        make(&db, &["reviews"]);
        let by_rating = doc! {"name": "byRating", "computed": {
            "from": "reviews", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": {"$mod": ["$rating", 3]}, "count": {"$count": {}}}}],
        }};
        declare(&db, "ratings", by_rating).unwrap();
        db.insert("reviews", &numbered(0..6, |id| doc! {"rating": id}));
        expect_true(&db, "ratings", "byRating");
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("ratings"), "byRating").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        db.delete("ratings", doc! {"_id": 0}).unwrap();
        db.insert("ratings", &[doc! {"_id": 7, "count": 3}]);
        db.update("ratings", doc! {"_id": 1}, doc! {"$set": {"count": 9}}).unwrap();
        db.engine.set_pattern_state(&operation, &pattern, PatternState::Active).unwrap();
        let pattern = db.engine.pattern(&ns("ratings"), "byRating").unwrap();
        let found = db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
        assert_eq!(found.wrong, 3, "{:?}", found.examples);
        expect_true(&db, "ratings", "byRating");
        assert_eq!(db.count("ratings", doc! {"count": 2}), 3);
        assert_eq!(db.count("ratings", doc! {}), 3);
    });
}

#[test]
fn frozen_copies_are_not_wrong() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    let frozen = doc! {"name": "card", "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "while": {"shipped": {"$ne": true}}, "onSourceDelete": "unset",
    }};
    declare(&db, "orders", frozen).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &[doc! {"_id": 1, "customerId": 1}, doc! {"_id": 2, "customerId": 1}]);
    db.update("orders", doc! {"_id": 1}, doc! {"$set": {"shipped": true}}).unwrap();
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Bea"}}).unwrap();
    expect_true(&db, "orders", "card");
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 1);
    db.delete("customers", doc! {}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 1);
    assert_eq!(db.count("orders", doc! {"customer": {"$exists": false}}), 1);
    expect_true(&db, "orders", "card");
}

#[test]
fn what_cannot_be_computed_fails_no_write() {
    let db = Db::memory();
    make(&db, &["shops", "sales"]);
    let share = doc! {"name": "share", "computed": {"from": "sales", "pipeline": [
        {"$group": {"_id": "$shop", "n": {"$count": {}}, "all": {"$mergeObjects": "$details"}}},
        {"$set": {"share": {"$divide": [1, "$n"]}}},
    ]}};
    declare(&db, "shops", share).unwrap();
    db.insert("shops", &[doc! {"_id": 1}]);
    assert_eq!(
        one(&db, "shops", doc! {"share": Value::Null}),
        doc! {"_id": 1, "n": 0, "all": {}, "share": Value::Null}
    );
    db.insert(
        "sales",
        &[doc! {"_id": 1, "shop": 1, "details": {"a": 1}}, doc! {"_id": 2, "shop": 1, "details": 5}],
    );
    assert_eq!(one(&db, "shops", doc! {}), doc! {"_id": 1, "n": 2, "all": {"a": 1}, "share": 0.5});
    db.delete("sales", doc! {"_id": 1}).unwrap();
    expect_true(&db, "shops", "share");
}

#[test]
fn indexes_that_patterns_need_stay() {
    let db = Db::memory();
    shop(&db);
    let refused = |result: kilim_error::Result<()>| result.unwrap_err().code();
    let unique = crate::support::unique(doc! {"count": 1});
    assert_eq!(refused(db.build("products", vec![unique])), ErrorCode::PatternFieldConflict);
    db.drop_collection("products").unwrap();
    assert!(db.engine.patterns().of("test").is_empty());
    db.insert("reviews", &[doc! {"_id": 1, "product": 1}]);
    db.drop_collection("reviews").unwrap();
    db.check();
}

#[test]
fn a_killed_backfill_is_taken_up_by_repair() {
    everywhere(|db| {
        db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
        db.insert("orders", &numbered(0..20, |_| doc! {"customerId": 1}));
        let mut slow = card();
        slow.push("backfill", doc! {"batch": 5, "throttleMs": 60000});
        declare(&db, "orders", slow).unwrap();
        let job = db.engine.jobs.lock()[0].clone();
        eventually("a batch is filled", || job.progress().0 >= 5);
        job.kill();
        let state = || db.engine.pattern(&ns("orders"), "card").unwrap().state.clone();
        eventually("the job ends", || state() != PatternState::Building);
        assert!(matches!(state(), PatternState::Failed(_)));
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
        assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 5);
        // What is written is maintained all the same, so that filling the rest is enough.
        db.update("customers", doc! {}, doc! {"$set": {"name": "Bea"}}).unwrap();
        let found = db.engine.repair_pattern(&operation, &pattern, None, 5).unwrap();
        assert_eq!((found.checked, found.wrong), (20, 0));
        assert_eq!(state(), PatternState::Active);
        assert_eq!(db.count("orders", doc! {"customer.name": "Bea"}), 20);
        expect_true(&db, "orders", "card");
    });
}

#[test]
fn a_transaction_that_commits_late_keeps_the_order_of_insertion() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    let list = doc! {"name": "list", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$product", "all": {"$push": "$_id"}, "first": {"$first": "$_id"}, "last": {"$last": "$_id"}}},
    ]}};
    declare(&db, "products", list).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    let mut early = db.transaction(1, 1);
    early.insert("reviews", doc! {"_id": 1, "product": 1}).unwrap();
    db.insert("reviews", &[doc! {"_id": 2, "product": 1}]);
    early.commit().unwrap();
    expect_true(&db, "products", "list");
    assert_eq!(one(&db, "products", doc! {}), doc! {"_id": 1, "all": array![1, 2], "first": 1, "last": 2});
}
