//! Documents that expire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use kilim_bson::{Document, Value, array, doc};
use kilim_engine::StorageOptions;
use kilim_engine::index::IndexSpec;
use kilim_error::{Error, StorageError};
use kilim_storage::Store;

use crate::support::{Db, eventually, everywhere, filter, ns, number, spec};

fn seconds_ago(seconds: i64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    Value::DateTime(now - seconds * 1000)
}

fn expiring(key: Document, seconds: i32) -> IndexSpec {
    IndexSpec { expire_after_seconds: Some(seconds), ..spec(key) }
}

fn build(db: &Db, spec: IndexSpec) {
    db.engine.create_collection(&ns("c"), Document::new()).unwrap();
    db.build("c", vec![spec]).unwrap();
}

fn pass(db: &Db) -> u64 {
    let operation = db.engine.operations.start(0);
    db.engine.expire(&operation).unwrap()
}

fn left(db: &Db) -> Vec<i64> {
    let mut ids: Vec<i64> = db.find("c", doc! {}).iter().map(|document| number(document, "_id")).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn documents_of_a_clustered_collection_expire_by_their_id() {
    everywhere(|db| {
        let options =
            doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}, "expireAfterSeconds": 60i64};
        db.engine.create_collection(&ns("c"), options).unwrap();
        let ids = [seconds_ago(61), seconds_ago(30), seconds_ago(-1000), Value::Int32(5), Value::Null];
        db.insert("c", &ids.map(|id| doc! {"_id": id}));
        assert_eq!(pass(&db), 1);
        assert_eq!(db.count("c", doc! {}), 4);
        assert_eq!(pass(&db), 0);
    });
}

#[test]
fn only_dates_that_have_passed_count() {
    everywhere(|db| {
        build(&db, expiring(doc! {"at": 1}, 60));
        db.insert(
            "c",
            &[
                doc! {"_id": 1, "at": seconds_ago(61)},
                doc! {"_id": 2, "at": seconds_ago(30)},
                doc! {"_id": 3, "at": seconds_ago(-1000)},
                doc! {"_id": 4},
                doc! {"_id": 5, "at": null},
                doc! {"_id": 6, "at": 5},
                doc! {"_id": 7, "at": "1970-01-01"},
                doc! {"_id": 8, "at": Value::DateTime(i64::MIN)},
                // The earliest decides.
                doc! {"_id": 9, "at": array![seconds_ago(-1000), seconds_ago(100)]},
                doc! {"_id": 10, "at": array![seconds_ago(10), 5]},
            ],
        );
        assert_eq!(pass(&db), 3);
        assert_eq!(left(&db), [2, 3, 4, 5, 6, 7, 10]);
        assert_eq!(pass(&db), 0);
        assert_eq!(db.engine.expiry.removed.get(), 3);
        db.check();
    });
}

#[test]
fn partial_descending_sparse_and_hidden_indexes_serve_too() {
    let condition = doc! {"done": true};
    let parsed = (*filter(condition.clone())).clone();
    let old = || {
        vec![
            doc! {"_id": 1, "at": seconds_ago(100), "done": true},
            doc! {"_id": 2, "at": seconds_ago(100), "done": false},
            doc! {"_id": 3, "at": seconds_ago(1), "done": true},
        ]
    };
    let cases = [
        (IndexSpec { partial: Some((condition, parsed)), ..expiring(doc! {"at": 1}, 60) }, vec![2, 3]),
        (IndexSpec { sparse: true, ..expiring(doc! {"at": -1}, 60) }, vec![3]),
        (IndexSpec { hidden: true, ..expiring(doc! {"at": 1}, 60) }, vec![3]),
    ];
    for (spec, expected) in cases {
        let db = Db::memory();
        build(&db, spec);
        db.insert("c", &old());
        pass(&db);
        assert_eq!(left(&db), expected);
        db.check();
    }
}

#[test]
fn a_restart_keeps_the_time_to_live() {
    let mut db = Db::disk();
    build(&db, expiring(doc! {"at": 1}, 60));
    db.insert("c", &[doc! {"_id": 1, "at": seconds_ago(100)}]);
    db.reopen();
    assert_eq!(pass(&db), 1);
}

#[test]
fn documents_expire_where_the_disk_has_less_free_than_the_reserve() {
    let place = tempfile::tempdir().unwrap();
    let open = |free_space_reserve_bytes| {
        let options = StorageOptions { free_space_reserve_bytes, ..StorageOptions::default() };
        Db::over(Store::open(place.path(), options).unwrap())
    };
    let db = open(Some(0));
    build(&db, expiring(doc! {"at": 1}, 60));
    db.insert("c", &[doc! {"_id": 1, "at": seconds_ago(100)}, doc! {"_id": 2, "at": seconds_ago(1)}]);
    db.engine.close().unwrap();
    drop(db);
    let db = open(Some(u64::MAX));
    let refused = db.try_insert("c", doc! {"_id": 3}).unwrap_err();
    assert!(matches!(refused, Error::Storage(StorageError::OutOfSpace { .. })), "{refused}");
    assert_eq!(pass(&db), 1);
    assert_eq!(left(&db), [2]);
    db.check();
    db.engine.close().unwrap();
}

#[test]
fn a_document_that_was_given_more_time_stays() {
    everywhere(|db| {
        build(&db, expiring(doc! {"at": 1}, 3600));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pass(&db);
                }
            });
            for id in 0..200 {
                // Never expired when it is looked at: an hour is left, or all time.
                db.insert("c", &[doc! {"_id": id, "at": seconds_ago(10)}]);
                db.update("c", doc! {"_id": id}, doc! {"$set": {"at": seconds_ago(-10_000)}}).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(left(&db).len(), 200);
        db.check();
    });
}

#[test]
fn a_pass_begins_by_itself_when_it_is_time() {
    let db = Db::memory();
    build(&db, expiring(doc! {"at": 1}, 0));
    db.insert("c", &[doc! {"_id": 1, "at": seconds_ago(5)}]);
    db.engine.tick();
    assert_eq!(left(&db), [1], "a minute has not passed");
    db.engine.expiry.set_pause_seconds(0);
    eventually("all expire", || {
        db.engine.tick();
        left(&db).is_empty()
    });
}
