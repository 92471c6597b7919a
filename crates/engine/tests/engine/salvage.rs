//! What a check says of damaged shapes, and what a salvage makes of them.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::StorageOptions;
use kilim_engine::jobs::{Salvaged, check_directory, salvage_directory};
use kilim_engine::upkeep::Part;
use kilim_storage::{Direction, Durability, Space, Store};
use tempfile::TempDir;

use crate::pattern::{declare, make, one};
use crate::support::{Db, ids, ns, number};

fn open(path: &Path) -> Db {
    Db::over(Store::open(path, StorageOptions::default()).unwrap())
}

fn names(range: std::ops::Range<i32>) -> Vec<Value> {
    range.map(|number| Value::from(format!("f{number}"))).collect()
}

/// Three users with twenty followers each, of which fifteen lie in four pages, and one with two.
fn famous(path: &Path) -> Db {
    let db = open(path);
    make(&db, &["users"]);
    let followers = doc! {"name": "fans", "outlier": {
        "field": "followers", "limit": 5, "pageSize": 4, "flag": "hasMore", "count": "n", "read": "whole",
    }};
    declare(&db, "users", followers).unwrap();
    for id in 1..4 {
        db.insert("users", &[doc! {"_id": id, "followers": names(id * 100..id * 100 + 20)}]);
    }
    db.insert("users", &[doc! {"_id": 4, "followers": names(0..2)}]);
    db
}

/// Deletes the records of a collection that are chosen by their number and document. Nothing else is told of it.
fn lose(db: &Db, collection: &str, is_lost: impl Fn(u64, RawDocument<'_>) -> bool) -> usize {
    let id = db.engine.collection(&ns(collection)).unwrap().id.0;
    let (lower, upper) = (id.to_be_bytes(), (id + 1).to_be_bytes());
    let snapshot = db.engine.store.snapshot();
    let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
    let mut transaction = db.engine.store.begin();
    let mut lost = 0;
    for entry in snapshot.scan(Space::Records, lower, upper, Direction::Forward) {
        let (key, stored) = entry.unwrap();
        let record = u64::from_be_bytes(key[4..].try_into().unwrap());
        if is_lost(record, RawDocument::parse(&stored[8..]).unwrap()) {
            transaction.delete(Space::Records, &key);
            lost += 1;
        }
    }
    transaction.commit(Durability::Durable).unwrap();
    lost
}

/// Closes a database and opens what a salvage makes of it.
fn salvaged(place: &TempDir, db: Db) -> (Db, Salvaged) {
    db.engine.close().unwrap();
    drop(db);
    let out = place.path().join("out");
    let told = salvage_directory(&place.path().join("data"), &out).unwrap();
    (open(&out), told)
}

fn losses<'t>(told: &'t Salvaged, namespace: &str) -> &'t [String] {
    &told.collections.iter().find(|each| each.namespace == namespace).unwrap().losses
}

fn wrong(db: &Db) -> u64 {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("users"), "fans").unwrap();
    db.engine.verify_pattern(&operation, &pattern, Part::default(), 10).unwrap().wrong
}

fn elements(db: &Db, id: i32) -> Document {
    let user = one(db, "users", doc! {"_id": id});
    doc! {"followers": user.get("followers").unwrap().to_value()}
}

#[test]
fn a_salvage_indexes_the_elements_of_pages() {
    let place = tempfile::tempdir().unwrap();
    let db = famous(&place.path().join("data"));
    let seen = db.find("users", doc! {});
    let (db, told) = salvaged(&place, db);
    assert!(told.is_whole(), "{told:?}");
    assert_eq!(db.find("users", doc! {}), seen);
    assert_eq!(ids(&db.find("users", doc! {"followers": "f118"})), [1]);
    assert_eq!(
        db.update("users", doc! {"_id": 1}, doc! {"$addToSet": {"followers": "f118"}}).unwrap().modified,
        0
    );
    assert_eq!(wrong(&db), 0);
    db.check();
    db.engine.close().unwrap();
}

#[test]
fn pages_of_a_lost_document_are_not_adopted() {
    let place = tempfile::tempdir().unwrap();
    let db = famous(&place.path().join("data"));
    let is_lost = |document: RawDocument<'_>| matches!(document.get("_id"), Some(RawValue::Int32(3 | 4)));
    assert_eq!(lose(&db, "users", |_, document| is_lost(document)), 2);
    let (db, told) = salvaged(&place, db);
    let of_pages = losses(&told, "test.users.overflow");
    assert!(of_pages.iter().any(|loss| loss.contains("15 elements") && loss.contains("_id: 3")), "{told:?}");
    assert_eq!(db.count("users.overflow", doc! {}), 8);
    assert_eq!(wrong(&db), 0);
    // The next one gets the number of the record that was lost.
    db.insert(
        "users",
        &[doc! {"_id": 9, "followers": names(0..7)}, doc! {"_id": 3, "followers": names(0..9)}],
    );
    assert_eq!(elements(&db, 9), doc! {"followers": names(0..7)});
    assert_eq!(elements(&db, 3), doc! {"followers": names(0..9)});
    assert_eq!(ids(&db.find("users", doc! {"followers": "f310"})), [0; 0]);
    assert_eq!(wrong(&db), 0);
    db.check();
    db.engine.close().unwrap();
}

