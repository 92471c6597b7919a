//! Moments between two steps of a declaration, a filling or a rename, at which another client renames, builds and makes
//! collections. Each was a fault that a random test met now and then; here the moment is met each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kilim_bson::{Document, doc};
use kilim_engine::fail_point::Moment;
use kilim_engine::patterns::PatternState;

use crate::pattern::{declare, make, wait_until_active};
use crate::pattern_regression::expect_true;
use crate::support::{Db, everywhere, ns, number, numbered, spec};

/// Does something at a moment. It is told how often the moment has come before.
fn at(db: &Db, moment: Moment, step: impl Fn(&Db, usize) + Send + Sync + 'static) {
    let (engine, turns) = (Arc::downgrade(&db.engine), AtomicUsize::new(0));
    db.engine.moments.watch(move |now| {
        if let (true, Some(engine)) = (now == moment, engine.upgrade()) {
            step(&Db::of(engine), turns.fetch_add(1, Ordering::Relaxed));
        }
    });
}

fn tree() -> Document {
    doc! {"name": "tree", "tree": {"parent": "parent", "ancestors": "ancestors", "depth": "depth"}}
}

/// A line of nodes.
fn line(db: &Db, collection: &str, count: i32) {
    db.insert(collection, &numbered(0..count, |id| doc! {"parent": id - 1, "at": collection}));
}

fn index_names(db: &Db, collection: &str) -> Vec<String> {
    let collection = db.engine.collection(&ns(collection)).unwrap();
    collection.indexes.iter().map(|index| index.spec.name.clone()).collect()
}

/// The names that were free in one collection are taken in the one that has got its name.
#[test]
fn another_collection_gets_the_name_before_the_indexes_are_built() {
    everywhere(|db| {
        make(&db, &["nodes", "others", "people"]);
        line(&db, "nodes", 5);
        line(&db, "others", 7);
        // An index of another tree, which a copy keeps.
        let boss = doc! {"name": "tree", "tree": {"parent": "boss", "depth": "rank"}};
        let dropped = declare(&db, "others", boss).unwrap();
        wait_until_active(&db, "others", "tree");
        let copy = doc! {"from": "people", "localField": "boss", "as": "copy", "fields": {"name": 1}};
        declare(&db, "others", doc! {"name": "copy", "extendedReference": copy}).unwrap();
        wait_until_active(&db, "others", "copy");
        let operation = Arc::clone(&db.engine.operations.start(1));
        db.engine.drop_pattern(&operation, &dropped).unwrap();
        assert!(index_names(&db, "others").contains(&"kilim_tree_1".to_owned()));

        at(&db, Moment::IndexesNamed, |db, turn| {
            if turn == 0 {
                db.rename("others", "nodes", true).unwrap();
            }
        });
        declare(&db, "nodes", tree()).unwrap();
        wait_until_active(&db, "nodes", "tree");
        assert_eq!(db.count("nodes", doc! {"at": "others", "depth": {"$gte": 0}}), 7);
        expect_true(&db, "nodes", "tree");
        db.check();
    });
}

#[test]
fn a_pattern_comes_into_force_over_a_collection_that_has_its_indexes() {
    everywhere(|db| {
        make(&db, &["nodes", "others"]);
        line(&db, "nodes", 5);
        line(&db, "others", 7);
        at(&db, Moment::IndexesBuilt, |db, turn| {
            if turn == 0 {
                db.rename("others", "nodes", true).unwrap();
            }
        });
        let pattern = declare(&db, "nodes", tree()).unwrap();
        assert!(db.engine.missing_indexes(&pattern).is_empty());
        wait_until_active(&db, "nodes", "tree");
        assert_eq!(db.count("nodes", doc! {"at": "others", "depth": {"$gte": 0}}), 7);
        expect_true(&db, "nodes", "tree");
        db.check();
    });
}

/// A batch that was found in one collection is visited in that one, whatever has its name by then.
#[test]
fn a_batch_is_filled_in_the_collection_that_it_was_found_in() {
    everywhere(|db| {
        make(&db, &["nodes", "twins"]);
        line(&db, "nodes", 9);
        line(&db, "twins", 9);
        at(&db, Moment::BatchFound, |db, turn| {
            if turn == 0 {
                db.rename("nodes", "aside", false).unwrap();
                db.rename("twins", "nodes", false).unwrap();
            }
        });
        declare(&db, "nodes", tree()).unwrap();
        crate::support::eventually("it has gone aside", || {
            db.engine.patterns().find(&ns("aside"), "tree").is_some()
        });
        wait_until_active(&db, "aside", "tree");
        let depths: Vec<i64> = db.find("aside", doc! {}).iter().map(|node| number(node, "depth")).collect();
        assert_eq!(depths, (0..9).collect::<Vec<i64>>());
        assert_eq!(db.count("nodes", doc! {"depth": {"$exists": true}}), 0);
        expect_true(&db, "aside", "tree");
        db.check();
    });
}

