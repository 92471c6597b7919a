//! Maintenance that is behind: what readers and writers see meanwhile is the truth, and the rest follows.

mod declarations;
mod groups;
mod holders;
mod jobs;
mod readers;
mod renames;
mod trees;
mod writers;

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Distinct, ReadRequest};
use kilim_engine::read;
use kilim_engine::upkeep::Verification;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use crate::pattern::{card, declare, make, one};
use crate::pattern_lifecycle::with;
use crate::pipeline::run as aggregate;
use crate::support::{Db, eventually, filter, ids, ns, number, numbered};

/// A pattern whose job writes one document and then rests for as long as any test takes.
fn slow(mut fields: Document) -> Document {
    fields.push("backfill", doc! {"batch": 1, "throttleMs": 60_000});
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
    db.engine.pending_of(&pattern).unwrap().count
}

#[track_caller]
fn wait_until_even(db: &Db, target: &str, name: &str) {
    eventually("nothing is behind", || lag(db, target, name) == 0);
}

/// Carries through what is pending, as a job would.
fn finish(db: &Db, target: &str, name: &str) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns(target), name).unwrap();
    db.engine.finish_pending(&operation, &pattern).unwrap();
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
    let (lower, upper) = (collection.id.0.to_be_bytes(), (collection.id.0 + 1).to_be_bytes());
    let scan = snapshot.scan(
        kilim_storage::Space::Records,
        std::ops::Bound::Included(&lower[..]),
        std::ops::Bound::Excluded(&upper[..]),
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

fn sorted_ids(documents: &[Document]) -> Vec<i64> {
    let mut ids = ids(documents);
    ids.sort_unstable();
    ids
}
