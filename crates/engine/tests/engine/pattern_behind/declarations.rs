//! What declarations say of being behind, and what becomes of what is pending when patterns are paused or dropped.

use std::sync::Arc;

use kilim_bson::doc;
use kilim_error::{ErrorCode, Result};

use super::{expect_seen, expect_true, few, lag, rename, shop, slow, stored_names, with};
use crate::pattern::{card, declare, make};
use crate::support::{Db, ns, numbered};

#[test]
fn what_others_read_is_never_late() {
    let db = Db::memory();
    make(&db, &["customers", "orders", "totals"]);
    let total =
        doc! {"name": "total", "computed": {"set": {"greeting": {"$concat": ["Dear ", "$customer.name"]}}}};
    declare(&db, "orders", few()).unwrap();
    declare(&db, "orders", total.clone()).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..10, |_| doc! {"customerId": 1}));
    rename(&db, 1, "Zoe");
    assert_eq!(lag(&db, "orders", "card"), 0);
    assert_eq!(db.count("orders", doc! {"greeting": "Dear Zoe"}), 10);
    let refused = |pattern: Result<_>| pattern.map(|_: Arc<_>| ()).unwrap_err();
    let late = doc! {"name": "late", "mode": "async", "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "late", "fields": {"name": 1},
    }};
    let reader = |name: &str| doc! {"name": name, "computed": {"set": {"shown": "$late.name"}}};
    declare(&db, "orders", late.clone()).unwrap();
    let error = refused(declare(&db, "orders", reader("reader")));
    assert_eq!(error.code(), ErrorCode::PatternFieldConflict);
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "late").unwrap();
    db.engine.drop_pattern(&operation, &pattern).unwrap();
    declare(&db, "orders", reader("reader")).unwrap();
    let error = refused(declare(&db, "orders", late));
    assert_eq!(error.code(), ErrorCode::PatternFieldConflict);
    assert!(error.to_string().contains("'reader' of test.orders"), "{error}");
    let error = refused(declare(&db, "orders", with(total, "mode", "async")));
    assert_eq!(error.code(), ErrorCode::BadValue);
}

#[test]
fn everything_late_by_choice() {
    let db = Db::memory();
    shop(&db, slow(with(card(), "mode", "async")));
    rename(&db, 2, "Bert");
    assert_eq!(lag(&db, "orders", "card"), 1);
    assert_eq!(db.count("orders", doc! {"customer.name": "Bert"}), 2);
    // Nobody refers to this one.
    db.insert("customers", &[doc! {"_id": 3, "name": "Cleo"}]);
    rename(&db, 3, "Cleopatra");
    assert_eq!(lag(&db, "orders", "card"), 1);
    expect_true(&db, "orders", "card");
}

#[test]
fn a_pause_keeps_what_is_pending_and_a_resumption_renews_it() {
    let db = Db::memory();
    shop(&db, slow(few()));
    rename(&db, 1, "Zoe");
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.pause_pattern(&operation, &pattern).unwrap();
    expect_seen(&db, "Zoe", "Ann");
    // Frozen means frozen.
    rename(&db, 1, "Nobody");
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 10);
    assert_eq!(db.count("orders", doc! {"customer.name": "Nobody"}), 0);
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    let resumed = db.engine.restart_pattern(&operation, &pattern).unwrap();
    assert_eq!(lag(&db, "orders", "card"), 1);
    expect_seen(&db, "Nobody", "Zoe");
    db.engine.begin_filling(&resumed);
    expect_true(&db, "orders", "card");
    // What is dropped leaves the truth behind.
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.drop_pattern(&operation, &pattern).unwrap();
    expect_seen(&db, "Nobody", "Zoe");
    assert_eq!(stored_names(&db)[..10], vec!["Nobody"; 10]);
    db.check();
}

#[test]
fn a_collection_is_dropped_with_what_is_pending_for_it() {
    let db = Db::memory();
    shop(&db, slow(few()));
    rename(&db, 1, "Zoe");
    db.drop_collection("orders").unwrap();
    assert!(db.find("orders", doc! {}).is_empty());
    db.insert("orders", &numbered(0..10, |_| doc! {"customerId": 1, "customer": {"name": "Eve"}}));
    assert_eq!(db.count("orders", doc! {"customer.name": "Eve"}), 10);
    assert!(db.engine.jobs.lock().is_empty());
}
