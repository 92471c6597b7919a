//! Patterns from their declaration to their end: definitions as documents, filling that goes on where it stopped, restored
//! definitions, modification.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::patterns::{Pattern, PatternState};
use kilim_engine::upkeep::{Part, Verification};
use kilim_error::{ErrorCode, Result};

use kilim_storage::MemoryDisk;

use crate::pattern::{card, declare, make, one, recent, stats, wait_until_active};
use crate::pattern_crash::{at_every_commit, wait_for_jobs};
use crate::support::{Db, eventually, everywhere, ns, number, numbered};

pub const DEFINITIONS: &str = "kilim.patterns";

pub fn pattern(db: &Db, target: &str, name: &str) -> Arc<Pattern> {
    db.engine.pattern(&ns(target), name).unwrap()
}

pub fn state(db: &Db, target: &str, name: &str) -> PatternState {
    pattern(db, target, name).state.clone()
}

pub fn verify(db: &Db, target: &str, name: &str) -> Verification {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.verify_pattern(&operation, &pattern(db, target, name), None, 10).unwrap()
}

fn repair(db: &Db, target: &str, name: &str) -> Result<Verification> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.repair_pattern(&operation, &pattern(db, target, name), None, 10)
}

fn modify(db: &Db, target: &str, name: &str, changes: Document) -> Result<Arc<Pattern>> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let before = pattern(db, target, name);
    let modified = db.engine.modify_pattern(&operation, &before, changes.as_raw())?;
    if modified.id != before.id {
        db.engine.begin_filling(&modified);
    }
    Ok(modified)
}

/// Breaks what a pattern maintains behind its back.
pub fn spoil(db: &Db, target: &str, name: &str, spoil: impl FnOnce()) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.pause_pattern(&operation, &pattern(db, target, name)).unwrap();
    spoil();
    db.engine.set_pattern_state(&operation, &pattern(db, target, name), PatternState::Active).unwrap();
}

pub fn shop(db: &Db) {
    make(db, &["customers", "orders"]);
    db.insert("customers", &numbered(0..5, |id| doc! {"name": format!("c{id}")}));
    db.insert("orders", &numbered(0..50, |id| doc! {"customerId": id % 5}));
}

pub fn with(mut fields: Document, name: &str, value: impl Into<Value>) -> Document {
    fields.push(name, value.into());
    fields
}

pub fn text(document: &Document, name: &str) -> String {
    document.get(name).and_then(RawValue::as_str).unwrap_or_default().to_owned()
}

fn definition(target: &str, fields: Document) -> Document {
    let name = fields.get("name").and_then(RawValue::as_str).unwrap().to_owned();
    doc! {"_id": format!("{target}.{name}"), "target": target, "name": name, "definition": fields, "state": "active"}
}

#[test]
fn definitions_are_documents_that_patterns_are_loaded_from() {
    let mut db = Db::disk();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    wait_until_active(&db, "orders", "card");
    let stored = one(&db, DEFINITIONS, doc! {"_id": "orders.card"});
    let mut expected = doc! {"createPattern": "orders"};
    card().iter().for_each(|(name, value)| expected.push(name, value));
    assert_eq!(
        stored,
        doc! {
            "_id": "orders.card", "target": "orders", "name": "card", "kind": "extendedReference",
            "definition": expected, "state": "active",
        }
    );
    db.reopen();
    assert_eq!(state(&db, "orders", "card"), PatternState::Active);
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "new"}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "new"}), 10);
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.drop_pattern(&operation, &pattern(&db, "orders", "card")).unwrap();
    assert!(db.find(DEFINITIONS, doc! {}).is_empty());
    db.reopen();
    assert!(db.engine.patterns().of("test").is_empty());
    db.check();
}

#[test]
fn definitions_are_changed_by_commands_only() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    wait_until_active(&db, "orders", "card");
    let refused =
        |result: Result<()>| assert_eq!(result.unwrap_err().code(), ErrorCode::CollectionOwnedByPattern);
    refused(db.update(DEFINITIONS, doc! {}, doc! {"$set": {"state": "paused"}}).map(drop));
    refused(db.delete(DEFINITIONS, doc! {}).map(drop));
    refused(db.rename(DEFINITIONS, "others", false));
    refused(db.rename("orders", DEFINITIONS, true));
    refused(db.build(DEFINITIONS, vec![crate::support::spec(doc! {"name": 1})]));
    refused(declare(&db, DEFINITIONS, doc! {"name": "p", "computed": {"set": {"a": "$b"}}}).map(drop));
    let mut transaction = db.transaction(1, 1);
    let error = transaction.insert(DEFINITIONS, definition("orders", recent())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OperationNotSupportedInTransaction);
    // Without the collection there are no definitions.
    db.drop_collection(DEFINITIONS).unwrap();
    assert!(db.engine.patterns().of("test").is_empty());
    assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), 50);
    db.check();
}

