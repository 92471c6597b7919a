//! Maintenance that is behind: what readers and writers see meanwhile is the truth, and the rest follows.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::maintenance::{JobKind, Verification};
use kilim_engine::operator::ExecContext;
use kilim_engine::planner::{Distinct, ReadRequest};
use kilim_engine::read;
use kilim_error::{ErrorCode, Result};
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use kilim_storage::{MemoryDisk, Survivors};

use crate::pattern::{card, declare, make, one, wait_until_active};
use crate::pipeline::run as aggregate;
use crate::support::{
    Db, Updating, everywhere, filter, find_and_modify, ids, ns, number, numbered, spec, update_with,
};

/// A pattern whose job writes one document and then rests for as long as any test takes.
fn slow(mut fields: Document) -> Document {
    fields.push("backfill", doc! {"batch": 1, "throttleMs": 60_000});
    fields
}

fn with(mut fields: Document, name: &str, value: impl Into<Value>) -> Document {
    fields.push(name, value.into());
    fields
}

fn few() -> Document {
    with(card(), "maxSync", 3)
}

fn keeping(on_source_delete: &str) -> Document {
    doc! {"name": "card", "maxSync": 3, "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "onSourceDelete": on_source_delete,
    }}
}

/// Two customers: one of ten orders, one of two.
fn shop(db: &Db, pattern: Document) {
    make(db, &["customers", "orders"]);
    declare(db, "orders", pattern).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}, doc! {"_id": 2, "name": "Bob"}]);
    db.insert("orders", &numbered(0..10, |id| doc! {"customerId": 1, "n": id}));
    db.insert("orders", &numbered(10..12, |id| doc! {"customerId": 2, "n": id}));
}

fn rename(db: &Db, id: i32, name: &str) {
    db.update("customers", doc! {"_id": id}, doc! {"$set": {"name": name}}).unwrap();
}

fn lag(db: &Db, target: &str, name: &str) -> u64 {
    let pattern = db.engine.pattern(&ns(target), name).unwrap();
    db.engine.behind_of(&pattern).unwrap().pending_sources
}

#[track_caller]
fn wait_until_even(db: &Db, target: &str, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while lag(db, target, name) > 0 {
        assert!(Instant::now() < deadline, "still behind");
        thread::sleep(Duration::from_millis(2));
    }
}

fn verify(db: &Db, target: &str, name: &str) -> Verification {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns(target), name).unwrap();
    db.engine.verify_pattern(&operation, &pattern, None, 10).unwrap()
}

#[track_caller]
fn expect_true(db: &Db, target: &str, name: &str) {
    let found = verify(db, target, name);
    assert_eq!(found.wrong, 0, "{:?}", found.examples);
}

fn kill_jobs(db: &Db) {
    for job in db.engine.jobs.lock().iter() {
        job.kill();
    }
}

/// What is stored, whatever readers see.
fn stored_names(db: &Db) -> Vec<String> {
    let collection = db.engine.collection(&ns("orders")).unwrap();
    let snapshot = db.engine.store.snapshot();
    let lower = kilim_engine::layout::record_key(collection.id, kilim_engine::catalog::RecordId(0));
    let upper = kilim_engine::layout::record_key(collection.id, kilim_engine::catalog::RecordId(u64::MAX));
    let scan = snapshot.scan(
        kilim_storage::Space::Records,
        std::ops::Bound::Included(&lower[..]),
        std::ops::Bound::Included(&upper[..]),
        kilim_storage::Direction::Forward,
    );
    scan.map(|entry| {
        let (_, stored) = entry.unwrap();
        let document = kilim_bson::RawDocument::parse(&stored[8..]).unwrap().to_document();
        name_in(&document)
    })
    .collect()
}

fn name_in(order: &Document) -> String {
    match order.get("customer") {
        Some(RawValue::Document(copy)) => {
            copy.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned()
        }
        Some(RawValue::Null) => "null".to_owned(),
        _ => String::new(),
    }
}

