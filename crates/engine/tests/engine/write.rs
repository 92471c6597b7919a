//! Writers against each other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kilim_bson::{Document, doc};
use kilim_engine::unit::Unit;
use kilim_error::ErrorCode;

use crate::support::{
    Db, Updating, delete, everywhere, find_and_modify, insert, number, numbered, spec, unique,
    update_statement,
};

#[test]
fn a_batch_tells_its_duplicates_by_position() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 3}]);
        let batch = numbered(0..300, |_| doc! {});
        let outcome = db.run(|unit| insert(unit, "c", &batch, true)).unwrap();
        assert_eq!(outcome.inserted, 3);
        assert_eq!(outcome.errors.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [3]);
        let outcome = db.run(|unit| insert(unit, "c", &batch, false)).unwrap();
        assert_eq!(outcome.inserted, 296);
        assert_eq!(outcome.errors.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(outcome.errors.iter().all(|(_, error)| error.code() == ErrorCode::DuplicateKey));
        assert_eq!(db.count("c", doc! {}), 300);
        db.check();
    });
}

#[test]
fn bulk_inserts_of_the_same_ids_in_opposite_orders_both_end() {
    everywhere(|db| {
        let there = numbered(0..1000, |_| doc! {"by": 1});
        let back: Vec<Document> = there.iter().rev().cloned().collect();
        let inserted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for batch in [&there, &back, &there, &back] {
                let (db, inserted) = (&db, &inserted);
                scope.spawn(move || {
                    let limit = Some(Duration::from_secs(30));
                    let outcome = db.run_limited(limit, |unit| insert(unit, "c", batch, false)).unwrap();
                    inserted.fetch_add(outcome.inserted, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(inserted.into_inner(), 1000);
        assert_eq!(db.count("c", doc! {}), 1000);
        db.check();
    });
}

#[test]
fn refused_documents_hold_nothing_that_others_wait_for() {
    // Each batch is refused its first document after it took that document's `_id`, then asks for the
    // other's.
    let db = Db::memory();
    db.insert("c", &[doc! {"_id": "taken", "u": 0}]);
    db.build("c", vec![unique(doc! {"u": 1})]).unwrap();
    for round in 0..300 {
        let (one, two) = (format!("{round}a"), format!("{round}b"));
        thread::scope(|scope| {
            for (first, second) in [(&one, &two), (&two, &one)] {
                let db = &db;
                scope.spawn(move || {
                    let batch =
                        [doc! {"_id": first, "u": 0}, doc! {"_id": second, "u": format!("{first}{second}")}];
                    let limit = Some(Duration::from_secs(5));
                    let outcome = db.run_limited(limit, |unit| insert(unit, "c", &batch, false)).unwrap();
                    assert_eq!((outcome.inserted, outcome.errors.len()), (1, 1), "{:?}", outcome.errors);
                });
            }
        });
    }
    db.check();
}

#[test]
fn passed_over_documents_hold_nothing_that_others_wait_for() {
    // Whoever comes second passes over what the first has done, in the opposite order.
    let db = Db::memory();
    db.insert("c", &numbered(0..40, |id| doc! {"a": id, "b": -id, "done": true}));
    db.build("c", vec![spec(doc! {"a": 1}), spec(doc! {"b": 1})]).unwrap();
    for _ in 0..10 {
        db.update_many("c", doc! {}, doc! {"$set": {"done": false}}).unwrap();
        thread::scope(|scope| {
            for order in ["a", "b", "a", "b"] {
                let db = &db;
                scope.spawn(move || {
                    let (matching, update) = (doc! {"done": false}, doc! {"$set": {"done": true}});
                    let limit = Some(Duration::from_secs(10));
                    let take = |unit: &mut Unit<'_>| {
                        find_and_modify(unit, "c", matching.clone(), update.clone(), Some(doc! {order: 1}))
                    };
                    while db.run_limited(limit, take).unwrap().value.is_some() {}
                });
            }
        });
        assert_eq!(db.count("c", doc! {"done": true}), 40);
    }
    db.check();
}

#[test]
fn updates_of_many_apply_once_for_each_thread_and_document() {
    everywhere(|db| {
        db.insert("c", &numbered(0..400, |id| doc! {"n": 0, "a": id, "b": -id}));
        db.build("c", vec![spec(doc! {"a": 1}), spec(doc! {"b": 1}), spec(doc! {"n": 1})]).unwrap();
        thread::scope(|scope| {
            // By opposite orders, and by an index on what they change.
            for matching in
                [doc! {"a": {"$gte": 0}}, doc! {"b": {"$lte": 0}}, doc! {"n": {"$gte": 0}}, doc! {}]
            {
                let db = &db;
                scope.spawn(move || {
                    for _ in 0..3 {
                        let outcome = db.update_many("c", matching.clone(), doc! {"$inc": {"n": 1}}).unwrap();
                        assert_eq!((outcome.matched, outcome.modified), (400, 400));
                    }
                });
            }
        });
        for document in db.find("c", doc! {}) {
            assert_eq!(number(&document, "n"), 12);
        }
        db.check();
    });
}

#[test]
fn a_statement_sees_what_the_ones_before_it_wrote() {
    everywhere(|db| {
        for size in [1, 7, 8, 11, 20, 130] {
            let name = format!("c{size}");
            db.insert(&name, &numbered(0..size, |_| doc! {"n": 0}));
            db.build(&name, vec![spec(doc! {"n": 1})]).unwrap();
            db.run(|unit| {
                for turn in 0..3 {
                    let (matching, inc) = (doc! {"n": turn}, doc! {"$inc": {"n": 1}});
                    let outcome = update_statement(unit, &name, matching, inc, Updating::Many, turn)?;
                    assert_eq!(
                        (outcome.matched, outcome.modified),
                        (size as u64, size as u64),
                        "turn {turn} of {size}"
                    );
                }
                assert_eq!(delete(unit, &name, doc! {"n": 3}, false)?, size as u64);
                let refilled = insert(unit, &name, &numbered(0..size, |_| doc! {"n": 9}), true)?;
                assert_eq!(refilled.inserted, size as usize);
                let last =
                    update_statement(unit, &name, doc! {"n": 9}, doc! {"$set": {"n": 1}}, Updating::Many, 9)?;
                assert_eq!(last.modified, size as u64);
                Ok(())
            })
            .unwrap();
        }
        db.check();
    });
}

#[test]
fn a_queue_gives_each_job_out_once() {
    everywhere(|db| {
        db.insert("jobs", &numbered(0..320, |id| doc! {"taken": false, "priority": id % 7}));
        db.build("jobs", vec![spec(doc! {"taken": 1, "priority": -1})]).unwrap();
        let taken = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    while let Some(job) = db
                        .run(|unit| {
                            let (matching, update) = (doc! {"taken": false}, doc! {"$set": {"taken": true}});
                            find_and_modify(unit, "jobs", matching, update, Some(doc! {"priority": -1}))
                        })
                        .unwrap()
                        .value
                    {
                        taken.lock().unwrap().push(number(&job, "_id"));
                    }
                });
            }
        });
        let taken = taken.into_inner().unwrap();
        assert_eq!(taken.len(), 320);
        assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), 320);
        db.check();
    });
}

