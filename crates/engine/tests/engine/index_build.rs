//! Indexes built while writers go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kilim_bson::doc;
use kilim_engine::ids::{IndexId, RecordId};
use kilim_engine::layout;
use kilim_error::{Error, ErrorCode};
use kilim_storage::{Direction, Durability, MemoryDisk, Space};
use std::ops::Bound;

use crate::support::{Db, eventually, everywhere, ns, number, numbered, spec, unique};

/// How many entries an index id has in the store, whether or not the catalog knows the id.
fn entries(db: &Db, id: IndexId) -> usize {
    let (lower, upper) = (layout::index_prefix(id), layout::index_prefix(IndexId(id.0 + 1)));
    let snapshot = db.engine.store.snapshot();
    snapshot.scan(Space::Index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward).count()
}

#[test]
fn a_build_catches_up_with_writers() {
    everywhere(|db| {
        db.insert("c", &numbered(0..3000, |id| doc! {"a": id % 97, "b": id}));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..3 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    let mut turn = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let id = (turn * 7 + writer * 1009) % 3000;
                        let new = 10_000 + writer * 1_000_000 + turn;
                        db.update("c", doc! {"_id": id}, doc! {"$inc": {"a": 1}}).unwrap();
                        db.insert("c", &[doc! {"_id": new, "a": [turn, -turn], "b": new}]);
                        if turn % 3 == 0 {
                            db.delete("c", doc! {"_id": new}).unwrap();
                        }
                        turn += 1;
                    }
                });
            }
            thread::sleep(Duration::from_millis(20));
            db.build("c", vec![spec(doc! {"a": 1}), spec(doc! {"b": -1, "a": 1})]).unwrap();
            db.build("c", vec![unique(doc! {"b": 1})]).unwrap();
            thread::sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
        });
        db.check();
        let collection = db.engine.collection(&ns("c")).unwrap();
        assert_eq!(collection.indexes.len(), 4);
        assert!(collection.building.is_empty());
        for index in ["a_1", "b_-1_a_1"] {
            let multikey = &collection.index_named(index).unwrap().multikey;
            assert!(multikey.is_multikey(), "{index} met arrays during its build");
        }
    });
}

#[test]
fn two_builds_at_once_both_end_whole() {
    everywhere(|db| {
        db.insert("c", &numbered(0..2000, |id| doc! {"a": id % 10, "b": id}));
        thread::scope(|scope| {
            for key in ["a", "b", "z"] {
                let db = &db;
                scope.spawn(move || db.build("c", vec![spec(doc! {key: 1})]).unwrap());
            }
            for id in 2000..2300 {
                db.insert("c", &[doc! {"_id": id, "a": [id, 1], "b": id}]);
            }
        });
        db.check();
        let collection = db.engine.collection(&ns("c")).unwrap();
        assert_eq!(collection.indexes.len(), 4);
        let mut ids: Vec<u32> = collection.indexes.iter().map(|index| index.id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4);
    });
}

#[test]
fn equal_requests_make_one_index() {
    everywhere(|db| {
        db.insert("c", &numbered(0..1000, |id| doc! {"a": id}));
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| db.build("c", vec![spec(doc! {"a": 1})]).unwrap());
            }
        });
        let collection = db.engine.collection(&ns("c")).unwrap();
        assert_eq!(collection.indexes.len(), 2, "one on _id and one on a");
        // Whoever was told that it exists may use it.
        assert!(collection.building.is_empty());
        db.check();
    });
}

#[test]
fn a_unique_build_over_duplicates_fails_and_leaves_nothing() {
    everywhere(|db| {
        db.insert("c", &numbered(0..500, |id| doc! {"a": id / 2}));
        let next = db.engine.next_index_id().0 + 1;
        let error = db.build("c", vec![spec(doc! {"b": 1}), unique(doc! {"a": 1})]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey);
        let collection = db.engine.collection(&ns("c")).unwrap();
        assert_eq!(collection.indexes.len(), 1);
        assert!(collection.building.is_empty());
        db.check();
        eventually("the failed build's space", || (next..next + 2).all(|id| entries(&db, IndexId(id)) == 0));

        for id in (0..500).step_by(2) {
            db.delete("c", doc! {"_id": id}).unwrap();
        }
        db.build("c", vec![unique(doc! {"a": 1})]).unwrap();
        let made = db.engine.collection(&ns("c")).unwrap().index_named("a_1").unwrap().id;
        assert!(made.0 >= next + 2, "an id is never given out twice");
        db.check();
    });
}