fn read(db: &Db, request: ReadRequest) -> Vec<Document> {
    db.run(|unit| {
        let mut executor = read::plan(unit, &ns("orders"), request)?.execute();
        let mut context = ExecContext::new(&|| Ok(()));
        let mut found = Vec::new();
        while let Some(row) = executor.next_document(&mut context)? {
            found.push(row.document().to_document());
        }
        Ok(found)
    })
    .unwrap()
}

/// Everything that readers can ask about the name of customer 1, who has orders 0 to 9.
#[track_caller]
fn expect_seen(db: &Db, name: &str, old: &str) {
    let orders: Vec<i64> = (0..10).collect();
    assert_eq!(sorted_ids(&db.find("orders", doc! {"customer.name": name})), orders);
    assert!(db.find("orders", doc! {"customer.name": old}).is_empty());
    assert_eq!(sorted_ids(&db.find("orders", doc! {"customer.name": name, "n": {"$gte": 8}})), [8, 9]);
    assert_eq!(sorted_ids(&db.find("orders", doc! {"n": 3, "customer.name": name})), [3]);
    assert_eq!(name_in(&one(db, "orders", doc! {"_id": 5})), name);
    let either = doc! {"$or": [{"customer.name": "Bob"}, {"customer.name": name, "n": 1}]};
    let mut found = sorted_ids(&db.find("orders", either));
    found.sort_unstable();
    assert_eq!(found, [1, 10, 11]);
    assert_eq!(db.count("orders", doc! {"customer.name": name}), 10);
    assert_eq!(db.count("orders", doc! {"customer.name": old}), 0);
    assert_eq!(db.count("orders", doc! {}), 12);
    assert_eq!(db.count("orders", doc! {"customer.name": {"$ne": name}}), 2);
    // By its name, with a window.
    let mut sorted = ReadRequest::new(filter(doc! {}));
    sorted.sort = Some(Sort::parse(doc! {"customer.name": -1, "n": 1}.as_raw()).unwrap());
    (sorted.skip, sorted.limit) = (1, Some(11));
    let in_order: Vec<String> = read(db, sorted).iter().map(name_in).collect();
    let mut expected: Vec<String> = vec![name.to_owned(); 10];
    expected.extend(["Bob".to_owned(), "Bob".to_owned()]);
    expected.sort_by(|left, right| right.cmp(left));
    expected.remove(0);
    assert_eq!(in_order, expected);
    // From an index alone, if it could.
    let mut covered = ReadRequest::new(filter(doc! {"customerId": 1}));
    covered.projection = Some(Projection::parse(doc! {"_id": 0, "customer": 1}.as_raw()).unwrap());
    assert!(read(db, covered).iter().all(|order| name_in(order) == name));
    let mut distinct = ReadRequest::new(filter(doc! {}));
    distinct.distinct = Some(Distinct { path: "customer.name".into(), nulls_apart: false });
    let mut names: Vec<String> = read(db, distinct).iter().map(name_in).collect();
    names.sort_unstable();
    names.dedup();
    let mut all = vec![name.to_owned(), "Bob".to_owned()];
    all.sort_unstable();
    assert_eq!(names, all);
    // In pipelines, and below them.
    let groups = aggregate(
        db,
        "orders",
        vec![doc! {"$group": {"_id": "$customer.name", "n": {"$sum": 1}}}, doc! {"$match": {"_id": name}}],
    );
    assert_eq!(groups.len(), 1);
    assert_eq!(number(&groups[0], "n"), 10);
    let counted =
        aggregate(db, "orders", vec![doc! {"$match": {"customer.name": name}}, doc! {"$count": "n"}]);
    assert_eq!(number(&counted[0], "n"), 10);
    for foreign in ["customer.name", "customerId"] {
        let local = if foreign == "customerId" { "_id" } else { "name" };
        let joined = aggregate(
            db,
            "customers",
            vec![
                doc! {"$match": {"_id": 1}},
                doc! {"$lookup": {
                    "from": "orders", "localField": local, "foreignField": foreign, "as": "orders",
                }},
                doc! {"$unwind": "$orders"},
                doc! {"$replaceRoot": {"newRoot": "$orders"}},
            ],
        );
        assert_eq!(joined.len(), 10, "{foreign}");
        assert!(joined.iter().all(|order| name_in(order) == name), "{foreign}");
    }
    let inner = aggregate(
        db,
        "customers",
        vec![
            doc! {"$match": {"_id": 1}},
            doc! {"$lookup": {
                "from": "orders", "let": {"name": "$name"}, "as": "orders",
                "pipeline": [{"$match": {"$expr": {"$eq": ["$customer.name", "$$name"]}}}],
            }},
            doc! {"$set": {"n": {"$size": "$orders"}}},
        ],
    );
    assert_eq!(number(&inner[0], "n"), 10);
    let graph = aggregate(
        db,
        "customers",
        vec![
            doc! {"$match": {"_id": 1}},
            doc! {"$graphLookup": {
                "from": "orders", "startWith": "$name", "connectFromField": "none", "connectToField": "customer.name",
                "as": "orders",
            }},
            doc! {"$set": {"n": {"$size": "$orders"}}},
        ],
    );
    assert_eq!(number(&graph[0], "n"), 10);
    let union = aggregate(
        db,
        "customers",
        vec![
            doc! {"$unionWith": {"coll": "orders", "pipeline": [{"$match": {"customer.name": name}}]}},
            doc! {"$count": "n"},
        ],
    );
    assert_eq!(number(&union[0], "n"), 12);
}