#[test]
fn an_inserted_definition_is_inert_until_its_data_is_true() {
    everywhere(|mut db| {
        shop(&db);
        // Before anything that it is about is there.
        db.insert(DEFINITIONS, &[definition("products", stats()), definition("orders", card())]);
        assert_eq!(text(&one(&db, DEFINITIONS, doc! {"name": "card"}), "state"), "unverified");
        db.insert("orders", &[doc! {"_id": 100, "customerId": 1}]);
        assert!(one(&db, "orders", doc! {"_id": 100}).get("customer").is_none());
        if db.is_durable() {
            db.reopen();
        }
        assert_eq!(state(&db, "orders", "card"), PatternState::Unverified);
        let found = verify(&db, "orders", "card");
        assert_eq!((found.checked, found.wrong), (51, 51));
        assert_eq!(state(&db, "orders", "card"), PatternState::Unverified);
        db.insert("orders", &[doc! {"_id": 101, "customerId": 1}]);
        assert!(one(&db, "orders", doc! {"_id": 101}).get("customer").is_none());
        let found = repair(&db, "orders", "card").unwrap();
        assert_eq!(found.wrong, 52);
        assert_eq!(state(&db, "orders", "card"), PatternState::Active);
        assert_eq!(verify(&db, "orders", "card").wrong, 0);
        // The other lacks its source.
        let error = repair(&db, "products", "stats").unwrap_err();
        assert_eq!(error.code(), ErrorCode::PatternSourceMissing);
        make(&db, &["reviews"]);
        verify(&db, "products", "stats");
        assert_eq!(state(&db, "products", "stats"), PatternState::Active);
        db.insert("products", &[doc! {"_id": 1}]);
        db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 3}]);
        assert_eq!(number(&one(&db, "products", doc! {}), "count"), 1);
        db.check();
    });
}

#[test]
fn a_document_that_is_no_definition_is_refused() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    let code = |document: Document| db.try_insert(DEFINITIONS, document).unwrap_err().code();
    assert_eq!(code(doc! {"_id": 1}), ErrorCode::FailedToParse);
    assert_eq!(code(doc! {"name": "x"}), ErrorCode::FailedToParse);
    assert_eq!(code(with(definition("orders", recent()), "colour", "red")), ErrorCode::FailedToParse);
    let mut other = definition("orders", recent());
    other = other
        .iter()
        .map(|(name, value)| (name, if name == "_id" { "x".into() } else { value.to_value() }))
        .collect();
    assert_eq!(code(other), ErrorCode::FailedToParse);
    assert_eq!(code(definition("orders", doc! {"name": "x", "bucket": {}})).0, 40414);
    assert_eq!(code(definition("orders", card())), ErrorCode::DuplicateKey);
    let claims = doc! {"name": "other", "computed": {"set": {"customer.x": "$y"}}};
    assert_eq!(code(definition("orders", claims)), ErrorCode::PatternFieldConflict);
    db.check();
}

#[test]
fn filling_goes_on_where_it_stopped() {
    let mut db = Db::disk();
    make(&db, &["customers", "orders"]);
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..60, |_| doc! {"customerId": 1}));
    let slow = with(card(), "backfill", doc! {"batch": 10, "throttleMs": 60000});
    declare(&db, "orders", slow).unwrap();
    let progress = |db: &Db| db.engine.progress_of(&pattern(db, "orders", "card")).unwrap().unwrap();
    let filled = |db: &Db| db.count("orders", doc! {"customer.name": {"$exists": true}});
    // Each start fills one batch and then pauses.
    for batches in 1..=3 {
        eventually("a batch is filled", || progress(&db).0 >= batches * 10);
        assert_eq!(progress(&db), (batches * 10, 60));
        assert_eq!(filled(&db), batches * 10);
        db.reopen();
        assert_eq!(progress(&db).1, 60);
        assert!(progress(&db).0 >= batches * 10);
    }
    // What comes meanwhile is maintained, and not among what is filled.
    db.insert("orders", &numbered(100..110, |_| doc! {"customerId": 1}));
    modify(&db, "orders", "card", doc! {"backfill": {"throttleMs": 0}}).unwrap();
    db.reopen();
    wait_until_active(&db, "orders", "card");
    assert_eq!(filled(&db), 70);
    assert_eq!(db.engine.progress_of(&pattern(&db, "orders", "card")).unwrap(), None);
    assert_eq!(verify(&db, "orders", "card").wrong, 0);
    db.check();
}

