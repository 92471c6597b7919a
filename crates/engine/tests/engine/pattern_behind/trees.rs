//! Moves of many nodes: readers see the new tree at once, and a job writes what is below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::maintenance::{Planned, forecast};
use kilim_engine::plan::ReadRequest;
use kilim_error::{Error, ErrorCode};
use kilim_patterns::Position;
use kilim_query::update::Update;
use kilim_storage::{MemoryDisk, Survivors};

use super::{expect_true, finish, kill_jobs, lag, slow, sorted_ids, wait_until_even};
use crate::pattern::{declare, make, one, wait_until_active};
use crate::pattern_history::world::Dice;
use crate::pattern_lifecycle::with;
use crate::pattern_tree::move_in;
use crate::pipeline::run as aggregate;
use crate::support::{Db, Transaction, eventually, everywhere, filter, ns, number, numbered};

/// A tree of which a move takes three nodes along, and leaves more to a job.
fn tree(more: Document) -> Document {
    with(all_fields(more), "maxSync", 3)
}

fn all_fields(more: Document) -> Document {
    let mut spec = doc! {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth", "childCount": "children",
        "descendantCount": "descendants", "order": "order",
    };
    more.iter().for_each(|(name, value)| spec.push(name, value));
    doc! {"name": "tree", "tree": spec}
}

fn more_with(mut more: Document, name: &str, value: &str) -> Document {
    more.push(name, value);
    more
}

fn more_with_labels(mut more: Document) -> Document {
    labels().iter().for_each(|(name, value)| more.push(name, value));
    more
}

fn labels() -> Document {
    doc! {"nestedSets": ["lft", "rgt"]}
}

/// What is declared besides, in turn: nothing, and labels.
fn with_and_without_labels(test: impl Fn(Db, Document)) {
    everywhere(|db| test(db, doc! {}));
    everywhere(|db| test(db, labels()));
}

/// 0 and 1 are roots. 2 is below 0, and 3 to 9 are below 2; 10 to 14 are below 3, and 15 to 18 below 10.
fn plant(db: &Db, pattern: Document) {
    make(db, &["nodes"]);
    declare(db, "nodes", pattern).unwrap();
    db.insert("nodes", &[doc! {"_id": 0}, doc! {"_id": 1}, doc! {"_id": 2, "parent": 0}]);
    db.insert("nodes", &numbered(3..10, |_| doc! {"parent": 2}));
    db.insert("nodes", &numbered(10..15, |_| doc! {"parent": 3}));
    db.insert("nodes", &numbered(15..19, |_| doc! {"parent": 10}));
}

fn move_to(db: &Db, id: i32, parent: i32) -> kilim_error::Result<()> {
    db.update("nodes", doc! {"_id": id}, doc! {"$set": {"parent": parent}}).map(drop)
}

/// Compares every node with what follows from the parents alone, and what filters find with that.
#[track_caller]
fn expect_grown(db: &Db) {
    let nodes = db.find("nodes", doc! {});
    let by_id: BTreeMap<i64, &Document> = nodes.iter().map(|node| (number(node, "_id"), node)).collect();
    let parent_of = |id: i64| {
        let parent = by_id[&id].get("parent").filter(|parent| !matches!(parent, RawValue::Null))?;
        let parent = number(&doc! {"p": parent}, "p");
        // A tree ends at its scope.
        let scope = |node: &Document| node.get("shop").map(kilim_patterns::key_bytes);
        by_id.get(&parent).filter(|upper| scope(upper) == scope(by_id[&id])).map(|_| parent)
    };
    let mut below: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (id, node) in &by_id {
        let mut line = Vec::new();
        let mut at = *id;
        while let Some(parent) = parent_of(at) {
            assert!(line.len() <= by_id.len(), "{id} is in a circle");
            line.insert(0, parent);
            at = parent;
        }
        line.iter().for_each(|upper| below.entry(*upper).or_default().push(*id));
        let stored: Vec<i64> = node
            .get("ancestors")
            .and_then(RawValue::as_array)
            .unwrap_or_else(|| panic!("{node:?}"))
            .iter()
            .map(|upper| number(&doc! {"u": upper}, "u"))
            .collect();
        assert_eq!(stored, line, "{node:?}");
        assert_eq!(number(node, "depth"), line.len() as i64, "{node:?}");
        let path: String = line.iter().chain([id]).map(|one| format!("{one},")).collect();
        assert_eq!(node.get("path").and_then(RawValue::as_str), Some(&*format!(",{path}")), "{node:?}");
    }
    let mut labels = Vec::new();
    for (id, node) in &by_id {
        let own = below.remove(id).unwrap_or_default();
        if node.get("lft").is_some() {
            let scope = node.get("shop").map_or(Value::Null, RawValue::to_value);
            let [left, right] = ["lft", "rgt"].map(|end| number(node, end));
            let inside = doc! {"lft": {"$gt": left}, "rgt": {"$lt": right}, "shop": scope.clone()};
            assert_eq!(sorted_ids(&db.find("nodes", inside)), own, "by the labels of {id}");
            assert_eq!(number(node, "order"), left, "{node:?}");
            labels.extend([left, right].map(|label| (kilim_patterns::key_bytes(scope.as_raw()), label)));
        }
        if node.get("descendants").is_some() {
            assert_eq!(number(node, "descendants"), own.len() as i64, "{node:?}");
        }
        assert_eq!(sorted_ids(&db.find("nodes", doc! {"ancestors": *id})), own, "below {id}");
        let path = node.get("path").and_then(RawValue::as_str).unwrap();
        let below_path = db.find("nodes", doc! {"path": {"$regex": format!("^{path}")}, "_id": {"$ne": *id}});
        assert_eq!(sorted_ids(&below_path), own, "by the path of {id}");
    }
    let given = labels.len();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), given, "labels are given out twice");
}