#[test]
fn what_is_pending_is_seen_by_every_reader() {
    for index in [
        None,
        Some(doc! {"customer.name": 1}),
        Some(doc! {"customer": 1}),
        Some(doc! {"customer.name": 1, "n": 1}),
    ] {
        let db = Db::memory();
        shop(&db, slow(few()));
        if let Some(key) = index {
            db.build("orders", vec![spec(key), spec(doc! {"n": 1})]).unwrap();
        }
        expect_seen(&db, "Ann", "Zoe");
        rename(&db, 1, "Zoe");
        assert_eq!(lag(&db, "orders", "card"), 1);
        assert!(stored_names(&db).iter().filter(|name| *name == "Ann").count() >= 8);
        expect_seen(&db, "Zoe", "Ann");
        expect_true(&db, "orders", "card");
        // Once more, while it is pending; and a customer of few orders at once.
        rename(&db, 1, "Cleo");
        assert_eq!(lag(&db, "orders", "card"), 1);
        expect_seen(&db, "Cleo", "Zoe");
        rename(&db, 2, "Bert");
        assert_eq!(lag(&db, "orders", "card"), 1);
        assert_eq!(db.count("orders", doc! {"customer.name": "Bert"}), 2);
        rename(&db, 2, "Bob");
        expect_seen(&db, "Cleo", "Ann");
        db.check();
    }
}

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
fn a_write_tells_what_it_left() {
    let db = Db::memory();
    shop(&db, slow(few()));
    let set = |name: &str| doc! {"$set": {"name": name}};
    let caused = db
        .run(|unit| {
            update_with(unit, "customers", doc! {"_id": 1}, set("Zoe"), Updating::One)?;
            Ok(unit.caused.clone())
        })
        .unwrap();
    assert_eq!(caused.maintained, 0);
    let pending = caused.pending.unwrap();
    assert_eq!(pending.documents, 10);
    let jobs = db.engine.jobs.lock().clone();
    let job = jobs.iter().find(|job| job.kind == JobKind::FanOut).unwrap();
    assert_eq!(job.id, pending.job);
    assert_eq!(job.state(), "running");
    let caused = db
        .run(|unit| {
            update_with(unit, "customers", doc! {"_id": 2}, set("Bert"), Updating::One)?;
            Ok(unit.caused.clone())
        })
        .unwrap();
    assert_eq!(caused.maintained, 2);
    assert_eq!(caused.pending, None);
}