#[test]
fn filling_ends_under_constant_inserts() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..500, |_| doc! {"customerId": 1}));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 1000;
            while !stop.load(Ordering::Relaxed) {
                db.insert("orders", &numbered(id..id + 20, |_| doc! {"customerId": 1}));
                id += 20;
            }
        });
        declare(&db, "orders", with(card(), "backfill", doc! {"batch": 5})).unwrap();
        wait_until_active(&db, "orders", "card");
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(verify(&db, "orders", "card").wrong, 0);
    db.check();
}

#[test]
fn a_new_rollup_leaves_documents_alone_that_are_not_its_own() {
    let db = Db::memory();
    make(&db, &["sales", "totals"]);
    db.insert("sales", &numbered(0..20, |id| doc! {"shop": id % 2, "amount": 1}));
    db.insert("totals", &[doc! {"_id": 9, "note": "mine"}]);
    let rollup = doc! {"name": "totals", "computed": {
        "from": "sales", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$shop", "sum": {"$sum": "$amount"}}}],
    }};
    declare(&db, "totals", rollup).unwrap();
    wait_until_active(&db, "totals", "totals");
    assert_eq!(one(&db, "totals", doc! {"_id": 9}), doc! {"_id": 9, "note": "mine", "sum": 0});
    assert_eq!(number(&one(&db, "totals", doc! {"_id": 1}), "sum"), 10);
    assert_eq!(verify(&db, "totals", "totals").wrong, 0);
}

#[test]
fn options_change_without_filling_anew() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    wait_until_active(&db, "orders", "card");
    let before = pattern(&db, "orders", "card");
    let after = modify(&db, "orders", "card", doc! {"onUserWrite": "reject", "touch": "at"}).unwrap();
    assert_eq!((after.id, &after.state), (before.id, &PatternState::Active));
    let stored = one(&db, DEFINITIONS, doc! {});
    let definition = stored.get("definition").unwrap().as_document().unwrap().to_document();
    assert_eq!(text(&definition, "onUserWrite"), "reject");
    let replaced = db.update("orders", doc! {"_id": 1}, doc! {"customerId": 1, "customer": {"name": "x"}});
    assert_eq!(replaced.unwrap_err().code(), ErrorCode::PatternFieldReadOnly);
    let code = |changes: Document| modify(&db, "orders", "card", changes).unwrap_err().code();
    assert_eq!(code(doc! {"colour": "red"}).0, 40415);
    assert_eq!(code(doc! {"computed": {"set": {"a": "$b"}}}), ErrorCode::BadValue);
    assert_eq!(code(doc! {"extendedReference": {"from": "nobody"}}), ErrorCode::PatternSourceMissing);
    assert_eq!(code(doc! {"extendedReference": {"foreignField": "name"}}), ErrorCode::PatternNotReady);
}

#[test]
fn what_is_maintained_changes_online() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        db.insert("products", &numbered(0..5, |_| doc! {}));
        db.insert("reviews", &numbered(0..50, |id| doc! {"product": id % 5, "rating": id % 7, "at": id}));
        declare(&db, "products", recent()).unwrap();
        declare(&db, "products", stats()).unwrap();
        wait_until_active(&db, "products", "recent");
        wait_until_active(&db, "products", "stats");
        let length = |id: i32| match one(&db, "products", doc! {"_id": id}).get("recent") {
            Some(RawValue::Array(list)) => list.iter().count(),
            other => panic!("{other:?}"),
        };
        for limit in [4, 1, 3] {
            modify(&db, "products", "recent", doc! {"subset": {"limit": limit}}).unwrap();
            db.insert("reviews", &[doc! {"_id": 1000 + limit, "product": 1, "rating": 1, "at": 5}]);
            wait_until_active(&db, "products", "recent");
            assert_eq!(length(1), limit as usize);
            assert_eq!(verify(&db, "products", "recent").wrong, 0);
        }
        let pipeline = vec![doc! {"$group": {
            "_id": "$product", "count": {"$count": {}}, "worst": {"$min": "$rating"},
        }}];
        modify(&db, "products", "stats", doc! {"computed": {"pipeline": pipeline}}).unwrap();
        wait_until_active(&db, "products", "stats");
        let product = one(&db, "products", doc! {"_id": 1});
        assert_eq!(number(&product, "worst"), 0);
        // What is no longer maintained stays as a plain field.
        assert!(product.get("average").is_some());
        db.update("products", doc! {"_id": 1}, doc! {"$unset": {"average": 1}}).unwrap();
        assert_eq!(verify(&db, "products", "stats").wrong, 0);
        db.check();
    });
}