#[test]
fn a_move_of_many_is_seen_at_once_and_written_by_a_job() {
    with_and_without_labels(|db, more| {
        plant(&db, slow(tree(more)));
        move_to(&db, 2, 1).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 1);
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        assert_eq!(db.count("nodes", doc! {"ancestors": 0}), 0);
        assert_eq!(db.count("nodes", doc! {"depth": {"$gte": 3}}), 9);
        let of = |what: &str, id: i32| {
            sorted_ids(&aggregate(&db, "nodes", vec![doc! {"$tree": {"of": id, "what": what}}]))
        };
        assert_eq!(of("descendants", 1), (2..19).collect::<Vec<_>>());
        assert_eq!(of("ancestors", 15), [1, 2, 3, 10]);
        let graph = vec![
            doc! {"$match": {"_id": 1}},
            doc! {"$graphLookup": {
                "from": "nodes", "startWith": "$_id", "connectFromField": "_id", "connectToField": "parent",
                "as": "below",
            }},
            doc! {"$set": {"n": {"$size": "$below"}}},
        ];
        assert_eq!(number(&aggregate(&db, "nodes", graph)[0], "n"), 17);
        finish(&db, "nodes", "tree");
        assert_eq!(lag(&db, "nodes", "tree"), 0);
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.check();
    });
}

#[test]
fn nodes_below_one_that_moved_move_come_and_go_meanwhile() {
    with_and_without_labels(|db, more| {
        plant(&db, slow(tree(more_with(more, "onDelete", "cascade"))));
        move_to(&db, 2, 1).unwrap();
        // Out of what is pending, with many below it; then what is above it moves again.
        move_to(&db, 3, 0).unwrap();
        expect_grown(&db);
        db.insert("nodes", &[doc! {"_id": 30, "parent": 15}, doc! {"_id": 31, "parent": 9}]);
        move_to(&db, 10, 9).unwrap();
        expect_grown(&db);
        move_to(&db, 0, 4).unwrap();
        expect_grown(&db);
        assert_eq!(move_to(&db, 1, 10).unwrap_err().code(), ErrorCode::TreeCycle);
        db.update("nodes", doc! {"_id": 16}, doc! {"$set": {"note": 1}}).unwrap();
        db.update("nodes", doc! {"_id": 17}, doc! {"parent": 10, "whole": 1}).unwrap();
        expect_grown(&db);
        db.delete("nodes", doc! {"_id": 3}).unwrap();
        db.insert("nodes", &[doc! {"_id": 3, "parent": 1}, doc! {"_id": 40, "parent": 3}]);
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.check();
    });
}