#[test]
fn a_unique_build_forgives_duplicates_that_go_meanwhile() {
    everywhere(|db| {
        db.insert("c", &numbered(2000..5000, |id| doc! {"a": id * 100}));
        db.insert("c", &numbered(500..510, |id| doc! {"a": [id % 3, id * 10]}));
        // The transaction keeps the build out of the collection until it ends, first and last.
        let mut transaction = db.transaction(1, 1);
        transaction.insert("c", doc! {"_id": 1000, "a": 1000}).unwrap();
        thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![unique(doc! {"a": 1})]));
            thread::sleep(Duration::from_millis(10));
            transaction.commit().unwrap();
            while db.engine.collection(&ns("c")).unwrap().building.is_empty() && !build.is_finished() {
                thread::yield_now();
            }
            let mut removal = db.transaction(1, 2);
            let removed =
                removal.update("c", doc! {"_id": {"$gte": 500, "$lt": 510}}, doc! {"$unset": {"a": 1}});
            let kept = removal
                .run(|unit| crate::support::delete(unit, "c", doc! {"_id": {"$gt": 500, "$lt": 510}}, false));
            let committed = removed.and(kept).and_then(|_| removal.commit());
            match build.join().unwrap() {
                Ok(()) => assert!(committed.is_ok()),
                // The build was quicker than the removal.
                Err(error) => assert_eq!(error.code(), ErrorCode::DuplicateKey),
            }
        });
        db.check();
    });
}

#[test]
fn duplicates_too_long_for_a_whole_key_are_told() {
    for copies in [2, 3] {
        let db = Db::memory();
        let text = "x".repeat(20_000);
        db.insert("c", &numbered(0..copies, |_| doc! {"a": &text}));
        db.insert("c", &[doc! {"_id": 10, "a": format!("{text}y")}]);
        let error = db.build("c", vec![unique(doc! {"a": 1})]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey);
        for id in 1..copies {
            db.delete("c", doc! {"_id": id}).unwrap();
        }
        db.build("c", vec![unique(doc! {"a": 1})]).unwrap();
        assert_eq!(
            db.try_insert("c", doc! {"_id": 11, "a": &text}).unwrap_err().code(),
            ErrorCode::DuplicateKey
        );
        assert_eq!(db.find_by("c", doc! {"a": &text}, "a_1").len(), 1);
        db.check();
    }
}

#[test]
fn a_build_over_very_many_duplicates_fails_too() {
    let db = Db::memory();
    db.insert("c", &numbered(0..11_000, |_| doc! {"a": "the same"}));
    let error = db.build("c", vec![unique(doc! {"a": 1})]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    db.check();
}

#[test]
fn a_unique_build_refuses_duplicates_that_arrive_meanwhile() {
    // Whichever comes first, the index or the duplicate, exactly one of them stands.
    for round in 0..10 {
        let db = Db::memory();
        db.insert("c", &numbered(0..400, |id| doc! {"a": id}));
        let (built, inserted) = thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![unique(doc! {"a": 1})]));
            thread::sleep(Duration::from_micros(300 * round));
            let inserted = db.try_insert("c", doc! {"_id": 1000, "a": 7});
            (build.join().unwrap(), inserted)
        });
        assert!(built.is_ok() != inserted.is_ok(), "{built:?} and {inserted:?}");
        db.check();
    }
}

#[test]
fn unique_keys_that_move_during_a_build_are_followed() {
    everywhere(|db| {
        db.insert("c", &numbered(0..1000, |id| doc! {"a": id}));
        thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![unique(doc! {"a": 1})]));
            for id in 0..200 {
                // The key goes from one record to another, by way of nobody.
                db.delete("c", doc! {"_id": id}).unwrap();
                db.insert("c", &[doc! {"_id": 5000 + id, "a": id}]);
            }
            build.join().unwrap().unwrap();
        });
        db.check();
        assert_eq!(db.count("c", doc! {"a": {"$gte": 0}}), 1000);
    });
}