#[test]
fn pages_behind_a_lost_one_move_up() {
    let place = tempfile::tempdir().unwrap();
    let db = famous(&place.path().join("data"));
    let is_lost = |document: RawDocument<'_>| {
        let id = document.get("_id").and_then(RawValue::as_document).unwrap();
        matches!((id.get("of"), id.get("page")), (Some(RawValue::Int32(2)), Some(RawValue::Int32(1))))
    };
    assert_eq!(lose(&db, "users.overflow", |_, document| is_lost(document)), 1);
    let (db, told) = salvaged(&place, db);
    assert!(
        losses(&told, "test.users").iter().any(|loss| loss.contains("4 elements") && loss.contains("_id: 2"))
    );
    let mut left = names(200..209);
    left.extend(names(213..220));
    assert_eq!(elements(&db, 2), doc! {"followers": left.clone()});
    assert_eq!(number(&one(&db, "users", doc! {"_id": 2}), "n"), 16);
    assert_eq!(wrong(&db), 0);
    db.update("users", doc! {"_id": 2}, doc! {"$push": {"followers": {"$each": names(500..510)}}}).unwrap();
    left.extend(names(500..510));
    assert_eq!(elements(&db, 2), doc! {"followers": left});
    db.check();
    db.engine.close().unwrap();
}

/// Measurements that are sealed in many buckets, beside a plain collection.
fn packed(path: &Path) -> Db {
    let db = open(path);
    make(&db, &["m", "orders"]);
    db.insert("orders", &[doc! {"_id": 1}]);
    let bucket = doc! {"name": "b", "createIndexes": false, "bucket": {
        "timeField": "ts", "metaField": "s", "bucketMaxSpanSeconds": 3600, "maxCount": 50,
    }};
    declare(&db, "m", bucket).unwrap();
    let measurement = |id: i32| {
        let noise: Vec<Value> =
            (0..6).map(|at| Value::Int32((id * 31 + at).wrapping_mul(0x9e37_79b1u32 as i32))).collect();
        doc! {"_id": id, "s": id % 4, "ts": Value::DateTime(i64::from(id) * 100), "noise": noise}
    };
    for from in (0..2000).step_by(500) {
        db.insert("m", &(from..from + 500).map(measurement).collect::<Vec<_>>());
    }
    let operation = Arc::clone(&db.engine.operations.start(1));
    assert_eq!(db.engine.seal_all(&operation, &ns("m")).unwrap(), 2000);
    db.engine.store.checkpoint().unwrap();
    db
}

#[test]
fn slips_without_any_bucket_are_not_kept() {
    let place = tempfile::tempdir().unwrap();
    let db = packed(&place.path().join("data"));
    db.insert("m", &[doc! {"_id": 5000, "s": 1}]);
    assert!(lose(&db, "m", |record, _| record >= 1 << 63) > 0);
    let (db, told) = salvaged(&place, db);
    assert!(losses(&told, "test.m").iter().any(|loss| loss.starts_with("2000 measurements")), "{told:?}");
    assert_eq!(ids(&db.find("m", doc! {})), [5000]);
    db.check();
    db.engine.close().unwrap();
}

#[test]
fn a_check_goes_on_behind_a_damaged_leaf_of_buckets() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let db = packed(&data);
    let tree = db.engine.collection(&ns("m")).unwrap().id.0;
    db.engine.close().unwrap();
    drop(db);
    let path = data.join("kilim.db");
    let bytes = std::fs::read(&path).unwrap();
    let is_leaf = |&at: &usize| {
        bytes[at + 8..at + 13] == *b"KPag\0"
            && bytes[at + 14] == 1
            && bytes[at + 16..at + 20] == tree.to_le_bytes()
    };
    let leaves: Vec<usize> = (2..bytes.len() / 4096).map(|block| block * 4096).filter(is_leaf).collect();
    assert!(leaves.len() > 2, "{leaves:?}");
    let mut damaged = 0;
    for leaf in leaves {
        let mut copy = bytes.clone();
        copy[leaf + 70] ^= 1;
        std::fs::write(&path, &copy).unwrap();
        let checked = check_directory(&data, None).unwrap();
        let of = |name: &str| checked.collections.iter().find(|each| each.namespace == name).unwrap();
        assert!(of("test.orders").problems.is_empty() && of("test.orders").records == 1, "{checked:?}");
        damaged += usize::from(!of("test.m").problems.is_empty());
    }
    assert!(damaged > 2, "{damaged}");
}
