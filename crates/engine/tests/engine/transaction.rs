//! Multi-statement transactions.

use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, doc};
use kilim_engine::index::Index;
use kilim_engine::limits;
use kilim_error::{Error, ErrorCode};
use std::sync::Arc;

use crate::support::{
    Db, Transaction, Updating, count, delete, everywhere, find, insert, ns, number, numbered, spec, unique,
    update_with,
};

#[test]
fn a_transaction_reads_its_own_writes_by_every_way() {
    everywhere(|db| {
        db.insert("c", &numbered(0..100, |id| doc! {"a": id}));
        db.build("c", vec![spec(doc! {"a": 1}), unique(doc! {"a": -1, "_id": 1})]).unwrap();
        let mut transaction = db.transaction(1, 1);
        transaction.insert("c", doc! {"_id": 1000, "a": 5}).unwrap();
        transaction.update("c", doc! {"_id": 6}, doc! {"$set": {"a": 5}}).unwrap();
        transaction.run(|unit| delete(unit, "c", doc! {"_id": 5}, true)).unwrap();
        for (matching, expected) in [
            (doc! {"a": 5}, 2),
            (doc! {"_id": 5}, 0),
            (doc! {}, 100),
            (doc! {"a": {"$lte": 6}}, 7),
            (doc! {"a": 6}, 0),
        ] {
            assert_eq!(transaction.find("c", matching.clone()).unwrap().len(), expected, "{matching:?}");
            assert_eq!(transaction.count("c", matching.clone()).unwrap(), expected as u64, "{matching:?}");
        }
        let by_index = transaction.run(|unit| find(unit, "c", doc! {"a": 5}, Some("a_1"))).unwrap();
        assert_eq!(by_index.len(), 2);
        assert_eq!(db.count("c", doc! {"a": 5}), 1, "nobody else sees it");
        assert_eq!(db.count("c", doc! {}), 100);
        transaction.commit().unwrap();
        assert_eq!(db.count("c", doc! {"a": 5}), 2);
        db.check();
    });
}

#[test]
fn a_transaction_reads_one_moment() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |_| doc! {"a": 1}));
        let mut transaction = db.transaction(1, 1);
        assert_eq!(transaction.count("c", doc! {"a": 1}).unwrap(), 10);
        db.insert("c", &[doc! {"_id": 10, "a": 1}]);
        db.update("c", doc! {"_id": 0}, doc! {"$set": {"a": 2}}).unwrap();
        db.delete("c", doc! {"_id": 1}).unwrap();
        assert_eq!(transaction.count("c", doc! {"a": 1}).unwrap(), 10, "no phantom, no change, no loss");
        assert_eq!(transaction.find("c", doc! {}).unwrap().len(), 10);
        transaction.commit().unwrap();
        db.check();
    });
}

#[test]
fn a_document_changed_since_the_snapshot_is_a_conflict() {
    everywhere(|db| {
        db.insert("c", &numbered(0..3, |_| doc! {"n": 0}));
        let mut transaction = db.transaction(1, 1);
        assert_eq!(transaction.count("c", doc! {}).unwrap(), 3);
        db.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
        let error = transaction.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error:?}");
        assert_eq!(transaction.find("c", doc! {}).unwrap_err().code(), ErrorCode::NoSuchTransaction);

        let mut transaction = db.transaction(1, 2);
        assert_eq!(transaction.count("c", doc! {}).unwrap(), 3);
        db.insert("c", &[doc! {"_id": 9}]);
        let error = transaction.insert("c", doc! {"_id": 9}).unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error:?}");

        let mut transaction = db.transaction(1, 3);
        assert_eq!(transaction.count("c", doc! {}).unwrap(), 4);
        db.delete("c", doc! {"_id": 2}).unwrap();
        let error = transaction.update("c", doc! {"_id": 2}, doc! {"$inc": {"n": 1}}).unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error:?}");
        db.check();
    });
}

