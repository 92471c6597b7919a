//! The power goes at every commit of a backfill, of a fan-out and of a transaction, one after the other. Whatever was
//! on disk by then, the next start takes it up, and in the end everything is true.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::Error;
use kilim_storage::{MemoryDisk, Survivors};

use crate::pattern::{card, declare, make, recent, stats};
use crate::support::{Db, eventually, ns, number, numbered};

/// Prepares a disk once, then lets `act` run on copies of it that stop after 0, 1, 2, … commits, until it ends before
/// they do. Says at how many commits it was stopped.
pub fn at_every_commit(
    prepare: impl Fn(&Db),
    act: impl Fn(&Db) -> kilim_error::Result<()>,
    check: impl Fn(&Db),
) -> u64 {
    let prepared = MemoryDisk::default();
    let db = Db::on(&prepared);
    prepare(&db);
    wait_for_jobs(&db, &prepared);
    db.engine.close().unwrap();
    drop(db);
    for commits in 0.. {
        let mut died = false;
        for survivors in [Survivors::Synced, Survivors::Written] {
            let disk = prepared.copy();
            disk.restart(Survivors::Written);
            let db = Db::on(&disk);
            disk.stop_after(commits);
            match act(&db) {
                Ok(()) => wait_for_jobs(&db, &disk),
                Err(error) => assert!(disk.is_off() && matches!(error, Error::Storage(_)), "{error}"),
            }
            died |= disk.is_off();
            drop(db.engine.close());
            drop(db);
            disk.restart(survivors);
            let db = Db::on(&disk);
            wait_for_jobs(&db, &disk);
            check(&db);
            expect_all_true(&db);
            db.engine.close().unwrap();
        }
        if !died {
            return commits;
        }
    }
    unreachable!("it ends at some commit")
}

/// Until nothing is filled or fanned out any more, or there is no power to do it.
pub fn wait_for_jobs(db: &Db, disk: &MemoryDisk) {
    let busy = |state: &PatternState| matches!(state, PatternState::Building | PatternState::Verifying);
    eventually("the jobs end", || {
        let building = || db.engine.patterns().iter().any(|pattern| busy(&pattern.state));
        disk.is_off() || (db.engine.jobs.lock().is_empty() && !building())
    });
}

#[track_caller]
fn expect_all_true(db: &Db) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    for pattern in db.engine.patterns().iter() {
        let found = db.engine.verify_pattern(&operation, pattern, None, 3).unwrap();
        assert_eq!(found.wrong, 0, "{}: {:#?}", pattern.declaration.name, found.examples);
    }
    db.check();
}

fn slowly(mut declaration: Document) -> Document {
    declaration.push("backfill", doc! {"batch": 3});
    declaration
}

/// Declares what the crash took away.
fn declare_missing(db: &Db, target: &str, declaration: &Document) -> kilim_error::Result<()> {
    let name = declaration.get("name").and_then(RawValue::as_str).unwrap();
    match db.engine.patterns().find(&ns(target), name) {
        Some(_) => Ok(()),
        None => declare(db, target, declaration.clone()).map(drop),
    }
}

fn backfill(target: &'static str, declaration: Document, expect: impl Fn(&Db)) -> u64 {
    let declaration = slowly(declaration);
    at_every_commit(
        |db| {
            make(db, &["customers", "orders", "products", "reviews", "ratings"]);
            db.insert("customers", &numbered(0..4, |id| doc! {"name": format!("n{id}")}));
            db.insert("orders", &numbered(0..20, |id| doc! {"customerId": id % 5}));
            db.insert("products", &numbered(0..10, |_| doc! {}));
            db.insert("reviews", &numbered(0..20, |id| doc! {"product": id % 7, "rating": id % 4, "at": id}));
        },
        |db| declare_missing(db, target, &declaration),
        |db| {
            declare_missing(db, target, &declaration).unwrap();
            wait_for_jobs(db, &MemoryDisk::default());
            expect(db);
        },
    )
}