#[test]
fn served_readers_see_what_is_stored() {
    let db = Db::memory();
    shop(&db, with(slow(few()), "whenBehind", "serve"));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let seen = db.count("orders", doc! {"customer.name": "Ann"});
    assert!(seen >= 8, "{seen}");
    // One question, so that no order moves from one name to the other between two.
    assert_eq!(db.count("orders", doc! {"customer.name": {"$in": ["Ann", "Zoe"]}}), 10);
    // A check says what is wrong, not what is late.
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn writers_find_and_write_what_is_true() {
    let db = Db::memory();
    shop(&db, slow(few()));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let set = |value: i32| doc! {"$set": {"x": value}};
    assert_eq!(db.update_many("orders", doc! {"customer.name": "Ann"}, set(1)).unwrap().matched, 0);
    assert_eq!(
        db.update_many("orders", doc! {"customer.name": "Zoe", "n": {"$lt": 5}}, set(2)).unwrap().matched,
        5
    );
    assert!(stored_names(&db).iter().filter(|name| *name == "Zoe").count() >= 5);
    let modified = db
        .run(|unit| find_and_modify(unit, "orders", doc! {"customer.name": "Zoe", "n": 7}, set(3), None))
        .unwrap();
    assert_eq!(name_in(&modified.value.unwrap()), "Zoe");
    assert_eq!(db.delete("orders", doc! {"customer.name": "Ann"}).unwrap(), 0);
    assert_eq!(db.delete("orders", doc! {"customer.name": "Zoe", "n": 9}).unwrap(), 1);
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 9);
    // A new one, and one that comes over, have the newest.
    db.insert("orders", &[doc! {"_id": 20, "customerId": 1}]);
    db.update("orders", doc! {"_id": 10}, doc! {"$set": {"customerId": 1}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 11);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn an_old_snapshot_sees_what_was_true_then() {
    let db = Db::memory();
    shop(&db, slow(few()));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    let mut before = db.transaction(1, 1);
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    rename(&db, 1, "Zoe");
    let mut between = db.transaction(2, 1);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    rename(&db, 1, "Cleo");
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Cleo"}).unwrap(), 0);
    assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 10);
    // Through to the end, and the old ones still see what they saw.
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.finish_pending(&operation, &pattern).unwrap();
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    assert_eq!(between.find("orders", doc! {"customer.name": "Zoe", "n": 4}).unwrap().len(), 1);
    before.abort().unwrap();
    between.abort().unwrap();
    expect_true(&db, "orders", "card");
}

#[test]
fn a_transaction_sees_what_it_left_itself() {
    let db = Db::memory();
    shop(&db, few());
    let mut transaction = db.transaction(1, 1);
    transaction.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Zoe"}}).unwrap();
    assert_eq!(transaction.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    transaction.update("orders", doc! {"customer.name": "Zoe", "n": 3}, doc! {"$set": {"x": 1}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 10);
    transaction.commit().unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 10);
    wait_until_even(&db, "orders", "card");
    expect_seen(&db, "Zoe", "Ann");
    // One that is given up leaves nothing.
    let mut transaction = db.transaction(1, 2);
    transaction.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Nobody"}}).unwrap();
    transaction.abort().unwrap();
    expect_seen(&db, "Zoe", "Nobody");
    wait_until_even(&db, "orders", "card");
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_deleted_source_is_gone_for_its_holders_at_once() {
    for (action, expected) in [("unset", ""), ("null", "null"), ("keep", "Zoe")] {
        let db = Db::memory();
        shop(&db, slow(keeping(action)));
        rename(&db, 1, "Zoe");
        db.delete("customers", doc! {"_id": 1}).unwrap();
        let seen: Vec<String> = db.find("orders", doc! {"customerId": 1}).iter().map(name_in).collect();
        assert_eq!(seen, vec![expected; 10], "{action}");
        expect_true(&db, "orders", "card");
        // It comes back.
        db.insert("customers", &[doc! {"_id": 1, "name": "Cleo"}]);
        assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 10, "{action}");
        db.delete("customers", doc! {"_id": 1}).unwrap();
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
        db.engine.finish_pending(&operation, &pattern).unwrap();
        let last = if action == "keep" { "Cleo" } else { expected };
        assert_eq!(stored_names(&db)[..10], vec![last; 10], "{action}");
        expect_true(&db, "orders", "card");
        db.check();
    }
}

#[test]
fn those_who_go_with_their_source_are_not_there() {
    let db = Db::memory();
    shop(&db, slow(keeping("cascade")));
    db.build("orders", vec![spec(doc! {"n": 1}), spec(doc! {"customer.name": 1})]).unwrap();
    db.delete("customers", doc! {"_id": 1}).unwrap();
    assert_eq!(lag(&db, "orders", "card"), 1);
    assert_eq!(ids(&db.find("orders", doc! {})), [10, 11]);
    assert_eq!(db.count("orders", doc! {}), 2);
    assert_eq!(db.count("orders", doc! {"n": {"$gte": 0}}), 2);
    assert_eq!(ids(&db.find("orders", doc! {"n": {"$in": [3, 11]}})), [11]);
    assert!(db.find("orders", doc! {"_id": 3}).is_empty());
    assert_eq!(db.update("orders", doc! {"_id": 3}, doc! {"$set": {"x": 1}}).unwrap().matched, 0);
    assert_eq!(db.delete("orders", doc! {"n": 3}).unwrap(), 0);
    let mut covered = ReadRequest::new(filter(doc! {"n": {"$gte": 0}}));
    covered.projection = Some(Projection::parse(doc! {"_id": 0, "n": 1}.as_raw()).unwrap());
    (covered.skip, covered.sort) = (1, Some(Sort::parse(doc! {"n": 1}.as_raw()).unwrap()));
    assert_eq!(read(&db, covered), [doc! {"n": 11}]);
    let counted = aggregate(&db, "orders", vec![doc! {"$count": "n"}]);
    assert_eq!(number(&counted[0], "n"), 2);
    // Whoever begins to refer to it is not one of them: he waits until they are gone.
    let insert = |id: i32| {
        db.run_limited(Some(Duration::from_millis(200)), |unit| {
            crate::support::insert(unit, "orders", &[doc! {"_id": id, "customerId": 1}], true)
        })
    };
    assert_eq!(insert(30).unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.finish_pending(&operation, &pattern).unwrap();
    insert(31).unwrap();
    assert_eq!(ids(&db.find("orders", doc! {})), [10, 11, 31]);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_source_with_many_holders_cannot_go_where_that_is_refused() {
    let db = Db::memory();
    shop(&db, slow(keeping("restrict")));
    rename(&db, 1, "Zoe");
    let error = db.delete("customers", doc! {"_id": 1}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternRestrict);
    expect_seen(&db, "Zoe", "Ann");
}

#[test]
fn what_is_frozen_while_it_is_pending_is_frozen_as_it_is_seen() {
    let db = Db::memory();
    let pattern = doc! {"name": "card", "maxSync": 3, "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "while": {"done": {"$ne": true}},
    }};
    shop(&db, slow(pattern));
    db.update_many("orders", doc! {"n": {"$lt": 2}}, doc! {"$set": {"done": true}}).unwrap();
    rename(&db, 1, "Zoe");
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 2);
    db.update_many("orders", doc! {"n": {"$gte": 8}}, doc! {"$set": {"done": true}}).unwrap();
    rename(&db, 1, "Cleo");
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 2);
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 2);
    assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 6);
    expect_true(&db, "orders", "card");
}

