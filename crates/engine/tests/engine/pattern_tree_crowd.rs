//! Trees under many writers, and trees that are deep, wide or large.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Instant;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::write::{self, MoveRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Position;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::pattern::{declare, make, one, wait_until_active};
use crate::pattern_regression::expect_true;
use crate::pattern_tree::{everything, is_tree_error};
use crate::support::{Db, delete, insert, ns, number, numbered};

fn forest(more: Document) -> Db {
    let db = Db::memory();
    make(&db, &["nodes"]);
    declare(&db, "nodes", everything(more)).unwrap();
    db
}

/// Labels that two nodes have.
fn duplicates(db: &Db) -> usize {
    let mut taken = HashSet::new();
    let nodes = db.find("nodes", doc! {});
    let labels = nodes.iter().flat_map(|node| [number(node, "lft"), number(node, "rgt")]);
    labels.filter(|label| !taken.insert(*label)).count()
}

/// Writers that insert, and after every insert may move or delete some node or other.
fn crowd(db: &Db, writers: i32, each: i32) {
    let most = writers * each;
    db.insert("nodes", &[doc! {"_id": 0}]);
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(writer as u64);
                for number in 0..each {
                    let id = 1 + writer * each + number;
                    let parent = if random.random_range(0..3) == 0 { 0 } else { random.random_range(0..id) };
                    let inserted = db.try_insert("nodes", doc! {"_id": id, "parent": parent});
                    assert!(inserted.is_ok() || is_tree_error(&inserted), "{inserted:?}");
                    let (one, other) = (random.random_range(1..=most), random.random_range(0..=most));
                    let result = match random.random_range(0..4) {
                        0 => {
                            db.update("nodes", doc! {"_id": one}, doc! {"$set": {"parent": other}}).map(drop)
                        }
                        1 => db.delete("nodes", doc! {"_id": one}).map(drop),
                        _ => Ok(()),
                    };
                    assert!(result.is_ok() || is_tree_error(&result), "{result:?}");
                }
            });
        }
    });
    assert_eq!(duplicates(db), 0);
    expect_true(db, "nodes", "tree");
}

#[test]
fn r26_four_writers_add_fifty_nodes_each() {
    for on_delete in ["restrict", "cascade", "reparent"] {
        crowd(&forest(doc! {"onDelete": on_delete}), 4, 50);
    }
}

#[test]
fn r26_sixteen_writers_add_five_hundred_nodes_each() {
    let each = if cfg!(debug_assertions) { 100 } else { 500 };
    crowd(&forest(doc! {}), 16, each);
}

/// A tree of few fields, in which leaves share the lock.
fn lines() -> Document {
    doc! {"name": "tree", "tree": {"parent": "parent", "ancestors": "ancestors"}}
}