#[test]
fn a_new_computed_field_is_filled() {
    let db = Db::memory();
    db.insert("orders", &numbered(0..20, |id| doc! {"price": id}));
    declare(&db, "orders", doc! {"name": "sums", "computed": {"set": {"tax": {"$multiply": ["$price", 2]}}}})
        .unwrap();
    wait_until_active(&db, "orders", "sums");
    let set = doc! {"tax": {"$multiply": ["$price", 2]}, "total": {"$add": ["$price", "$tax"]}};
    modify(&db, "orders", "sums", doc! {"computed": {"set": set}}).unwrap();
    wait_until_active(&db, "orders", "sums");
    assert_eq!(number(&one(&db, "orders", doc! {"_id": 7}), "total"), 21);
    assert_eq!(verify(&db, "orders", "sums").wrong, 0);
}

#[test]
fn readers_are_kept_from_what_is_not_filled() {
    let db = Db::memory();
    shop(&db);
    let slow = with(card(), "backfill", doc! {"batch": 1, "throttleMs": 60000});
    declare(&db, "orders", with(slow, "whileBuilding", "fail")).unwrap();
    let find = |filter: Document| db.run(|unit| crate::support::find(unit, "orders", filter, None)).map(drop);
    assert_eq!(find(doc! {}).unwrap_err().code(), ErrorCode::PatternNotReady);
    // A number shows no document.
    assert_eq!(db.count("orders", doc! {"customerId": 1}), 10);
    let counted = db.run(|unit| crate::support::count(unit, "orders", doc! {"customer.name": "c1"}));
    assert_eq!(counted.unwrap_err().code(), ErrorCode::PatternNotReady);
    let updated = db.update("orders", doc! {"customer.name": "c1"}, doc! {"$set": {"a": 1}});
    assert_eq!(updated.unwrap_err().code(), ErrorCode::PatternNotReady);
    db.update("orders", doc! {"_id": 1}, doc! {"$set": {"a": 1}}).unwrap();
    assert_eq!(db.find("customers", doc! {}).len(), 5);
    modify(&db, "orders", "card", doc! {"whileBuilding": "absent"}).unwrap();
    find(doc! {}).unwrap();
}

#[test]
fn a_sample_finds_what_is_wrong_everywhere() {
    let db = Db::memory();
    shop(&db);
    make(&db, &["totals"]);
    declare(&db, "orders", with(card(), "scrub", doc! {"everyHours": 1, "sample": 0.1})).unwrap();
    wait_until_active(&db, "orders", "card");
    let operation = Arc::clone(&db.engine.operations.start(1));
    let sample = |share: f64| {
        let part = Part { filter: None, sample: Some(share) };
        db.engine.verify_pattern(&operation, &pattern(&db, "orders", "card"), part, 10).unwrap()
    };
    for share in [0.01, 0.1, 0.5, 1.0] {
        let found = sample(share);
        assert_eq!(found.wrong, 0);
        assert!(found.checked <= 50 && (share < 0.5 || found.checked > 0), "{found:?}");
        assert!(share >= 0.2 || (1..=5).contains(&found.checked), "{found:?}");
    }
    let now = db.engine.now_millis();
    spoil(&db, "orders", "card", || {
        db.update_many("orders", doc! {}, doc! {"$set": {"customer": {"name": "wrong"}}}).unwrap();
    });
    assert_eq!(db.engine.scrub(&operation, now).unwrap(), 0);
    assert!(db.engine.scrub(&operation, now + 3_600_001).unwrap() > 0);
    assert_eq!(state(&db, "orders", "card"), PatternState::Suspect);
    assert_eq!(repair(&db, "orders", "card").unwrap().wrong, 50);
    assert_eq!(state(&db, "orders", "card"), PatternState::Active);
    // It was looked at an hour from now.
    assert_eq!(db.engine.scrub(&operation, now + 3_600_002).unwrap(), 0);
    assert_eq!(db.engine.scrubbing.checks.get(), 1);
}