#[test]
fn the_sixty_fifth_source_waits() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", slow(with(card(), "maxSync", 0))).unwrap();
    db.insert("customers", &numbered(0..70, |_| doc! {"name": "Ann"}));
    db.insert("orders", &numbered(0..70, |id| doc! {"customerId": id}));
    for id in 0..64 {
        rename(&db, id, "Zoe");
    }
    let rename_quickly = |id: i32| {
        db.run_limited(Some(Duration::from_millis(300)), |unit| {
            let set = doc! {"$set": {"name": "Zoe"}};
            update_with(unit, "customers", doc! {"_id": id}, set, Updating::One)
        })
    };
    assert!((63..=64).contains(&lag(&db, "orders", "card")));
    // The job may have come to the end of one.
    let second = rename_quickly(64).and_then(|_| rename_quickly(65));
    assert_eq!(second.unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    // One that is pending already needs no room.
    rename_quickly(63).unwrap();
    // Where nobody makes room, the write does all of it.
    kill_jobs(&db);
    rename_quickly(66).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe", "customerId": 66}), 1);
    expect_true(&db, "orders", "card");
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.finish_pending(&operation, &pattern).unwrap();
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_statement_of_many_sources_waits_its_way_through() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", with(card(), "maxSync", 0)).unwrap();
    db.insert("customers", &numbered(0..200, |_| doc! {"name": "Ann"}));
    db.insert("orders", &numbered(0..200, |id| doc! {"customerId": id}));
    db.update_many("customers", doc! {}, doc! {"$set": {"name": "Zoe"}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 200);
    wait_until_even(&db, "orders", "card");
    assert_eq!(stored_names(&db), vec!["Zoe"; 200]);
    db.check();
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
        let deadline = Instant::now() + Duration::from_secs(30);
        while !disk.is_off() && db.engine.catching_up(&pattern).is_some() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
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
fn a_large_fan_out_with_reads_and_filters_during_it() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", with(card(), "backfill", doc! {"batch": 500})).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}, doc! {"_id": 2, "name": "Bob"}]);
    db.insert("orders", &numbered(0..20_000, |id| doc! {"customerId": 1 + id % 2, "n": id}));
    db.build("orders", vec![spec(doc! {"customer.name": 1}), spec(doc! {"n": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let mut looks = 0;
    while looks < 3 || lag(&db, "orders", "card") > 0 {
        looks += 1;
        assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 10_000);
        assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 0);
        let few = db.find("orders", doc! {"customer.name": "Zoe", "n": {"$gte": 500, "$lt": 510}});
        assert_eq!(few.len(), 5);
        let id = looks * 2;
        assert_eq!(name_in(&one(&db, "orders", doc! {"_id": id})), "Zoe");
        let set = doc! {"$set": {"seen": true}};
        assert_eq!(
            db.update("orders", doc! {"customer.name": "Zoe", "n": 600 + id}, set).unwrap().modified,
            1
        );
    }
    assert_eq!(stored_names(&db).iter().filter(|name| *name == "Zoe").count(), 10_000);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn references_in_arrays_and_within_copies_are_seen_through() {
    let db = Db::memory();
    make(&db, &["products", "orders", "notes"]);
    declare(
        &db,
        "orders",
        slow(doc! {"name": "items", "maxSync": 1, "extendedReference": {
            "from": "products", "localField": "items.product", "as": "items.copy", "fields": {"title": 1},
        }}),
    )
    .unwrap();
    declare(
        &db,
        "notes",
        slow(doc! {"name": "about", "maxSync": 1, "extendedReference": {
            "from": "products", "localField": "product._id", "as": "product", "fields": {"title": 1},
        }}),
    )
    .unwrap();
    db.insert("products", &[doc! {"_id": 1, "title": "pen"}, doc! {"_id": 2, "title": "ink"}]);
    db.insert("orders", &numbered(0..4, |_| doc! {"items": [{"product": 1}, {"product": 2}]}));
    db.insert("notes", &numbered(0..4, |id| doc! {"product": {"_id": 1 + id % 2}}));
    db.build("orders", vec![spec(doc! {"items.copy.title": 1})]).unwrap();
    db.build("notes", vec![spec(doc! {"product.title": 1})]).unwrap();
    db.update("products", doc! {"_id": 1}, doc! {"$set": {"title": "quill"}}).unwrap();
    assert_eq!(lag(&db, "orders", "items"), 1);
    assert_eq!(lag(&db, "notes", "about"), 1);
    for field in ["items.copy.title", "items.0.copy.title"] {
        assert_eq!(db.find("orders", doc! {field: "quill"}).len(), 4, "{field}");
        assert_eq!(db.find("orders", doc! {field: "pen"}).len(), 0, "{field}");
    }
    assert_eq!(db.find("orders", doc! {"items.copy.title": "ink"}).len(), 4);
    assert_eq!(sorted_ids(&db.find("notes", doc! {"product.title": "quill"})), [0, 2]);
    assert_eq!(sorted_ids(&db.find("notes", doc! {"product._id": 1})), [0, 2]);
    db.update("products", doc! {"_id": 2}, doc! {"$set": {"title": "ash"}}).unwrap();
    assert_eq!(db.find("orders", doc! {"items.copy.title": "ash", "items.1.copy.title": "ash"}).len(), 4);
    expect_true(&db, "orders", "items");
    expect_true(&db, "notes", "about");
    db.check();
}

fn stats() -> Document {
    doc! {"name": "stats", "mode": "async", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$product", "count": {"$count": {}}, "best": {"$max": "$rating"}}},
    ]}}
}

fn sorted_ids(documents: &[Document]) -> Vec<i64> {
    let mut ids = ids(documents);
    ids.sort_unstable();
    ids
}

fn product(db: &Db, id: i32) -> (i64, Document) {
    let product = one(db, "products", doc! {"_id": id});
    (number(&product, "count"), product)
}

#[test]
fn groups_that_are_shown_later_are_seen_at_once() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    declare(&db, "products", slow(stats())).unwrap();
    let newest = doc! {"name": "newest", "mode": "async", "subset": {
        "from": "reviews", "localField": "_id", "foreignField": "product", "as": "newest", "sort": {"_id": -1},
        "limit": 2, "fields": {"rating": 1},
    }};
    declare(&db, "products", slow(newest)).unwrap();
    db.insert("products", &numbered(0..3, |_| doc! {}));
    db.build("products", vec![spec(doc! {"count": 1}), spec(doc! {"newest.rating": 1})]).unwrap();
    db.insert("reviews", &numbered(0..20, |id| doc! {"product": id % 2, "rating": id}));
    assert!(lag(&db, "products", "stats") >= 1);
    assert_eq!(product(&db, 0).0, 10);
    assert_eq!(sorted_ids(&db.find("products", doc! {"count": 10})), [0, 1]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"count": 0})), [2]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"best": 19})), [1]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"newest.rating": 18})), [0]);
    db.delete("reviews", doc! {"_id": 19}).unwrap();
    assert_eq!(sorted_ids(&db.find("products", doc! {"best": 17, "count": 9, "newest.rating": 15})), [1]);
    // What is written meanwhile is the truth; a parent that comes late has it too.
    assert_eq!(db.update("products", doc! {"count": 9}, doc! {"$set": {"x": 1}}).unwrap().matched, 1);
    db.insert("reviews", &[doc! {"_id": 30, "product": 7, "rating": 5}]);
    db.insert("products", &[doc! {"_id": 7}]);
    assert_eq!(product(&db, 7).0, 1);
    db.update_many("reviews", doc! {"product": 0}, doc! {"$set": {"product": 1}}).unwrap();
    assert_eq!((product(&db, 0).0, product(&db, 1).0), (0, 19));
    for name in ["stats", "newest"] {
        expect_true(&db, "products", name);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("products"), name).unwrap();
        db.engine.finish_pending(&operation, &pattern).unwrap();
        expect_true(&db, "products", name);
    }
    assert_eq!((product(&db, 0).0, product(&db, 1).0), (0, 19));
    db.check();
}

