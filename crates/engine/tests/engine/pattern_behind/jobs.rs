//! The jobs that carry through what was left, though they are killed, cut off or overtaken.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kilim_bson::{RawValue, doc};
use kilim_storage::{MemoryDisk, Survivors};

use super::{
    expect_seen, expect_true, few, finish, kill_jobs, lag, rename, shop, slow, stored_names, wait_until_even,
    with,
};
use crate::pattern::{card, declare, make, one, wait_until_active};
use crate::support::{Db, eventually, everywhere, ns, number, numbered, spec};

#[test]
fn a_job_carries_through_what_was_left() {
    everywhere(|db| {
        shop(&db, few());
        rename(&db, 1, "Zoe");
        wait_until_even(&db, "orders", "card");
        assert_eq!(stored_names(&db).iter().filter(|name| *name == "Zoe").count(), 10);
        expect_seen(&db, "Zoe", "Ann");
        expect_true(&db, "orders", "card");
        db.check();
    });
}

#[test]
fn a_killed_job_leaves_the_truth_and_is_taken_up_by_repair() {
    let db = Db::memory();
    shop(&db, slow(few()));
    rename(&db, 1, "Zoe");
    kill_jobs(&db);
    thread::sleep(Duration::from_millis(50));
    expect_seen(&db, "Zoe", "Ann");
    let jobs = db.engine.jobs.lock().clone();
    assert_eq!(jobs.iter().map(|job| job.state()).collect::<Vec<_>>(), ["killed"]);
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    let shown = db.engine.describe_pattern(&pattern).unwrap();
    let counters = shown.get("counters").and_then(RawValue::as_document).unwrap().to_document();
    assert_eq!(number(&counters, "pendingSources"), 1);
    db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
    let jobs = db.engine.jobs.lock().clone();
    assert_eq!(jobs.iter().map(|job| job.state()).collect::<Vec<_>>(), ["running"]);
    expect_seen(&db, "Zoe", "Ann");
}

#[test]
fn how_long_something_has_been_pending_is_told() {
    let db = Db::memory();
    shop(&db, slow(few()));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    let lag_millis = || number(&db.engine.pattern_stats(&pattern).unwrap(), "lagMillis");
    assert_eq!(lag_millis(), 0);
    rename(&db, 1, "Zoe");
    eventually("it is late", || lag_millis() > 20);
    // Another change of the same source makes it no younger.
    rename(&db, 1, "Yma");
    assert!(lag_millis() > 20);
    finish(&db, "orders", "card");
    assert_eq!(lag_millis(), 0);
}

#[test]
fn a_restart_takes_up_what_was_pending() {
    let mut db = Db::disk();
    shop(&db, slow(few()));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    // Each run of the engine writes one document, then rests.
    let mut runs = 0;
    while lag(&db, "orders", "card") > 0 {
        runs += 1;
        assert!(runs < 1000);
        db.reopen();
        expect_seen(&db, "Zoe", "Ann");
        expect_true(&db, "orders", "card");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(runs >= 9, "{runs}");
    assert_eq!(stored_names(&db)[..10], vec!["Zoe"; 10]);
    db.check();
}

#[test]
fn power_fails_at_every_commit_of_a_fan_out() {
    let before = MemoryDisk::default();
    let pattern = doc! {"name": "card", "maxSync": 2, "backfill": {"batch": 2}, "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
    }};
    let db = Db::on(&before);
    shop(&db, pattern);
    db.engine.close().unwrap();
    drop(db);
    let mut commits = 0;
    loop {
        let disk = before.copy();
        let db = Db::on(&disk);
        disk.stop_after(commits);
        let _ = db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Zoe"}});
        let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
        eventually("the job ends", || disk.is_off() || db.engine.catching_up(&pattern).is_none());
        let through = !disk.is_off();
        let _ = db.engine.close();
        drop(db);
        disk.restart(Survivors::Written);
        let db = Db::on(&disk);
        let name = name_of_customer(&db);
        assert_eq!(db.count("orders", doc! {"customer.name": &*name}), 10, "{commits}");
        expect_true(&db, "orders", "card");
        wait_until_even(&db, "orders", "card");
        assert_eq!(stored_names(&db)[..10], vec![name; 10]);
        db.check();
        if through {
            break;
        }
        commits += 1;
    }
    // The write, five pages, and the end.
    assert!(commits >= 7, "{commits}");
}

fn name_of_customer(db: &Db) -> String {
    let customer = one(db, "customers", doc! {"_id": 1});
    customer.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned()
}

#[test]
fn an_older_fan_out_that_ends_late_does_no_harm() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    let pattern = with(with(card(), "maxSync", 5), "backfill", doc! {"batch": 7});
    declare(&db, "orders", pattern).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "0"}]);
    db.insert("orders", &numbered(0..300, |id| doc! {"customerId": 1, "n": id}));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    thread::scope(|scope| {
        // Several walk at once, each from a moment of its own.
        for _ in 0..3 {
            scope.spawn(|| {
                let operation = Arc::clone(&db.engine.operations.start(1));
                let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
                for _ in 0..10 {
                    db.engine.finish_pending(&operation, &pattern).unwrap();
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        scope.spawn(|| {
            for order in 300..340 {
                db.insert("orders", &[doc! {"_id": order, "customerId": 1, "n": order}]);
                db.update("orders", doc! {"_id": order - 250}, doc! {"$inc": {"x": 1}}).unwrap();
            }
        });
        for name in 1..=40 {
            rename(&db, 1, &name.to_string());
            assert_eq!(db.count("orders", doc! {"customer.name": (name - 1).to_string()}), 0);
            assert!(db.count("orders", doc! {"customer.name": name.to_string()}) >= 300);
        }
    });
    wait_until_even(&db, "orders", "card");
    assert_eq!(stored_names(&db), vec!["40"; 340]);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_job_whose_own_write_changes_the_children_leaves_them_pending() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    db.insert("products", &[doc! {"_id": 0}, doc! {"_id": 1}]);
    let recent = doc! {"name": "recent", "mode": "async", "subset": {
        "from": "reviews", "foreignField": "productId", "as": "recent", "sort": {"_id": 1}, "limit": 3,
        "fields": {"label": "$product.label"},
    }};
    let product = doc! {"name": "product", "extendedReference": {
        "from": "products", "localField": "productId", "as": "product", "fields": {"label": 1},
    }};
    declare(&db, "products", recent).unwrap();
    declare(&db, "reviews", product).unwrap();
    wait_until_active(&db, "products", "recent");
    wait_until_active(&db, "reviews", "product");
    // The second product has no label until somebody writes it, and the job is the first.
    let label = doc! {"name": "label", "computed": {"set": {"label": {"$toString": "$_id"}}}};
    declare(&db, "products", slow(label)).unwrap();
    db.insert("reviews", &[doc! {"_id": 7, "productId": 1}]);
    wait_until_even(&db, "products", "recent");
    let product = one(&db, "products", doc! {"_id": 1});
    let shown = product.get("recent").and_then(RawValue::as_array).unwrap();
    let expected = doc! {"_id": 7, "label": "1"};
    assert_eq!(shown.iter().next().and_then(RawValue::as_document).unwrap().as_bytes(), expected.as_bytes());
}
