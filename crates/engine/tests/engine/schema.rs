//! Collections made, dropped and renamed under writers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kilim_bson::{Array, Document, doc};
use kilim_engine::Namespace;
use kilim_engine::catalog::View;
use kilim_error::ErrorCode;

use crate::pattern_crash::at_every_commit;
use crate::support::{Db, everywhere, ns, number, numbered, spec};

#[test]
fn writers_who_come_first_make_one_collection() {
    everywhere(|db| {
        thread::scope(|scope| {
            for writer in 0..8 {
                let db = &db;
                scope.spawn(move || {
                    if writer % 4 == 3 {
                        db.engine.create_collection(&ns("c"), Document::new()).unwrap();
                    }
                    db.insert("c", &numbered(writer * 10..writer * 10 + 10, |_| doc! {}));
                });
            }
        });
        assert_eq!(db.count("c", doc! {}), 80);
        assert_eq!(db.engine.catalog().iter().count(), 1);
        db.check();
    });
}

#[test]
fn a_drop_among_inserts_takes_whole_documents() {
    everywhere(|db| {
        db.insert("c", &[doc! {"_id": -1}]);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..3 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    let mut id = writer * 1_000_000;
                    while !stop.load(Ordering::Relaxed) {
                        db.insert("c", &numbered(id..id + 5, |id| doc! {"a": id}));
                        id += 5;
                    }
                });
            }
            for _ in 0..15 {
                thread::sleep(Duration::from_millis(4));
                if let Err(error) = db.drop_collection("c") {
                    assert_eq!(error.code(), ErrorCode::NamespaceNotFound);
                }
                let _ = db.build("c", vec![spec(doc! {"a": 1})]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        db.check();
    });
}

#[test]
fn renames_among_updates_lose_nothing() {
    everywhere(|db| {
        db.insert("a", &numbered(0..300, |_| doc! {"n": 0}));
        let stop = AtomicBool::new(false);
        let applied: i64 = thread::scope(|scope| {
            let updates = scope.spawn(|| {
                let mut applied = 0;
                while !stop.load(Ordering::Relaxed) {
                    for name in ["a", "b"] {
                        let outcome = db.update(name, doc! {"_id": 7}, doc! {"$inc": {"n": 1}}).unwrap();
                        applied += outcome.modified as i64;
                    }
                }
                applied
            });
            for round in 0..20 {
                let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
                db.rename(from, to, false).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            updates.join().unwrap()
        });
        assert_eq!(db.count("a", doc! {}), 300);
        assert_eq!(number(&db.find("a", doc! {"_id": 7})[0], "n"), applied);
        db.check();
    });
}

#[test]
fn renames_onto_each_other_do_not_wait_for_ever() {
    everywhere(|db| {
        for _ in 0..10 {
            db.insert("a", &[doc! {"_id": "a"}]);
            db.insert("b", &[doc! {"_id": "b"}]);
            let results = thread::scope(|scope| {
                let there = scope.spawn(|| db.rename("a", "b", true));
                let back = scope.spawn(|| db.rename("b", "a", true));
                [there.join().unwrap(), back.join().unwrap()]
            });
            for result in &results {
                if let Err(error) = result {
                    assert_eq!(error.code(), ErrorCode::NamespaceNotFound);
                }
            }
            assert_eq!(db.engine.catalog().iter().count(), 1, "{results:?}");
            db.check();
            let left = db.engine.catalog().iter().next().unwrap().namespace.clone();
            db.drop_collection(&left.collection).unwrap();
        }
    });
}

#[test]
fn a_rename_that_is_refused_leaves_its_target() {
    everywhere(|db| {
        db.insert("a", &[doc! {"_id": 1}]);
        db.insert("b", &[doc! {"_id": 2}]);
        assert_eq!(db.rename("a", "b", false).unwrap_err().code(), ErrorCode::NamespaceExists);
        assert_eq!(db.rename("missing", "b", true).unwrap_err().code(), ErrorCode::NamespaceNotFound);
        assert_eq!(db.rename("b", "b", true).unwrap_err().code(), ErrorCode::IllegalOperation);
        assert_eq!(db.count("b", doc! {"_id": 2}), 1);
        db.rename("a", "b", true).unwrap();
        assert_eq!(db.count("b", doc! {"_id": 1}), 1);
        assert_eq!(db.count("b", doc! {}), 1);
        assert!(db.engine.collection(&ns("a")).is_none());
        db.check();
    });
}

#[test]
fn an_update_of_many_does_not_go_on_in_another_collection() {
    let db = Db::memory();
    db.insert("a", &numbered(0..2000, |_| doc! {"n": 0}));
    db.insert("b", &numbered(0..2000, |_| doc! {"n": 0}));
    thread::scope(|scope| {
        let update = scope.spawn(|| db.update_many("a", doc! {}, doc! {"$inc": {"n": 1}}));
        thread::sleep(Duration::from_millis(5));
        db.rename("b", "a", true).unwrap();
        // Ended before, or was told; what took the name was not touched.
        if let Err(error) = update.join().unwrap() {
            assert_eq!(error.code(), ErrorCode::QueryPlanKilled);
            assert_eq!(db.count("a", doc! {"n": 1}), 0);
        }
    });
    db.check();
}

#[test]
fn a_database_is_dropped_whole_or_not_at_all() {
    let names = ["a", "b", "c", "d", "e"];
    let stopped_at = at_every_commit(
        |db| {
            for name in names {
                db.insert(name, &numbered(0..3, |_| doc! {}));
            }
            let view = View::new(ns("v"), "a", Array::new(), None).unwrap();
            db.engine.create_view(view).unwrap();
        },
        |db| {
            let running = db.engine.operations.start(1);
            db.engine.drop_database(&running, &ns("a").database)
        },
        |db| {
            let left = names.iter().filter(|name| db.engine.collection(&ns(name)).is_some()).count();
            let view = usize::from(db.engine.view(&ns("v")).is_some());
            assert!(matches!((left, view), (0, 0) | (5, 1)), "{left} collections and {view} views are left");
        },
    );
    assert!(stopped_at >= 1, "the power went during the drop");
}

#[test]
fn a_collection_is_not_taken_for_a_leftover_by_its_name() {
    let mut db = Db::disk();
    db.insert("tmp.agg_out.mine", &numbered(0..3, |_| doc! {}));
    db.reopen();
    assert_eq!(db.count("tmp.agg_out.mine", doc! {}), 3);
    db.check();
}

#[test]
fn names_that_no_command_accepts_are_made_by_no_way() {
    let db = Db::memory();
    for (database, collection) in [("test", "a\0b"), ("a b", "c"), ("$x", "c"), ("a\0b", "c"), ("test", ".a")]
    {
        let namespace = Namespace { database: database.to_owned(), collection: collection.to_owned() };
        let error = db.engine.create_collection(&namespace, Document::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidNamespace, "{namespace}");
    }
    for on in ["a\0b", ".a", "a$b"] {
        let error = db.engine.create_view(View::new(ns("v"), on, Array::new(), None).unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidNamespace, "{on}");
    }
}