#[test]
fn increments_in_transactions_are_never_lost() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 1, "n": 0}]);
        thread::scope(|scope| {
            for session in 1..=4 {
                let db = &db;
                scope.spawn(move || {
                    let (mut number, mut done) = (0, 0);
                    while done < 20 {
                        number += 1;
                        let mut transaction = db.transaction(session, number);
                        let inc = doc! {"$inc": {"n": 1}};
                        match transaction.update("c", doc! {"_id": 1}, inc).and_then(|_| transaction.commit())
                        {
                            Ok(()) => done += 1,
                            Err(Error::Conflict(_)) => thread::yield_now(),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                });
            }
            for _ in 0..20 {
                db.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
            }
        });
        assert_eq!(number(&db.find("c", doc! {})[0], "n"), 100);
        db.check();
    });
}

#[test]
fn a_writer_outside_waits_for_the_transaction() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 1, "n": 0}]);
        for (number, commits) in [(1, true), (2, false)] {
            let mut transaction = db.transaction(1, number);
            transaction.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 10}}).unwrap();
            let limit = Some(Duration::from_millis(30));
            let error = db
                .run_limited(limit, |unit| {
                    update_with(unit, "c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}, Updating::One)
                })
                .unwrap_err();
            assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
            thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| db.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap());
                thread::sleep(Duration::from_millis(20));
                assert!(!waiting.is_finished());
                match commits {
                    true => transaction.commit().unwrap(),
                    false => transaction.abort().unwrap(),
                }
                assert_eq!(waiting.join().unwrap().modified, 1);
            });
        }
        assert_eq!(number(&db.find("c", doc! {})[0], "n"), 12);
        db.check();
    });
}

#[test]
fn a_unique_key_of_an_open_transaction_is_waited_for() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 0, "k": 0}]);
        db.build("c", vec![unique(doc! {"k": 1})]).unwrap();
        for (number, commits) in [(1, true), (2, false)] {
            let mut transaction = db.transaction(1, number);
            transaction.insert("c", doc! {"_id": number * 10, "k": number}).unwrap();
            let inserted = thread::scope(|scope| {
                let waiting = scope.spawn(|| db.try_insert("c", doc! {"_id": number * 10 + 1, "k": number}));
                thread::sleep(Duration::from_millis(20));
                assert!(!waiting.is_finished());
                match commits {
                    true => transaction.commit().unwrap(),
                    false => transaction.abort().unwrap(),
                }
                waiting.join().unwrap()
            });
            match inserted {
                Ok(()) => assert!(!commits),
                Err(error) => assert!(commits && error.code() == ErrorCode::DuplicateKey, "{error:?}"),
            }
            assert_eq!(db.count("c", doc! {"k": number}), 1);
        }
        db.check();
    });
}

#[test]
fn two_transactions_on_one_document_conflict_and_an_abort_lets_go() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 1, "n": 0}]);
        let (mut first, mut second) = (db.transaction(1, 1), db.transaction(2, 1));
        first.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
        let error = second.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap_err();
        assert!(matches!(error, Error::Conflict(_)));
        first.abort().unwrap();
        let mut third = db.transaction(2, 2);
        third.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 5}}).unwrap();
        third.commit().unwrap();
        assert_eq!(number(&db.find("c", doc! {})[0], "n"), 5);
        db.check();
    });
}

fn add_index(unit: &mut kilim_engine::unit::Unit<'_>, collection: &str, key: Document) {
    let id = unit.engine.next_index_id();
    let added = unit.change_created(&ns(collection), |collection| {
        let index = Index {
            id,
            spec: spec(key),
            multikey: Default::default(),
            ready_since: 0,
            usage: Default::default(),
        };
        collection.indexes = collection.indexes.iter().cloned().chain([Arc::new(index)]).collect();
    });
    assert!(added);
}