#[test]
fn a_document_the_index_cannot_hold_does_not_get_in() {
    for round in 0..10 {
        let db = Db::memory();
        db.insert("c", &numbered(0..400, |id| doc! {"a": id}));
        let (built, inserted) = thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![spec(doc! {"a": 1, "b": 1})]));
            thread::sleep(Duration::from_micros(300 * round));
            let inserted = db.try_insert("c", doc! {"_id": 1000, "a": [1, 2], "b": [3, 4]});
            (build.join().unwrap(), inserted)
        });
        assert!(built.is_ok() != inserted.is_ok(), "{built:?} and {inserted:?}");
        for error in [built.err(), inserted.err()].into_iter().flatten() {
            assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
        }
        db.check();
    }
}

#[test]
fn a_document_that_cannot_be_indexed_can_still_be_removed_during_a_build() {
    let db = Db::memory();
    db.insert("c", &numbered(0..5000, |id| doc! {"a": id}));
    db.insert("c", &[doc! {"_id": 9000, "a": [1, 2], "b": [3, 4]}]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let build = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = db.build("c", vec![spec(doc! {"a": 1, "b": 1})]);
            }
        });
        for _ in 0..20 {
            db.update("c", doc! {"_id": 9000}, doc! {"$unset": {"b": 1}}).unwrap();
            db.delete("c", doc! {"_id": 9000}).unwrap();
            let _ = db.try_insert("c", doc! {"_id": 9000, "a": [1, 2], "b": [3, 4]});
            if db.engine.collection(&ns("c")).unwrap().indexes.len() > 1 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        build.join().unwrap();
    });
    db.check();
}

#[test]
fn a_killed_build_leaves_nothing() {
    everywhere(|db| {
        db.insert("c", &numbered(0..3000, |id| doc! {"a": id}));
        let next = db.engine.next_index_id().0 + 1;
        let running = db.engine.operations.start(1);
        let killed = thread::scope(|scope| {
            let build =
                scope.spawn(|| db.engine.build_indexes(&running, &ns("c"), vec![spec(doc! {"a": 1})]));
            while db.engine.collection(&ns("c")).unwrap().building.is_empty() && !build.is_finished() {
                thread::yield_now();
            }
            running.kill();
            build.join().unwrap()
        });
        match killed {
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Interrupted);
                assert_eq!(db.engine.collection(&ns("c")).unwrap().indexes.len(), 1);
                eventually("the killed build's space", || entries(&db, IndexId(next)) == 0);
            }
            Ok(_) => {
                assert_eq!(db.engine.collection(&ns("c")).unwrap().indexes.len(), 2, "the kill came too late")
            }
        }
        assert!(db.engine.collection(&ns("c")).unwrap().building.is_empty());
        db.check();
    });
}

#[test]
fn dropping_the_collection_ends_its_build() {
    everywhere(|db| {
        for _ in 0..5 {
            db.insert("c", &numbered(0..1500, |id| doc! {"a": id}));
            thread::scope(|scope| {
                let build = scope.spawn(|| db.build("c", vec![spec(doc! {"a": 1})]));
                while db.engine.collection(&ns("c")).unwrap().building.is_empty() && !build.is_finished() {
                    thread::yield_now();
                }
                db.drop_collection("c").unwrap();
                db.insert("c", &[doc! {"_id": 1, "a": 1}]);
                if let Err(error) = build.join().unwrap() {
                    assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
                }
            });
            let collection = db.engine.collection(&ns("c")).unwrap();
            assert_eq!((collection.indexes.len(), collection.building.len()), (1, 0));
            db.check();
            db.drop_collection("c").unwrap();
        }
    });
}

#[test]
fn a_build_follows_its_collection_when_it_is_renamed() {
    everywhere(|db| {
        for round in 0..5 {
            let (from, to) = (format!("from{round}"), format!("to{round}"));
            db.insert(&from, &numbered(0..1500, |id| doc! {"a": id}));
            thread::scope(|scope| {
                let build = scope.spawn(|| db.build(&from, vec![spec(doc! {"a": 1})]));
                while db.engine.collection(&ns(&from)).unwrap().building.is_empty() && !build.is_finished() {
                    thread::yield_now();
                }
                db.rename(&from, &to, false).unwrap();
                db.insert(&from, &[doc! {"_id": 1}]);
                db.insert(&to, &[doc! {"_id": 5000, "a": [1, 2]}]);
                build.join().unwrap().unwrap();
            });
            let renamed = db.engine.collection(&ns(&to)).unwrap();
            assert_eq!((renamed.indexes.len(), renamed.building.len()), (2, 0));
            assert_eq!(db.engine.collection(&ns(&from)).unwrap().indexes.len(), 1);
            db.check();
        }
    });
}