#[test]
fn r26_two_moves_at_once_never_make_a_circle() {
    for declaration in [lines(), everything(doc! {})] {
        let db = Db::memory();
        make(&db, &["nodes"]);
        declare(&db, "nodes", declaration).unwrap();
        for round in 0..60 {
            let (a, b) = (round * 2, round * 2 + 1);
            db.insert("nodes", &[doc! {"_id": a}, doc! {"_id": b}]);
            let refused = AtomicI32::new(0);
            thread::scope(|scope| {
                for (one, other) in [(a, b), (b, a)] {
                    let (db, refused) = (&db, &refused);
                    scope.spawn(move || {
                        let moved = db.update("nodes", doc! {"_id": one}, doc! {"$set": {"parent": other}});
                        if moved.is_err() {
                            assert!(is_tree_error(&moved), "{moved:?}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(refused.load(Ordering::Relaxed), 1);
        }
        expect_true(&db, "nodes", "tree");
    }
}

#[test]
fn r26_two_moves_in_transactions_never_make_a_circle() {
    for declaration in [lines(), everything(doc! {})] {
        let db = Db::memory();
        make(&db, &["nodes"]);
        declare(&db, "nodes", declaration).unwrap();
        for round in 0..40 {
            let (a, b) = (round * 2, round * 2 + 1);
            db.insert("nodes", &[doc! {"_id": a}, doc! {"_id": b}]);
            let done = AtomicI32::new(0);
            thread::scope(|scope| {
                for (writer, one, other) in [(1, a, b), (2, b, a)] {
                    let (db, done) = (&db, &done);
                    scope.spawn(move || {
                        let mut transaction = db.transaction(writer, i64::from(round) + 1);
                        let set = doc! {"$set": {"parent": other}};
                        let moved = transaction.update("nodes", doc! {"_id": one}, set).map(drop);
                        match moved.and_then(|()| transaction.commit()) {
                            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                            result => {
                                assert!(
                                    is_tree_error(&result) || matches!(result, Err(Error::Conflict(_))),
                                    "{result:?}"
                                );
                            }
                        }
                    });
                }
            });
            assert!(done.load(Ordering::Relaxed) <= 1);
        }
        expect_true(&db, "nodes", "tree");
    }
}

#[test]
fn r26_a_deep_move_goes_through_or_not_at_all() {
    let db = forest(doc! {"maxDepth": 100});
    // A line of 80 and one of 40.
    db.insert("nodes", &numbered(0..80, |id| doc! {"parent": id - 1}));
    db.insert("nodes", &numbered(100..140, |id| doc! {"parent": id - 1}));
    let to = |parent: i32| db.update("nodes", doc! {"_id": 100}, doc! {"$set": {"parent": parent}});
    assert_eq!(to(79).unwrap_err().code(), ErrorCode::TreeDepthExceeded);
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 139}), "depth"), 39);
    expect_true(&db, "nodes", "tree");
    to(60).unwrap();
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 139}), "depth"), 100);
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 0}), "descendants"), 119);
    expect_true(&db, "nodes", "tree");
    assert_eq!(
        db.update("nodes", doc! {"_id": 0}, doc! {"$set": {"parent": 139}}).unwrap_err().code(),
        ErrorCode::TreeCycle
    );
    db.update("nodes", doc! {"_id": 100}, doc! {"$unset": {"parent": 1}}).unwrap();
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 0}), "descendants"), 79);
    expect_true(&db, "nodes", "tree");
}

fn place(db: &Db, id: i32, position: Position) -> Result<()> {
    let pattern = db.engine.pattern(&ns("nodes"), "tree")?;
    let request = MoveRequest { pattern: &pattern, id: id.into(), to: None, position, statement: 0 };
    db.run(|unit| write::move_node(unit, &ns("nodes"), &request)).map(drop)
}

/// Three hundred times between the same two siblings: halving the gap would end after fifty.
#[test]
fn r26_order_keys_do_not_run_out() {
    let only_order = doc! {"name": "tree", "tree": {"parent": "parent", "order": "order"}};
    for declaration in [everything(doc! {}), only_order] {
        let db = Db::memory();
        make(&db, &["nodes"]);
        declare(&db, "nodes", declaration).unwrap();
        db.insert("nodes", &[doc! {"_id": -1}]);
        db.insert("nodes", &numbered(0..300, |_| doc! {"parent": -1}));
        let mut expected: Vec<i64> = (0..300).collect();
        for id in 2..300 {
            // Behind the first, so that all that came before are shifted.
            place(&db, id, Position::After(Value::Int32(0))).unwrap();
            expected.retain(|other| *other != i64::from(id));
            expected.insert(1, i64::from(id));
        }
        for id in 150..250 {
            place(&db, id, Position::First).unwrap();
            expected.retain(|other| *other != i64::from(id));
            expected.insert(0, i64::from(id));
            place(&db, id - 50, Position::Before(Value::Int32(1))).unwrap();
            expected.retain(|other| *other != i64::from(id) - 50);
            let at = expected.iter().position(|other| *other == 1).unwrap();
            expected.insert(at, i64::from(id) - 50);
        }
        let mut children = db.find("nodes", doc! {"parent": -1});
        children.sort_by_key(|child| number(child, "order"));
        assert_eq!(children.iter().map(|child| number(child, "_id")).collect::<Vec<_>>(), expected);
        expect_true(&db, "nodes", "tree");
    }
}