#[test]
fn a_parent_that_comes_late_is_seen_above_what_is_pending() {
    everywhere(|db| {
        make(&db, &["nodes"]);
        // New leaves share this tree, since nobody counts them.
        let kept = doc! {"parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth"};
        declare(&db, "nodes", slow(doc! {"name": "tree", "maxSync": 3, "tree": kept})).unwrap();
        db.insert("nodes", &[doc! {"_id": 0, "parent": 99}, doc! {"_id": 1, "parent": 0}]);
        db.insert("nodes", &[doc! {"_id": 2}, doc! {"_id": 90}]);
        db.insert("nodes", &numbered(3..10, |_| doc! {"parent": 2}));
        move_to(&db, 2, 1).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 1);
        db.insert("nodes", &[doc! {"_id": 99, "parent": 90}]);
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.insert("nodes", &[doc! {"_id": 50, "parent": 9}]);
        expect_grown(&db);
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
    });
}

#[test]
fn a_move_of_many_in_a_transaction_is_left_to_the_job_too() {
    with_and_without_labels(|db, more| {
        plant(&db, slow(tree(more.clone())));
        let mut transaction = db.transaction(1, 1);
        transaction.update("nodes", doc! {"_id": 2}, doc! {"$set": {"parent": 1}}).unwrap();
        transaction.insert("nodes", doc! {"_id": 50, "parent": 15}).unwrap();
        transaction.update("nodes", doc! {"_id": 3}, doc! {"$set": {"parent": 0}}).unwrap();
        transaction.commit().unwrap();
        // Where labels are kept, one move at most is behind; here both are written with the commit.
        assert_eq!(lag(&db, "nodes", "tree"), if more.is_empty() { 2 } else { 0 });
        expect_grown(&db);
        let mut transaction = db.transaction(1, 3);
        transaction.update("nodes", doc! {"_id": 2}, doc! {"$set": {"parent": 0, "note": 1}}).unwrap();
        transaction.commit().unwrap();
        assert!(lag(&db, "nodes", "tree") > 0);
        expect_grown(&db);
        // Another that writes a node which the job has yet to write.
        let mut transaction = db.transaction(1, 4);
        transaction.update("nodes", doc! {"_id": 15}, doc! {"$set": {"note": 1}}).unwrap();
        transaction.commit().unwrap();
        expect_grown(&db);
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
    });
}

#[test]
fn a_write_to_a_node_below_two_that_moved_stores_what_is_below_the_lower_one() {
    everywhere(|db| {
        plant(&db, slow(tree(doc! {})));
        move_to(&db, 2, 1).unwrap();
        move_to(&db, 3, 0).unwrap();
        // Below what had been below it, so that its new ancestors have some of the stored ones again.
        move_to(&db, 2, 10).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 2);
        expect_grown(&db);
        db.update("nodes", doc! {"_id": 15}, doc! {"$set": {"note": 1}}).unwrap();
        expect_grown(&db);
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
    });
}

#[test]
fn every_move_is_left_to_the_job_by_choice() {
    for more in [doc! {}, labels()] {
        let db = Db::memory();
        plant(&db, slow(with(tree(more.clone()), "mode", "async")));
        move_to(&db, 10, 4).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 1);
        // Nothing is below it.
        move_to(&db, 5, 1).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 1);
        expect_grown(&db);
        // Served as it is stored, and true in the end.
        let db = Db::memory();
        plant(&db, slow(with(tree(more), "whenBehind", "serve")));
        move_to(&db, 2, 1).unwrap();
        // The job has written one of them at most.
        assert!(db.count("nodes", doc! {"ancestors": 0}) >= 15);
        expect_true(&db, "nodes", "tree");
        db.insert("nodes", &[doc! {"_id": 30, "parent": 15}]);
        db.update("nodes", doc! {"_id": 16}, doc! {"$set": {"note": 1}}).unwrap();
        move_to(&db, 10, 9).unwrap();
        move_to(&db, 5, 10).unwrap();
        expect_true(&db, "nodes", "tree");
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
    }
}