#[test]
fn dropping_another_index_does_not_disturb_a_build() {
    everywhere(|db| {
        db.insert("c", &numbered(0..2000, |id| doc! {"a": id, "b": id}));
        db.build("c", vec![spec(doc! {"b": 1})]).unwrap();
        thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![spec(doc! {"a": 1})]));
            db.drop_index("c", "b_1").unwrap();
            build.join().unwrap().unwrap();
        });
        let names: Vec<String> = db
            .engine
            .collection(&ns("c"))
            .unwrap()
            .indexes
            .iter()
            .map(|index| index.spec.name.clone())
            .collect();
        assert_eq!(names, ["_id_", "a_1"]);
        db.check();
    });
}

#[test]
fn a_snapshot_from_before_the_build_does_not_use_the_index() {
    everywhere(|db| {
        db.insert("c", &numbered(0..200, |id| doc! {"a": id}));
        let mut transaction = db.transaction(1, 1);
        // Its snapshot is taken; the collection is not held.
        assert_eq!(transaction.count("other", doc! {}).unwrap(), 0);
        db.build("c", vec![spec(doc! {"a": 1})]).unwrap();
        assert_eq!(transaction.find("c", doc! {"a": 77}).unwrap().len(), 1);
        assert_eq!(transaction.count("c", doc! {"a": {"$lt": 50}}).unwrap(), 50);
        transaction.commit().unwrap();
        assert_eq!(number(&db.find_by("c", doc! {"a": 77}, "a_1")[0], "_id"), 77);
    });
}

#[test]
fn what_a_crash_leaves_of_a_build_is_given_back() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..50, |id| doc! {"a": id}));
    db.build("c", vec![spec(doc! {"a": 1})]).unwrap();
    let id = db.engine.next_index_id();
    let mut transaction = db.engine.store.begin();
    transaction.put(Space::Meta, layout::building_key(id).to_vec(), Vec::new());
    for record in 0..50u64 {
        let entry = layout::plain_entry(id, &[1, 2, 3], RecordId(record));
        transaction.put(Space::Index, entry, Vec::new());
    }
    transaction.commit(Durability::Durable).unwrap();
    assert_eq!(entries(&db, id), 50);
    db.reopen();
    eventually("the space of the build", || entries(&db, id) == 0);
    assert_eq!(db.engine.store.snapshot().get(Space::Meta, &layout::building_key(id)).unwrap(), None);
    db.check();
}

#[test]
fn a_failed_build_does_not_give_its_ids_to_the_next_run() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..50, |id| doc! {"a": id}));
    let first = db.engine.next_index_id().0 + 1;
    let error = db.build("c", vec![unique(doc! {"z": 1})]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    db.reopen();
    db.build("c", vec![spec(doc! {"a": 1})]).unwrap();
    let made = db.engine.collection(&ns("c")).unwrap().index_named("a_1").unwrap().id;
    assert!(made.0 > first, "an id is never given out twice, also after a restart: {} and {first}", made.0);
    thread::sleep(Duration::from_millis(100));
    db.check();
}

#[test]
fn a_build_whose_store_fails_as_it_begins_is_waited_for_by_nobody() {
    for commits in 0..8 {
        let disk = MemoryDisk::default();
        let db = Db::on(&disk);
        db.insert("orders", &[doc! {"_id": 1, "a": 1}]);
        disk.stop_after(commits);
        let first = db.build("orders", vec![spec(doc! {"a": 1})]);
        assert!(first.is_ok() || disk.is_off(), "{first:?}");
        let running = db.engine.operations.start(1);
        running.set_time_limit(Some(Duration::from_secs(20)));
        let second = db.engine.build_indexes(&running, &ns("orders"), vec![spec(doc! {"a": 1})]);
        if let Err(error) = second {
            assert!(matches!(error, Error::Storage(_)), "after {commits} commits: {error}");
        }
    }
}