#[test]
fn r26_ten_thousand_children_of_one_node() {
    let db = forest(doc! {});
    db.insert("nodes", &[doc! {"_id": -1}, doc! {"_id": -2}]);
    for first in (0..10_000).step_by(1000) {
        db.insert("nodes", &numbered(first..first + 1000, |_| doc! {"parent": -1}));
    }
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": -1}), "children"), 10_000);
    db.update("nodes", doc! {"_id": -1}, doc! {"$set": {"parent": -2}}).unwrap();
    place(&db, 9_999, Position::First).unwrap();
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": -2}), "descendants"), 10_001);
    let mut children = db.find("nodes", doc! {"parent": -1});
    children.sort_by_key(|child| number(child, "order"));
    assert_eq!((number(&children[0], "_id"), number(&children[1], "_id")), (9_999, 0));
    assert!(children.iter().all(|child| number(child, "depth") == 2));
    assert_eq!(duplicates(&db), 0);
    db.run(|unit| delete(unit, "nodes", doc! {"_id": {"$gte": 5_000}}, false)).unwrap();
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": -2}), "descendants"), 5_001);
    assert_eq!(db.engine.pattern(&ns("nodes"), "tree").unwrap().counters.drift.get(), 0);
}

/// Order keys alone: filling and checking them looks at no sibling but those with the same key.
#[test]
fn r26_ten_thousand_children_in_order() {
    let db = Db::memory();
    make(&db, &["nodes"]);
    db.insert("nodes", &[doc! {"_id": -1}]);
    let count = if cfg!(debug_assertions) { 3_000 } else { 10_000 };
    for first in (0..count).step_by(1000) {
        db.insert("nodes", &numbered(first..first + 1000, |_| doc! {"parent": -1}));
    }
    let begun = Instant::now();
    let spec = doc! {"parent": "parent", "order": "order", "childCount": "children"};
    declare(&db, "nodes", doc! {"name": "tree", "tree": spec}).unwrap();
    wait_until_active(&db, "nodes", "tree");
    let orders: HashSet<i64> =
        db.find("nodes", doc! {"parent": -1}).iter().map(|child| number(child, "order")).collect();
    assert_eq!(orders.len(), count as usize);
    place(&db, count - 1, Position::First).unwrap();
    place(&db, 5, Position::After(7.into())).unwrap();
    expect_true(&db, "nodes", "tree");
    // With a look at all siblings for each it took minutes.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

/// Children before their parents, in batches as drivers send them. Built with optimisations it is 100,000 nodes.
#[test]
fn a_tree_is_loaded_children_first() {
    let count = if cfg!(debug_assertions) { 3_000 } else { 100_000 };
    let db = forest(doc! {});
    let begun = Instant::now();
    let nodes: Vec<Document> = (0..count)
        .rev()
        .map(|id| match id {
            0 => doc! {"_id": 0},
            id => doc! {"_id": id, "parent": (id - 1) / 10},
        })
        .collect();
    for batch in nodes.chunks(1000) {
        let outcome = db.run(|unit| insert(unit, "nodes", batch, false)).unwrap();
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    }
    println!("{count} nodes, children first: {:?}", begun.elapsed());
    let root = one(&db, "nodes", doc! {"_id": 0});
    assert_eq!(number(&root, "descendants"), i64::from(count) - 1);
    assert_eq!(duplicates(&db), 0);
    for node in db.find("nodes", doc! {"_id": {"$gte": count - 50}}) {
        let mut line: Vec<i64> = Vec::new();
        let mut at = number(&node, "_id");
        while at > 0 {
            at = (at - 1) / 10;
            line.insert(0, at);
        }
        assert_eq!(number(&node, "depth"), line.len() as i64);
        let stored = node.get("ancestors").and_then(RawValue::as_array).unwrap();
        let stored: Vec<i64> = stored.iter().map(|id| number(&doc! {"id": id}, "id")).collect();
        assert_eq!(stored, line);
    }
    if cfg!(debug_assertions) {
        expect_true(&db, "nodes", "tree");
    }
}