#[test]
fn another_name_of_a_node_is_in_the_paths_below_at_once() {
    let db = Db::memory();
    plant(&db, slow(tree(doc! {"pathOf": "title"})));
    db.update("nodes", doc! {"_id": 2}, doc! {"$set": {"title": "b,c"}}).unwrap();
    assert_eq!(lag(&db, "nodes", "tree"), 1);
    assert_eq!(
        one(&db, "nodes", doc! {"_id": 15}).get("path").and_then(RawValue::as_str),
        Some(",0,b%2Cc,3,10,15,")
    );
    db.update("nodes", doc! {"_id": 0}, doc! {"$set": {"title": "a"}}).unwrap();
    assert_eq!(db.count("nodes", doc! {"path": {"$regex": "^,a,b%2Cc,3,10,"}}), 5);
    expect_true(&db, "nodes", "tree");
    finish(&db, "nodes", "tree");
    assert_eq!(db.count("nodes", doc! {"path": {"$regex": "^,a,b%2Cc,3,10,"}}), 5);
    expect_true(&db, "nodes", "tree");
}

#[test]
fn a_move_that_would_hang_too_deep_is_refused_though_a_job_would_write_it() {
    let db = Db::memory();
    plant(&db, slow(tree(doc! {"maxDepth": 5})));
    db.insert("nodes", &[doc! {"_id": 30, "parent": 1}, doc! {"_id": 31, "parent": 30}]);
    assert_eq!(move_to(&db, 2, 31).unwrap_err().code(), ErrorCode::TreeDepthExceeded);
    assert_eq!(lag(&db, "nodes", "tree"), 0);
    move_to(&db, 2, 30).unwrap();
    expect_grown(&db);
    db.try_insert("nodes", doc! {"_id": 32, "parent": 15}).unwrap_err();
    expect_grown(&db);
}

#[test]
fn power_fails_at_every_commit_of_a_move() {
    for (more, least) in [(doc! {}, 8), (labels(), 4)] {
        let before = MemoryDisk::default();
        let db = Db::on(&before);
        plant(&db, with(tree(more), "backfill", doc! {"batch": 3}));
        db.engine.close().unwrap();
        drop(db);
        let mut commits = 0;
        loop {
            let disk = before.copy();
            let db = Db::on(&disk);
            disk.stop_after(commits);
            let _ = move_to(&db, 2, 1).and_then(|()| move_to(&db, 3, 1)).and_then(|()| move_to(&db, 1, 0));
            let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
            eventually("the job ends", || disk.is_off() || db.engine.catching_up(&pattern).is_none());
            let through = !disk.is_off();
            let _ = db.engine.close();
            drop(db);
            disk.restart(Survivors::Written);
            let db = Db::on(&disk);
            expect_grown(&db);
            expect_true(&db, "nodes", "tree");
            wait_until_even(&db, "nodes", "tree");
            expect_grown(&db);
            expect_true(&db, "nodes", "tree");
            db.check();
            if through {
                break;
            }
            commits += 1;
        }
        // Where labels are kept, one move at most is behind.
        assert!(commits >= least, "{commits}");
    }
}

#[test]
fn a_killed_job_a_restart_a_pause_and_another_definition_lose_no_node() {
    for more in [doc! {}, labels()] {
        let mut db = Db::disk();
        plant(&db, with(tree(more), "backfill", doc! {"batch": 1, "throttleMs": 20}));
        move_to(&db, 2, 1).unwrap();
        kill_jobs(&db);
        expect_grown(&db);
        db.reopen();
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        // Nobody follows these moves until it is resumed.
        move_to(&db, 2, 0).unwrap();
        let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
        let pattern = db.engine.restart_pattern(&operation, &pattern).unwrap();
        db.engine.begin_filling(&pattern);
        wait_until_active(&db, "nodes", "tree");
        expect_grown(&db);
        move_to(&db, 2, 1).unwrap();
        let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
        let more = doc! {"tree": {"pathSeparator": "/"}};
        let pattern = db.engine.modify_pattern(&operation, &pattern, more.as_raw()).unwrap();
        db.engine.begin_filling(&pattern);
        wait_until_active(&db, "nodes", "tree");
        wait_until_even(&db, "nodes", "tree");
        expect_true(&db, "nodes", "tree");
        db.rename("nodes", "branches", false).unwrap();
        expect_true(&db, "branches", "tree");
        db.check();
    }
}