#[test]
fn a_collection_made_inside_appears_with_the_commit() {
    let mut db = Db::disk();
    let mut transaction = db.transaction(1, 1);
    transaction
        .run(|unit| {
            unit.create(&ns("made"), Document::new())?;
            add_index(unit, "made", doc! {"a": 1});
            Ok(())
        })
        .unwrap();
    transaction.insert("made", doc! {"_id": 1, "a": [1, 2, 3]}).unwrap();
    transaction.insert("made", doc! {"_id": 2, "a": 9}).unwrap();
    assert_eq!(transaction.find("made", doc! {"a": {"$gte": 1}}).unwrap().len(), 2);
    assert!(db.engine.collection(&ns("made")).is_none());
    assert_eq!(db.count("made", doc! {}), 0);
    transaction.commit().unwrap();
    assert_eq!(db.find_by("made", doc! {"a": {"$gte": 1}}, "a_1").len(), 2);
    db.check();
    db.reopen();
    assert_eq!(db.find_by("made", doc! {"a": {"$gte": 1}}, "a_1").len(), 2);
    db.check();
}

#[test]
fn two_makers_of_one_collection_conflict() {
    everywhere(|db| {
        let (mut first, mut second) = (db.transaction(1, 1), db.transaction(2, 1));
        first.insert("made", doc! {"_id": 1}).unwrap();
        second.insert("made", doc! {"_id": 2}).unwrap();
        first.commit().unwrap();
        assert!(matches!(second.commit().unwrap_err(), Error::Conflict(_)));
        assert_eq!(db.count("made", doc! {}), 1);

        let mut third = db.transaction(3, 1);
        third.insert("other", doc! {"_id": 1}).unwrap();
        db.insert("other", &[doc! {"_id": 1}]);
        assert!(matches!(third.commit().unwrap_err(), Error::Conflict(_)));
        assert_eq!(db.count("other", doc! {}), 1);
        db.check();
    });
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |id| doc! {"a": id}));
        let mut transaction = db.transaction(1, 1);
        transaction.update("c", doc! {}, doc! {"$set": {"a": [1, 2]}}).unwrap();
        transaction.insert("made", doc! {"_id": 1}).unwrap();
        transaction.abort().unwrap();
        assert!(db.engine.collection(&ns("made")).is_none());
        assert_eq!(db.update_many("c", doc! {}, doc! {"$inc": {"a": 1}}).unwrap().modified, 10);
        db.check();
    });
}

#[test]
fn an_overdue_transaction_is_ended_and_lets_go() {
    let db = Db::memory();
    db.insert("c", &[doc! {"_id": 1, "n": 0}]);
    let mut transaction = db.transaction(1, 1);
    transaction.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
    db.engine.end_overdue_transactions(Instant::now());
    assert_eq!(transaction.count("c", doc! {"n": 1}).unwrap(), 1);
    let later = Instant::now() + limits::TRANSACTION_LIFETIME + Duration::from_secs(1);
    db.engine.end_overdue_transactions(later);
    db.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 5}}).unwrap();
    assert_eq!(transaction.find("c", doc! {}).unwrap_err().code(), ErrorCode::NoSuchTransaction);
    assert_eq!(number(&db.find("c", doc! {})[0], "n"), 5);
}

#[test]
fn a_transaction_too_large_is_ended() {
    let db = Db::memory();
    let large = "x".repeat(15 << 20);
    let mut transaction = db.transaction(1, 1);
    let batch: Vec<Document> = (0..20).map(|id| doc! {"_id": id, "text": &large}).collect();
    // Within the statement: its memory is what the bound is for.
    let error = transaction.run(|unit| insert(unit, "c", &batch, true)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TransactionTooLarge);
    assert!(db.engine.collection(&ns("c")).is_none());
}