#[test]
fn groups_that_are_shown_later_are_shown() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        db.insert("products", &numbered(0..100, |_| doc! {}));
        // More groups than may be pending at once.
        db.insert("reviews", &numbered(0..300, |id| doc! {"product": id % 100, "rating": id}));
        assert_eq!(db.count("products", doc! {"count": 3}), 100);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("reviews", doc! {"_id": 300, "product": 5, "rating": 1}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(product(&db, 5).0, 4);
        wait_until_even(&db, "products", "stats");
        assert_eq!(db.count("products", doc! {"count": 3}), 99);
        expect_true(&db, "products", "stats");
        db.check();
    });
}

#[test]
fn a_child_of_many_groups_is_left_to_a_job() {
    let db = Db::memory();
    make(&db, &["tags", "posts"]);
    let uses = doc! {"name": "uses", "maxSync": 5, "computed": {"from": "posts", "pipeline": [
        {"$unwind": "$tags"}, {"$group": {"_id": "$tags", "posts": {"$sum": 1}}},
    ]}};
    declare(&db, "tags", slow(uses)).unwrap();
    db.insert("tags", &numbered(0..100, |_| doc! {}));
    let tags = |count: i32| Value::Array((0..count).map(Value::Int32).collect());
    db.insert("posts", &[doc! {"_id": 1, "tags": tags(5)}]);
    assert_eq!(lag(&db, "tags", "uses"), 0);
    db.insert("posts", &[doc! {"_id": 2, "tags": tags(20)}]);
    assert!(lag(&db, "tags", "uses") >= 19);
    assert_eq!(db.count("tags", doc! {"posts": 2}), 5);
    assert_eq!(db.count("tags", doc! {"posts": 1}), 15);
    // More than can be pending: all of them at once.
    db.insert("posts", &[doc! {"_id": 3, "tags": tags(100)}]);
    assert_eq!(db.count("tags", doc! {"posts": 1}), 80);
    expect_true(&db, "tags", "uses");
}