#[test]
fn upserts_of_one_key_make_one_document() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": 0, "k": -1}]);
        db.build("c", vec![unique(doc! {"k": 1})]).unwrap();
        for key in 0..40 {
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| db.upsert("c", doc! {"k": key}, doc! {"$inc": {"n": 1}}).unwrap());
                }
            });
            let found = db.find("c", doc! {"k": key});
            assert_eq!(found.len(), 1);
            assert_eq!(number(&found[0], "n"), 8);
        }
        db.check();
    });
}

#[test]
fn upserts_among_deletes_of_their_key_are_not_refused() {
    everywhere(|db| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        db.upsert("c", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap();
                        db.delete("c", doc! {"_id": 1}).unwrap();
                    }
                });
            }
        });
        db.check();
    });
}

#[test]
fn an_upsert_that_cannot_succeed_says_so() {
    let db = Db::memory();
    db.insert("c", &[doc! {"_id": 1, "k": 1}]);
    db.build("c", vec![unique(doc! {"k": 1})]).unwrap();
    let error = db.upsert("c", doc! {"_id": 2}, doc! {"$set": {"k": 1}}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    db.check();
}

#[test]
fn unique_keys_change_hands() {
    everywhere(|db| {
        db.insert("c", &numbered(0..2, |id| doc! {"k": id}));
        db.build("c", vec![unique(doc! {"k": 1})]).unwrap();
        let refused = db.update("c", doc! {"_id": 0}, doc! {"$set": {"k": 1}}).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::DuplicateKey);
        // By way of a third key, in one command and so in one batch.
        db.run(|unit| {
            for (statement, (id, k)) in [(0, 9), (1, 0), (0, 1)].into_iter().enumerate() {
                let set = doc! {"$set": {"k": k}};
                update_statement(unit, "c", doc! {"_id": id}, set, Updating::One, statement as i32)?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(number(&db.find("c", doc! {"k": 1})[0], "_id"), 0);
        assert_eq!(number(&db.find("c", doc! {"k": 0})[0], "_id"), 1);
        db.check();
    });
}

#[test]
fn swaps_of_unique_keys_by_many_end_with_each_key_once() {
    let db = Db::memory();
    db.insert("c", &numbered(0..8, |id| doc! {"k": id}));
    db.build("c", vec![unique(doc! {"k": 1})]).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for turn in 0..100 {
                    let id = (turn * 3 + thread) % 8;
                    match db.update("c", doc! {"_id": id}, doc! {"$set": {"k": (turn + thread * 5) % 12}}) {
                        Err(error) => assert_eq!(error.code(), ErrorCode::DuplicateKey),
                        Ok(outcome) => assert_eq!(outcome.matched, 1),
                    }
                }
            });
        }
    });
    let keys: BTreeSet<i64> = db.find("c", doc! {}).iter().map(|document| number(document, "k")).collect();
    assert_eq!(keys.len(), 8);
    db.check();
}

#[test]
fn arrays_that_arrive_while_many_are_updated_count_once() {
    let db = Db::memory();
    for round in 0..30 {
        let name = format!("c{round}");
        db.insert(&name, &numbered(0..50, |id| doc! {"a": id, "n": 0}));
        db.build(&name, vec![spec(doc! {"a": 1})]).unwrap();
        thread::scope(|scope| {
            let update =
                scope.spawn(|| db.update_many(&name, doc! {"a": {"$gte": 0}}, doc! {"$inc": {"n": 1}}));
            db.insert(&name, &[doc! {"_id": 100, "a": [1, 2, 3, 4, 5], "n": 0}]);
            update.join().unwrap().unwrap();
        });
        assert_eq!(db.count(&name, doc! {"n": {"$gt": 1}}), 0);
    }
    db.check();
}