#[test]
fn the_end_of_a_session_aborts_its_transaction() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 1, "n": 0}]);
        let mut transaction = db.transaction(1, 1);
        transaction.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
        db.engine.end_session(db.session(1).id);
        db.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 5}}).unwrap();
        assert!(transaction.commit().is_err());
        assert_eq!(number(&db.find("c", doc! {})[0], "n"), 5);
        db.check();
    });
}

#[test]
fn a_newer_number_ends_what_the_older_left_open() {
    let db = Db::memory();
    db.insert("c", &[doc! {"_id": 1, "n": 0}]);
    let mut old = db.transaction(1, 1);
    old.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
    let mut new = db.transaction(1, 2);
    new.update("c", doc! {"_id": 1}, doc! {"$inc": {"n": 5}}).unwrap();
    assert_eq!(old.find("c", doc! {}).unwrap_err().code(), ErrorCode::TransactionTooOld);
    new.commit().unwrap();
    assert_eq!(number(&db.find("c", doc! {})[0], "n"), 5);
}

#[test]
fn a_schema_change_waits_for_the_transactions_inside() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |id| doc! {"a": id}));
        let mut transaction = db.transaction(1, 1);
        transaction.insert("c", doc! {"_id": 100, "a": [100, 101]}).unwrap();
        thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![spec(doc! {"a": 1})]));
            thread::sleep(Duration::from_millis(30));
            assert!(!build.is_finished());
            transaction.insert("c", doc! {"_id": 101, "a": 102}).unwrap();
            transaction.commit().unwrap();
            build.join().unwrap().unwrap();
        });
        assert_eq!(db.find_by("c", doc! {"a": {"$gte": 100}}, "a_1").len(), 2);
        db.check();
    });
}

#[test]
fn a_transaction_older_than_an_index_writes_its_keys() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |id| doc! {"a": id}));
        let mut transaction = db.transaction(1, 1);
        assert_eq!(transaction.count("elsewhere", doc! {}).unwrap(), 0);
        db.build("c", vec![unique(doc! {"a": 1})]).unwrap();
        transaction.update("c", doc! {"_id": 3}, doc! {"$set": {"a": 33}}).unwrap();
        transaction.insert("c", doc! {"_id": 50, "a": 3}).unwrap();
        transaction.run(|unit| delete(unit, "c", doc! {"_id": 4}, true)).unwrap();
        transaction.commit().unwrap();
        db.check();
        assert_eq!(db.find_by("c", doc! {"a": 33}, "a_1").len(), 1);

        let mut transaction = db.transaction(1, 2);
        assert_eq!(transaction.run(|unit| count(unit, "elsewhere", doc! {})).unwrap(), 0);
        db.insert("c", &[doc! {"_id": 60, "a": 60}]);
        let error = transaction.insert("c", doc! {"_id": 61, "a": 60}).unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error:?}");
        db.check();
    });
}

#[test]
fn all_open_transactions_share_a_bound_and_the_small_go_on() {
    let db = Db::memory();
    let large = "x".repeat(15 << 20);
    let fill = |transaction: &mut Transaction<'_>, first: i32| {
        let batch: Vec<Document> = (first..first + 14).map(|id| doc! {"_id": id, "text": &large}).collect();
        transaction.run(|unit| insert(unit, "c", &batch, true)).map(drop)
    };
    db.insert("c", &[doc! {"_id": -1}]);
    let mut open = [db.transaction(1, 1), db.transaction(2, 1)];
    for (at, transaction) in open.iter_mut().enumerate() {
        fill(transaction, at as i32 * 100).unwrap();
    }
    let mut third = db.transaction(3, 1);
    assert_eq!(fill(&mut third, 1000).unwrap_err().code(), ErrorCode::WriteConflict);
    let mut small = db.transaction(4, 1);
    small.insert("c", doc! {"_id": 2000}).unwrap();
    small.commit().unwrap();
    for transaction in open {
        transaction.abort().unwrap();
    }
    fill(&mut db.transaction(3, 2), 1000).unwrap();
}