#[test]
fn a_rollup_collection_is_late_only_where_that_is_said() {
    let db = Db::memory();
    make(&db, &["totals", "reviews"]);
    let totals = |when_behind: &str| {
        doc! {"name": "totals", "mode": "async", "whenBehind": when_behind, "computed": {
            "from": "reviews", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": "$product", "count": {"$count": {}}}}],
        }}
    };
    assert_eq!(declare(&db, "totals", totals("patch")).unwrap_err().code(), ErrorCode::BadValue);
    declare(&db, "totals", totals("serve")).unwrap();
    db.insert("reviews", &numbered(0..10, |id| doc! {"product": id % 2}));
    wait_until_even(&db, "totals", "totals");
    assert_eq!(db.count("totals", doc! {"count": 5}), 2);
    db.delete("reviews", doc! {"product": 0}).unwrap();
    wait_until_even(&db, "totals", "totals");
    assert_eq!(ids(&db.find("totals", doc! {})), [1]);
    expect_true(&db, "totals", "totals");
    db.check();
}

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

#[test]
fn who_writes_what_he_saw_is_not_overtaken() {
    let db = Db::memory();
    shop(&db, slow(few()));
    rename(&db, 1, "Zoe");
    // Order 9 is stored with the first name, and will have it again.
    let mut late = db.transaction(1, 1);
    assert_eq!(late.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    let mut early = db.transaction(2, 1);
    early.update("orders", doc! {"_id": 9}, doc! {"$set": {"x": 1}}).unwrap();
    let back = db.run_limited(Some(Duration::from_millis(200)), |unit| {
        update_with(unit, "customers", doc! {"_id": 1}, doc! {"$set": {"name": "Ann"}}, Updating::One)
    });
    assert_eq!(back.unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    early.commit().unwrap();
    rename(&db, 1, "Ann");
    late.update("orders", doc! {"_id": 8}, doc! {"$set": {"x": 1}}).unwrap_err();
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("orders"), "card").unwrap();
    db.engine.finish_pending(&operation, &pattern).unwrap();
    assert_eq!(stored_names(&db)[..10], vec!["Ann"; 10]);
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