/// A check that saw another collection under the old name says nothing.
#[test]
fn a_filled_pattern_is_checked_where_it_was_filled() {
    everywhere(|db| {
        make(&db, &["nodes", "twins"]);
        line(&db, "nodes", 9);
        at(&db, Moment::Filled, |db, turn| {
            if turn == 0 {
                // Something that the check has to find.
                let operation = Arc::clone(&db.engine.operations.start(1));
                let set = |state| {
                    let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
                    db.engine.set_pattern_state(&operation, &pattern, state).unwrap();
                };
                set(PatternState::Paused);
                db.update("nodes", doc! {"_id": 5}, doc! {"$set": {"parent": null}}).unwrap();
                set(PatternState::Verifying);
                db.rename("nodes", "aside", false).unwrap();
                db.rename("twins", "nodes", false).unwrap();
            }
        });
        declare(&db, "nodes", tree()).unwrap();
        crate::support::eventually("it has gone aside", || {
            db.engine.patterns().find(&ns("aside"), "tree").is_some()
        });
        wait_until_active(&db, "aside", "tree");
        assert_eq!(db.count("aside", doc! {"depth": 0}), 2);
        expect_true(&db, "aside", "tree");
        db.check();
    });
}

/// Products that orders copy from, with an index that is built while a rename waits for them.
#[test]
fn an_index_that_is_built_while_a_rename_waits_loses_its_entries_with_the_documents() {
    everywhere(|db| {
        make(&db, &["products", "fresh", "orders"]);
        db.insert("products", &numbered(0..5, |id| doc! {"v": id}));
        declare(&db, "orders", copies_of_products()).unwrap();
        db.insert("orders", &numbered(0..5, |id| doc! {"product": id}));
        let engine = Arc::downgrade(&db.engine);
        db.engine.moments.watch(move |now| {
            let Some(db) = engine.upgrade().map(Db::of) else { return };
            match now {
                Moment::RenameLooked => db.build("products", vec![spec(doc! {"v": 1})]).unwrap(),
                Moment::RenameEmptied => {
                    assert_eq!(db.count("products", doc! {}), 0);
                    assert!(db.find_by("products", doc! {"v": {"$gte": 0}}, "v_1").is_empty());
                }
                _ => {}
            }
        });
        db.rename("fresh", "products", true).unwrap();
        assert_eq!(db.count("orders", doc! {"copy": null}), 5);
        wait_until_active(&db, "orders", "copies");
        expect_true(&db, "orders", "copies");
        db.check();
    });
}

fn copies_of_products() -> Document {
    doc! {"name": "copies", "extendedReference": {
        "from": "products", "localField": "product", "as": "copy", "fields": {"v": 1}, "onSourceDelete": "null",
    }}
}

/// A source that is made while a rename waits lets it begin again. Nothing of its target is gone by then.
#[test]
fn a_rename_that_begins_again_has_not_emptied_its_target() {
    everywhere(|db| {
        make(&db, &["makers", "products", "fresh", "orders"]);
        let maker = doc! {"from": "makers", "localField": "maker", "as": "by", "fields": {"name": 1}};
        declare(&db, "products", doc! {"name": "by", "extendedReference": maker}).unwrap();
        db.insert("products", &numbered(0..5, |id| doc! {"v": id}));
        declare(&db, "orders", copies_of_products()).unwrap();
        db.insert("orders", &numbered(0..5, |id| doc! {"product": id}));
        db.drop_collection("makers").unwrap();
        at(&db, Moment::RenameLooked, |db, turn| match turn {
            0 => make(db, &["makers"]),
            _ => {
                assert_eq!(db.count("products", doc! {}), 5);
                assert_eq!(db.count("orders", doc! {"copy.v": {"$gte": 0}}), 5);
            }
        });
        db.rename("fresh", "products", true).unwrap();
        assert_eq!(db.count("products", doc! {}), 0);
        assert_eq!(db.count("orders", doc! {"copy": null}), 5);
        wait_until_active(&db, "orders", "copies");
        expect_true(&db, "orders", "copies");
        db.check();
    });
}
