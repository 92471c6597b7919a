//! Why declarations: the workloads that hand-written recipes fail, with patterns instead. What is stored beside what
//! is true; nothing may be stale, wrong or lost.
//!
//! `cargo xtask why` runs them in the sizes that the recipes were measured with, and prints; a test run has less.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use kilim_bson::{Document, RawValue, Value, doc};

use crate::pattern::{card, declare, make, one, stats, wait_until_active};
use crate::pattern_regression::expect_true;
use crate::support::{Db, number, numbered};

/// Whether in full, and printed.
fn in_full() -> bool {
    std::env::var_os("KILIM_WHY").is_some()
}

fn report(workload: &str, by_hand: &str, stored: &str, truth: &str) {
    if in_full() {
        println!(
            "{workload}\n    recipe on mongod 6.0.5: {by_hand}\n    declared: {stored}\n    truth: {truth}\n"
        );
    }
    assert_eq!(stored, truth, "{workload}");
}

#[test]
fn a_running_average_with_clients_that_die() {
    let db = Db::disk();
    make(&db, &["products", "reviews"]);
    declare(&db, "products", stats()).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    let (reviews, changes) = if in_full() { (3200, 200) } else { (320, 20) };
    let next = AtomicI32::new(0);
    thread::scope(|scope| {
        for writer in 0..8u8 {
            let (db, next) = (&db, &next);
            scope.spawn(move || {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= reviews {
                        return;
                    }
                    let review = doc! {"_id": id, "product": 1, "rating": 1 + id * 7 % 5};
                    // One in 200 clients dies: before its transaction ends, or without knowing what came of it.
                    match id % 200 {
                        17 => {
                            let mut dying = db.transaction(writer + 1, i64::from(id) + 1);
                            dying.insert("reviews", review).unwrap();
                            dying.abort().unwrap();
                        }
                        117 => {
                            let mut dying = db.transaction(writer + 1, i64::from(id) + 1);
                            dying.insert("reviews", review).unwrap();
                            dying.commit().unwrap();
                        }
                        _ => db.insert("reviews", &[review]),
                    }
                }
            });
        }
    });
    for change in 0..changes {
        let edited = doc! {"$set": {"rating": 1 + change % 5}};
        db.update("reviews", doc! {"_id": change * 5}, edited).unwrap();
        db.delete("reviews", doc! {"_id": change * 5 + 1}).unwrap();
    }
    let left = db.find("reviews", doc! {});
    let sum: i64 = left.iter().map(|review| number(review, "rating")).sum();
    let shown = |count: i64, average: f64| format!("{count} reviews, average {average:.6}");
    let product = one(&db, "products", doc! {});
    let Some(RawValue::Double(average)) = product.get("average") else { panic!("{product:?}") };
    report(
        "A running average; one client in 200 dies; then edits and deletes",
        "3181 / 2.96 stored, 3000 / 2.83 true",
        &shown(number(&product, "count"), average),
        &shown(left.len() as i64, sum as f64 / left.len() as f64),
    );
    expect_true(&db, "products", "stats");
}

#[test]
fn doubles_are_added_and_removed() {
    let db = Db::memory();
    make(&db, &["accounts", "moves"]);
    let balance = doc! {"name": "balance", "computed": {
        "from": "moves", "pipeline": [{"$group": {"_id": "$account", "balance": {"$sum": "$amount"}}}],
    }};
    declare(&db, "accounts", balance).unwrap();
    db.insert("accounts", &[doc! {"_id": 1}]);
    let moves = if in_full() { 1_000_000 } else { 3000 };
    let amount = |id: i32| 0.1 * f64::from(id % 1000) + 1.0 / (1.0 + f64::from(id));
    for first in (0..moves).step_by(1000) {
        let some = numbered(first..moves.min(first + 1000), |id| doc! {"account": 1, "amount": amount(id)});
        db.insert("moves", &some);
    }
    for id in 0..moves {
        db.delete("moves", doc! {"_id": id}).unwrap();
    }
    let balance = match one(&db, "accounts", doc! {}).get("balance") {
        Some(RawValue::Int32(balance)) => f64::from(balance),
        Some(RawValue::Double(balance)) => balance,
        other => panic!("{other:?}"),
    };
    let workload = format!("{moves} doubles added to a sum, and removed");
    report(&workload, "0.00119 left", &format!("{balance:?} left"), "0.0 left");
}

#[test]
fn a_subset_whose_newest_are_deleted() {
    let db = Db::disk();
    make(&db, &["products", "reviews"]);
    let list = doc! {"name": "list", "subset": {
        "from": "reviews", "foreignField": "product", "as": "list", "sort": {"at": -1}, "limit": 5,
    }};
    declare(&db, "products", list).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    for id in 0..50 {
        db.insert("reviews", &[doc! {"_id": id, "product": 1, "at": id}]);
    }
    for id in [49, 48, 47] {
        db.delete("reviews", doc! {"_id": id}).unwrap();
    }
    let product = one(&db, "products", doc! {});
    let list = product.get("list").and_then(RawValue::as_array).unwrap();
    let shown: Vec<String> = list
        .iter()
        .map(|review| number(&review.as_document().unwrap().to_document(), "_id").to_string())
        .collect();
    report(
        "A subset of 5, whose 3 newest children are deleted",
        "2 of 5 left, although 47 exist",
        &format!("{} of 5: {}", shown.len(), shown.join(" ")),
        "5 of 5: 46 45 44 43 42",
    );
    expect_true(&db, "products", "list");
}