#[test]
fn a_document_that_would_grow_too_large_keeps_what_it_has() {
    let mut db = Db::disk();
    make(&db, &["notes", "pages"]);
    let long = "x".repeat(9 << 20);
    declare(
        &db,
        "pages",
        doc! {"name": "note", "extendedReference": {
            "from": "notes", "localField": "note", "as": "copy", "fields": {"text": 1},
        }},
    )
    .unwrap();
    db.insert("notes", &[doc! {"_id": 1, "text": "short"}]);
    db.insert("pages", &[doc! {"_id": 1, "note": 1, "body": &long}]);
    db.update("notes", doc! {"_id": 1}, doc! {"$set": {"text": &long}}).unwrap();
    let page = one(&db, "pages", doc! {"_id": 1});
    assert_eq!(text(&page.get("copy").unwrap().as_document().unwrap().to_document(), "text"), "short");
    assert_eq!(pattern(&db, "pages", "note").shown_state(), "suspect");
    db.reopen();
    assert_eq!(pattern(&db, "pages", "note").shown_state(), "suspect");
    db.engine.tick();
    eventually("the pattern is suspect", || state(&db, "pages", "note") == PatternState::Suspect);
    assert_eq!(verify(&db, "pages", "note").wrong, 1);
    // A user's own write was possible before, and stays so.
    db.insert("pages", &[doc! {"_id": 2, "note": 1, "body": &long}]);
    assert!(one(&db, "pages", doc! {"_id": 2}).get("copy").is_none());
    assert_eq!(verify(&db, "pages", "note").wrong, 2);
    db.update("notes", doc! {"_id": 1}, doc! {"$set": {"text": "small"}}).unwrap();
    assert_eq!(verify(&db, "pages", "note").wrong, 0);
    assert_eq!(state(&db, "pages", "note"), PatternState::Active);
    db.check();
}

#[test]
fn a_modification_goes_on_after_any_commit() {
    let length = |db: &Db| match one(db, "products", doc! {"_id": 1}).get("recent") {
        Some(RawValue::Array(list)) => list.iter().count() as i64,
        other => panic!("{other:?}"),
    };
    let stopped = at_every_commit(
        |db| {
            make(db, &["products", "reviews"]);
            db.insert("products", &numbered(0..4, |_| doc! {}));
            db.insert("reviews", &numbered(0..20, |id| doc! {"product": id % 4, "rating": 1, "at": id}));
            declare(db, "products", with(recent(), "backfill", doc! {"batch": 1})).unwrap();
        },
        |db| modify(db, "products", "recent", doc! {"subset": {"limit": 4}}).map(drop),
        |db| {
            let limit = number(&pattern(db, "products", "recent").declaration.spec, "limit");
            assert_eq!(length(db), limit);
            if limit == 2 {
                modify(db, "products", "recent", doc! {"subset": {"limit": 4}}).unwrap();
                wait_for_jobs(db, &MemoryDisk::default());
            }
            assert_eq!(length(db), 4);
        },
    );
    assert!(stopped > 4, "{stopped}");
}

#[test]
fn a_restored_definition_is_repaired_after_any_commit() {
    let finish = |db: &Db| -> Result<()> {
        if db.engine.patterns().of("test").is_empty() {
            db.try_insert(DEFINITIONS, definition("orders", card()))?;
        }
        if state(db, "orders", "card") == PatternState::Unverified {
            verify(db, "orders", "card");
            repair(db, "orders", "card")?;
        }
        Ok(())
    };
    at_every_commit(
        shop,
        |db| {
            db.try_insert(DEFINITIONS, definition("orders", card()))?;
            let operation = Arc::clone(&db.engine.operations.start(1));
            db.engine.verify_pattern(&operation, &pattern(db, "orders", "card"), None, 10)?;
            repair(db, "orders", "card").map(drop)
        },
        |db| {
            finish(db).unwrap();
            assert_eq!(state(db, "orders", "card"), PatternState::Active);
            assert_eq!(db.count("orders", doc! {"customer.name": "c1"}), 10);
        },
    );
}