/// Writers that move, insert, delete and rewrite while jobs follow them.
#[test]
fn moves_by_jobs_under_writers_leave_what_the_parents_say() {
    for (seed, (mode, more)) in [("sync", doc! {}), ("async", doc! {}), ("async", doc! {"scope": "shop"})]
        .into_iter()
        .flat_map(|(mode, more)| [(mode, more.clone()), (mode, more_with_labels(more))])
        .enumerate()
    {
        let db = Db::memory();
        let is_scoped = more.get("scope").is_some();
        let pattern = with(with(all_fields(more), "maxSync", 1), "mode", mode);
        plant(&db, with(pattern, "backfill", doc! {"batch": 2}));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut dice = Dice::new(seed as u64 * 10 + writer + 1);
                        for turn in 0..120 {
                            let transaction = db.transaction(writer as u8 + 1, turn + 1);
                            write_at_random(db, &mut dice, transaction, is_scoped);
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    expect_true(&db, "nodes", "tree");
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            // Also if a writer failed, or the reader would go on for ever.
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
            reader.join().unwrap();
        });
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        wait_until_even(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.check();
    }
}

fn write_at_random(db: &Db, dice: &mut Dice, mut transaction: Transaction<'_>, is_scoped: bool) {
    let (id, parent) = (dice.roll(40), dice.roll(40));
    let done = match dice.roll(8) {
        0 if is_scoped => {
            let shop = doc! {"$set": {"shop": dice.roll(2)}};
            db.update("nodes", doc! {"_id": id}, shop).map(drop)
        }
        0..=2 => move_to(db, id, parent),
        3 => db.try_insert("nodes", doc! {"_id": id, "parent": parent}),
        4 => db.delete("nodes", doc! {"_id": id}).map(drop),
        5 => db.update("nodes", doc! {"ancestors": parent}, doc! {"$set": {"note": id}}).map(drop),
        6 => db.update("nodes", doc! {"_id": id}, doc! {"parent": parent, "whole": id}).map(drop),
        _ => {
            let to = |parent: i32| doc! {"$set": {"parent": parent}};
            let first = transaction.update("nodes", doc! {"_id": id}, to(parent)).map(drop);
            let second = first.and_then(|()| {
                transaction.update("nodes", doc! {"_id": parent}, doc! {"$set": {"note": id}}).map(drop)
            });
            match second {
                Ok(()) => transaction.commit(),
                Err(error) => Err(error),
            }
        }
    };
    match done {
        Ok(()) | Err(Error::User(_) | Error::Conflict(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn labels_of_a_move_that_is_behind_are_given_to_nobody_else() {
    let db = Db::memory();
    plant(&db, slow(tree(labels())));
    let below = db.find("nodes", doc! {"ancestors": 2});
    let first = below.iter().map(|node| number(node, "lft")).min().unwrap();
    let last = below.iter().map(|node| number(node, "rgt")).max().unwrap();
    move_to(&db, 2, 1).unwrap();
    assert_eq!(lag(&db, "nodes", "tree"), 1);
    // In the place that it left, until labels have to make room.
    for id in 100..160 {
        db.insert("nodes", &[doc! {"_id": id, "parent": 0}]);
    }
    assert_eq!(db.count("nodes", doc! {"lft": {"$gte": first, "$lte": last}}), 0);
    expect_grown(&db);
    let half = |id: i32| if id % 2 == 0 { Position::First } else { Position::After(100.into()) };
    for id in 200..260 {
        db.insert("nodes", &[doc! {"_id": id}]);
        move_in(&db, "nodes", id.into(), Some(0.into()), half(id)).unwrap();
    }
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
    finish(&db, "nodes", "tree");
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
    db.check();
}

/// Labels of one move at a time are behind. The job of the first does not rest while the second waits for it.
#[test]
fn a_second_move_of_many_labels_waits_for_the_first_and_is_left_to_the_job_too() {
    let db = Db::memory();
    plant(&db, slow(tree(labels())));
    move_to(&db, 2, 1).unwrap();
    // Three below it are few enough to be written with the move.
    db.delete("nodes", doc! {"_id": 18}).unwrap();
    move_to(&db, 10, 4).unwrap();
    assert_eq!(lag(&db, "nodes", "tree"), 1);
    expect_grown(&db);
    move_to(&db, 2, 0).unwrap();
    assert_eq!(lag(&db, "nodes", "tree"), 1);
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
    // Where no job works on the first, the second writes everything itself.
    kill_jobs(&db);
    move_to(&db, 2, 1).unwrap();
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
    finish(&db, "nodes", "tree");
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
    db.check();
}

#[test]
fn what_is_below_the_children_of_a_deleted_node_is_left_to_the_job() {
    with_and_without_labels(|db, more| {
        plant(&db, slow(tree(more_with(more.clone(), "onDelete", "reparent"))));
        db.insert("nodes", &[doc! {"_id": 50, "parent": 0}]);
        db.delete("nodes", doc! {"_id": 2}).unwrap();
        assert_eq!(lag(&db, "nodes", "tree"), 1);
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        // Its children stand where it stood; without labels they come behind their new siblings.
        let siblings = aggregate(&db, "nodes", vec![doc! {"$tree": {"of": 0, "what": "children"}}]);
        let last = siblings.last().map(|node| number(node, "_id"));
        assert_eq!(last, Some(if more.is_empty() { 9 } else { 50 }));
        // Another whose own move is behind, then one whose child's is.
        move_to(&db, 3, 1).unwrap();
        db.insert("nodes", &[doc! {"_id": 60, "parent": 10}]);
        db.delete("nodes", doc! {"_id": 3}).unwrap();
        expect_grown(&db);
        db.insert("nodes", &[doc! {"_id": 61, "parent": 1}]);
        move_to(&db, 10, 61).unwrap();
        expect_grown(&db);
        db.delete("nodes", doc! {"_id": 61}).unwrap();
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.update("nodes", doc! {"_id": 15}, doc! {"$set": {"note": 1}}).unwrap();
        expect_grown(&db);
        finish(&db, "nodes", "tree");
        expect_grown(&db);
        expect_true(&db, "nodes", "tree");
        db.check();
    });
}

/// Its path changes below it, and its labels are still on their way.
#[test]
fn a_node_whose_labels_are_moving_gets_another_name() {
    let db = Db::memory();
    plant(&db, slow(tree(more_with(labels(), "pathOf", "title"))));
    move_to(&db, 2, 1).unwrap();
    let before = db.find("nodes", doc! {"lft": {"$gt": 0}});
    db.update("nodes", doc! {"_id": 2}, doc! {"$set": {"title": "two"}}).unwrap();
    for (before, after) in before.iter().zip(db.find("nodes", doc! {"lft": {"$gt": 0}})) {
        assert_eq!(
            ["lft", "rgt"].map(|end| number(before, end)),
            ["lft", "rgt"].map(|end| number(&after, end))
        );
    }
    assert_eq!(db.count("nodes", doc! {"path": {"$regex": "^,1,two,3,10,"}}), 5);
    expect_true(&db, "nodes", "tree");
    finish(&db, "nodes", "tree");
    assert_eq!(db.count("nodes", doc! {"path": {"$regex": "^,1,two,3,10,"}}), 5);
    expect_true(&db, "nodes", "tree");
    db.check();
}

#[test]
fn a_subtree_that_fits_into_no_gap_is_written_with_its_move() {
    let db = Db::memory();
    plant(&db, slow(tree(labels())));
    // Its labels are far from each other, and there are few numbers between those of a leaf so far down.
    let ids: Vec<i32> = (300..318).collect();
    db.insert("nodes", &[doc! {"_id": ids[0], "parent": 1}]);
    for pair in ids.windows(2) {
        db.insert("nodes", &[doc! {"_id": pair[1], "parent": pair[0]}]);
    }
    // A forecast says so before.
    assert_eq!(modes_of_move(&db, 2, ids[17]), ["sync"]);
    assert_eq!(modes_of_move(&db, 2, 1), ["sync", "async"]);
    move_to(&db, 2, ids[17]).unwrap();
    assert_eq!(lag(&db, "nodes", "tree"), 0);
    expect_grown(&db);
    expect_true(&db, "nodes", "tree");
}

/// How other nodes would be written because of a move.
fn modes_of_move(db: &Db, id: i32, parent: i32) -> Vec<String> {
    let change = doc! {"$set": {"parent": parent}};
    let update = Update::parse(RawValue::Document(change.as_raw()), None, false).unwrap();
    let planned = Planned::Update { update: &update, one: true, upsert: false, now_ms: 0 };
    let request = ReadRequest::new(filter(doc! {"_id": id}));
    let told = db.run(|unit| forecast(unit, &ns("nodes"), request, &planned)).unwrap();
    let text = |one: &Document, name: &str| one.get(name).and_then(RawValue::as_str).unwrap().to_owned();
    told.iter().filter(|one| text(one, "via") != "same document").map(|one| text(one, "mode")).collect()
}