#[test]
fn r13_a_backfill_of_copies_goes_on_after_any_commit() {
    let stopped = backfill("orders", card(), |db| {
        assert_eq!(db.count("orders", doc! {"customer.name": "n1"}), 4);
        assert_eq!(db.count("orders", doc! {"customer": kilim_bson::Value::Null}), 4);
    });
    assert!(stopped > 4, "{stopped}");
}

#[test]
fn r13_a_backfill_of_groups_goes_on_after_any_commit() {
    let stopped = backfill("products", stats(), |db| {
        assert_eq!(db.find("products", doc! {}).iter().map(|one| number(one, "count")).sum::<i64>(), 20);
    });
    assert!(stopped > 4, "{stopped}");
    backfill("products", recent(), |db| {
        assert_eq!(db.count("products", doc! {"recent": {"$size": 2}}), 7);
    });
}

#[test]
fn r13_a_backfill_of_a_rollup_collection_goes_on_after_any_commit() {
    let by_rating = doc! {"name": "byRating", "computed": {
        "from": "reviews", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$rating", "count": {"$count": {}}}}],
    }};
    let stopped = backfill("ratings", by_rating, |db| {
        assert_eq!(db.count("ratings", doc! {"count": 5}), 4);
    });
    assert!(stopped > 4, "{stopped}");
}

#[test]
fn r13_a_backfill_within_documents_goes_on_after_any_commit() {
    let twice = doc! {"name": "twice", "computed": {"set": {"twice": {"$multiply": ["$rating", 2]}}}};
    backfill("reviews", twice, |db| assert_eq!(db.count("reviews", doc! {"twice": 6}), 5));
}

/// Customers and orders, with copies of copies.
fn copies(db: &Db, options: &Document) {
    make(db, &["customers", "orders", "parcels"]);
    let with = |mut declaration: Document| {
        options.iter().for_each(|(name, value)| declaration.push(name, value.to_value()));
        declaration
    };
    declare(db, "orders", with(card())).unwrap();
    let chained = doc! {"name": "label", "extendedReference": {
        "from": "orders", "localField": "orderId", "as": "to", "fields": {"name": "$customer.name"},
    }};
    declare(db, "parcels", with(chained)).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "old"}]);
    db.insert("orders", &numbered(0..12, |_| doc! {"customerId": 1}));
    db.insert("parcels", &numbered(0..24, |id| doc! {"orderId": id % 12}));
}

fn fan_out(options: Document) -> u64 {
    at_every_commit(
        |db| copies(db, &options),
        |db| db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "new"}}).map(drop),
        |db| {
            let name =
                db.find("customers", doc! {}).remove(0).get("name").unwrap().as_str().unwrap().to_owned();
            assert_eq!(db.count("orders", doc! {"customer.name": name.as_str()}), 12);
            assert_eq!(db.count("parcels", doc! {"to.name": name.as_str()}), 24);
        },
    )
}

#[test]
fn r13_a_fan_out_is_whole_or_not_at_all() {
    assert!(fan_out(Document::new()) > 0);
}

#[test]
fn r13_a_transaction_and_its_groups_are_whole_or_not_at_all() {
    at_every_commit(
        |db| {
            make(db, &["products", "reviews"]);
            declare(db, "products", stats()).unwrap();
            declare(db, "products", recent()).unwrap();
            db.insert("products", &numbered(0..3, |_| doc! {}));
        },
        |db| {
            for round in 0..3 {
                let mut transaction = db.transaction(1, round + 1);
                for id in 0..3 {
                    let id = round as i32 * 3 + id;
                    transaction
                        .insert("reviews", doc! {"_id": id, "product": id % 3, "rating": 1, "at": id})?;
                }
                transaction.commit()?;
            }
            Ok(())
        },
        |db| {
            let reviews = db.count("reviews", doc! {}) as i64;
            assert_eq!(reviews % 3, 0);
            let counted: i64 = db.find("products", doc! {}).iter().map(|one| number(one, "count")).sum();
            assert_eq!(counted, reviews);
        },
    );
}