#[test]
fn patterns_stay_true_while_they_are_modified_paused_renamed_and_repaired_under_writers() {
    let db = Db::memory();
    make(&db, &["products", "reviews", "totals"]);
    db.insert("products", &numbered(0..5, |_| doc! {}));
    db.insert("reviews", &numbered(0..100, |id| doc! {"product": id % 5, "rating": id % 6, "at": id}));
    declare(&db, "products", with(stats(), "backfill", doc! {"batch": 2})).unwrap();
    declare(&db, "products", with(recent(), "backfill", doc! {"batch": 2})).unwrap();
    let rollup = doc! {"name": "totals", "computed": {
        "from": "reviews", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$rating", "n": {"$count": {}}}}],
    }, "backfill": {"batch": 5}};
    declare(&db, "totals", rollup).unwrap();
    wait_until_active(&db, "totals", "totals");
    let stop = AtomicBool::new(false);
    let goes_on = || !stop.load(Ordering::Relaxed);
    let may_fail = |result: Result<()>| {
        if let Err(error) = result {
            let expected = [
                ErrorCode::PatternNotReady,
                ErrorCode::PatternNotFound,
                ErrorCode::NamespaceNotFound,
                ErrorCode::QueryPlanKilled,
                ErrorCode::PatternFieldReadOnly,
            ];
            assert!(expected.contains(&error.code()), "{error}");
        }
    };
    thread::scope(|scope| {
        for writer in 0..2 {
            let (db, may_fail) = (&db, &may_fail);
            scope.spawn(move || {
                let mut turn = writer * 100_000;
                while goes_on() {
                    turn += 1;
                    for reviews in ["reviews", "opinions"] {
                        // One of the two names is free, and must not be made by the way.
                        let filter = doc! {"_id": turn % 100};
                        let moved = doc! {"$set": {"product": turn % 5, "rating": turn % 6, "at": turn}};
                        may_fail(db.update(reviews, filter, moved).map(drop));
                        may_fail(db.delete(reviews, doc! {"_id": (turn + 7) % 300}).map(drop));
                    }
                    let name =
                        if db.engine.collection(&ns("reviews")).is_some() { "reviews" } else { "opinions" };
                    let mut transaction = db.transaction(writer as u8 + 1, i64::from(turn));
                    let inserted =
                        transaction.update(name, doc! {"at": {"$lt": turn}}, doc! {"$inc": {"rating": 1}});
                    if inserted.is_ok() {
                        let _ = transaction.commit();
                    }
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(3);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            let name = ["stats", "recent"][turn % 2];
            let now = pattern(&db, "products", name);
            match turn % 7 {
                0 => may_fail(
                    modify(&db, "products", "recent", doc! {"subset": {"limit": 1 + turn as i32 % 4}})
                        .map(drop),
                ),
                1 => may_fail(db.engine.pause_pattern(&operation, &now)),
                2 | 5 => {
                    if now.state == PatternState::Paused {
                        let restarted = db.engine.restart_pattern(&operation, &now).unwrap();
                        db.engine.begin_filling(&restarted);
                    }
                }
                3 => may_fail(repair(&db, "products", name).map(drop)),
                4 => {
                    let (from, to) = match db.engine.collection(&ns("reviews")) {
                        Some(_) => ("reviews", "opinions"),
                        None => ("opinions", "reviews"),
                    };
                    db.rename(from, to, false).unwrap();
                }
                _ => {
                    let totals = pattern(&db, "totals", "totals");
                    assert_eq!(db.engine.verify_pattern(&operation, &totals, None, 3).unwrap().wrong, 0);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for name in ["stats", "recent"] {
        let operation = Arc::clone(&db.engine.operations.start(1));
        let now = pattern(&db, "products", name);
        if now.state == PatternState::Paused {
            let restarted = db.engine.restart_pattern(&operation, &now).unwrap();
            db.engine.begin_filling(&restarted);
        }
    }
    wait_for_jobs(&db, &MemoryDisk::default());
    for (target, name) in [("products", "stats"), ("products", "recent"), ("totals", "totals")] {
        assert_eq!(state(&db, target, name), PatternState::Active, "{name}");
        let found = verify(&db, target, name);
        assert_eq!(found.wrong, 0, "{name}: {:?}", found.examples);
    }
    db.check();
}
