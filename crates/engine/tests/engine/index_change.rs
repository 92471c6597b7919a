//! Indexes that become unique, and builds that are ended.

use std::thread;
use std::time::Duration;

use kilim_bson::doc;
use kilim_engine::build::Conversion;
use kilim_engine::index::IndexSpec;
use kilim_error::ErrorCode;

use crate::support::{Db, everywhere, ns, numbered, spec, unique};

fn prepared(key: kilim_bson::Document) -> IndexSpec {
    IndexSpec { prepare_unique: true, ..spec(key) }
}

fn make_unique(db: &Db) -> kilim_error::Result<()> {
    let index = db.engine.collection(&ns("c")).unwrap().index_named("a_1").unwrap().clone();
    db.engine.make_unique(&db.engine.operations.start(1), &ns("c"), &index, Conversion::Real)
}

#[test]
fn of_writers_of_one_key_a_prepared_index_lets_one_through() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |id| doc! {"a": id / 2}));
        db.build("c", vec![prepared(doc! {"a": 1})]).unwrap();
        let inserted: usize = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || {
                        let one = |key: i32| db.try_insert("c", doc! {"_id": 1000 * writer + key, "a": key});
                        (100..140).filter(|&key| one(key).is_ok()).count()
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(inserted, 40);
        assert_eq!(make_unique(&db).unwrap_err().code(), ErrorCode::CannotConvertIndexToUnique);
        for id in [1, 3, 5, 7, 9] {
            db.delete("c", doc! {"_id": id}).unwrap();
        }
        make_unique(&db).unwrap();
        let collection = db.engine.collection(&ns("c")).unwrap();
        let index = collection.index_named("a_1").unwrap();
        assert!(index.spec.unique && !index.spec.prepare_unique);
        assert_eq!((collection.indexes.len(), collection.building.len()), (2, 0));
        let taken = db.try_insert("c", doc! {"_id": 9000, "a": 100}).unwrap_err();
        assert_eq!(taken.code(), ErrorCode::DuplicateKey);
        db.check();
    });
}

#[test]
fn an_index_becomes_unique_beside_writers() {
    everywhere(|db| {
        db.insert("c", &numbered(0..2000, |id| doc! {"a": id}));
        db.build("c", vec![prepared(doc! {"a": 1})]).unwrap();
        thread::scope(|scope| {
            let conversion = scope.spawn(|| make_unique(&db));
            for id in 0..150 {
                db.update("c", doc! {"_id": id}, doc! {"$inc": {"a": 10_000}}).unwrap();
                db.insert("c", &[doc! {"_id": 5000 + id, "a": id}]);
            }
            conversion.join().unwrap().unwrap();
        });
        assert_eq!(db.count("c", doc! {"a": {"$gte": 0}}), 2150);
        db.check();
    });
}

#[test]
fn a_unique_build_follows_keys_that_are_held_twice_for_a_while() {
    everywhere(|db| {
        db.insert("c", &numbered(0..6000, |id| doc! {"a": id}));
        thread::scope(|scope| {
            let build = scope.spawn(|| db.build("c", vec![unique(doc! {"a": 1})]));
            // More than the last round takes, each key twice in between.
            for id in 0..1500 {
                let doubled = db.try_insert("c", doc! {"_id": 10_000 + id, "a": id}).is_ok();
                if doubled {
                    db.delete("c", doc! {"_id": id}).unwrap();
                }
            }
            match build.join().unwrap() {
                Ok(()) => {}
                // It ended while a key was held twice.
                Err(error) => assert_eq!(error.code(), ErrorCode::DuplicateKey),
            }
        });
        assert_eq!(db.count("c", doc! {"a": {"$gte": 0}}), 6000);
        db.check();
    });
}

#[test]
fn dropping_an_index_ends_its_build() {
    everywhere(|db| {
        for _ in 0..5 {
            db.insert("c", &numbered(0..3000, |id| doc! {"a": id, "b": id}));
            thread::scope(|scope| {
                let specs = vec![spec(doc! {"a": 1}), spec(doc! {"b": 1})];
                let build = scope.spawn(|| db.build("c", specs));
                while db.engine.collection(&ns("c")).unwrap().building.is_empty() && !build.is_finished() {
                    thread::yield_now();
                }
                let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
                let half = db.engine.abort_builds(&db.engine.operations.start(1), &ns("c"), &names(&["a_1"]));
                if let Err(error) = half {
                    assert_eq!(error.code(), ErrorCode::IndexNotFound);
                }
                db.engine
                    .abort_builds(&db.engine.operations.start(1), &ns("c"), &names(&["a_1", "b_1"]))
                    .unwrap();
                assert!(db.engine.collection(&ns("c")).unwrap().building.is_empty());
                if let Err(error) = build.join().unwrap() {
                    assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
                    assert_eq!(db.engine.collection(&ns("c")).unwrap().indexes.len(), 1);
                }
            });
            thread::sleep(Duration::from_millis(1));
            db.check();
            db.drop_collection("c").unwrap();
        }
    });
}