#[test]
fn a_customer_renamed_while_orders_come() {
    let db = Db::disk();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", card()).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "n0"}]);
    let (done, next) = (AtomicBool::new(false), AtomicI32::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) < 500 {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    db.insert("orders", &[doc! {"_id": id, "customerId": 1}]);
                }
            });
        }
        for turn in 1..=60 {
            db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": format!("n{turn}")}}).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let orders = db.find("orders", doc! {});
    let fresh = |order: &&Document| {
        let copy = order.get("customer").and_then(RawValue::as_document);
        copy.and_then(|copy| copy.get("name"))
            .map(RawValue::to_value)
            .is_some_and(|name| matches!(name, Value::String(name) if *name == *"n60"))
    };
    let stale = orders.len() - orders.iter().filter(fresh).count();
    report(
        "A customer renamed 60 times while 6 clients insert orders",
        "15 to 42 of about 500 stale for ever",
        &format!("{stale} of {} stale", orders.len()),
        &format!("0 of {} stale", orders.len()),
    );
    expect_true(&db, "orders", "card");
}

#[test]
fn a_filter_for_a_follower_of_a_celebrity() {
    let db = Db::disk();
    make(&db, &["users"]);
    let outlier = doc! {"field": "followers", "limit": 100, "pageSize": 100, "count": "followerCount"};
    declare(&db, "users", doc! {"name": "fans", "outlier": outlier}).unwrap();
    let followers = if in_full() { 100_000 } else { 5_000 };
    let names: Vec<Value> = (0..followers).map(|number| Value::from(format!("f{number}"))).collect();
    db.insert("users", &[doc! {"_id": "celebrity", "followers": names}]);
    let found =
        (0..50).filter(|at| db.count("users", doc! {"followers": format!("f{}", followers / 50 * at)}) == 1);
    report(
        "Outlier: a filter for followers of a celebrity, most of them in pages",
        "misses the celebrity whose follower is in the overflow",
        &format!("found by {} of 50 followers", found.count()),
        "found by 50 of 50 followers",
    );
    expect_true(&db, "users", "fans");
}

#[test]
fn a_hundred_readings_of_a_device_in_buckets_of_sixty() {
    let db = Db::disk();
    make(&db, &["readings"]);
    let bucket = doc! {"timeField": "at", "metaField": "device", "maxCount": 60};
    declare(&db, "readings", doc! {"name": "hours", "bucket": bucket}).unwrap();
    let reading = |at: i64| doc! {"device": 1, "at": Value::DateTime(at * 1000), "temp": at};
    let refused = (0..100).filter(|at| db.try_insert("readings", reading(*at)).is_err()).count();
    let operation = std::sync::Arc::clone(&db.engine.operations.start(1));
    db.engine.seal_all(&operation, &crate::support::ns("readings")).unwrap();
    let buckets = crate::pipeline::run(&db, "readings.buckets", Vec::new());
    let counts: Vec<i64> = buckets.iter().map(|bucket| number(bucket, "count")).collect();
    report(
        "Bucket: a hundred readings of a device in an hour, sixty to a bucket",
        "readings 61 to 100 rejected with E11000",
        &format!("{refused} of 100 refused, {} kept, {counts:?}", db.count("readings", doc! {})),
        "0 of 100 refused, 100 kept, [60, 40]",
    );
    expect_true(&db, "readings", "hours");
}

#[test]
fn two_versions_of_an_application_update_a_thousand_users() {
    let db = Db::disk();
    let user = |id| doc! {"_id": id, "schemaVersion": 1, "phone": format!("555-{id}"), "n": 0};
    db.insert("users", &(0..1000).map(user).collect::<Vec<_>>());
    let versions = doc! {
        "field": "schemaVersion", "from": 1, "to": 2,
        "up": [{"$set": {"phone": {"countryCode": "+1", "number": "$phone"}}}],
        "down": [{"$set": {"phone": "$phone.number"}}],
    };
    declare(&db, "users", doc! {"name": "phones", "schemaVersion": versions}).unwrap();
    // The job has yet to write most of them.
    let found = db.count("users", doc! {"phone.number": {"$exists": true}});
    thread::scope(|scope| {
        for (name, begin) in [("users", 0), ("users@1", 1)] {
            let db = &db;
            scope.spawn(move || {
                for id in (begin..1000).step_by(2) {
                    db.update(name, doc! {"_id": id}, doc! {"$inc": {"n": 1}}).unwrap();
                }
            });
        }
    });
    wait_until_active(&db, "users", "phones");
    let lost = 1000 - db.count("users", doc! {"n": 1, "phone.countryCode": "+1"});
    report(
        "Versions: a thousand users are updated, half by the old application, while they are converted",
        "4 of 1000 updates lost; a filter on the new shape finds 0 old documents",
        &format!("{lost} of 1000 updates lost; the filter finds {found} at once"),
        "0 of 1000 updates lost; the filter finds 1000 at once",
    );
    expect_true(&db, "users", "phones");
}
