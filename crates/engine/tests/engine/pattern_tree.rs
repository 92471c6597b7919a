//! Trees: what is derived from parents, kept by every write.

use std::collections::HashSet;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::patterns::PatternState;
use kilim_engine::write::{self, MoveRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Position;

use crate::pattern::{declare, make, one, wait_until_active};
use crate::pattern_lifecycle::{spoil, with};
use crate::pattern_regression::{expect_true, verify};
use crate::support::{Db, everywhere, find_and_modify, ns, number, numbered};

pub fn everything(more: Document) -> Document {
    let mut spec = doc! {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "nestedSets": ["lft", "rgt"], "depth": "depth",
        "childCount": "children", "descendantCount": "descendants", "order": "order",
    };
    more.iter().for_each(|(name, value)| spec.push(name, value));
    doc! {"name": "tree", "tree": spec}
}

/// The categories of the seeds, children first.
fn categories(db: &Db, more: Document) {
    make(db, &["categories"]);
    declare(db, "categories", everything(more)).unwrap();
    db.insert(
        "categories",
        &[
            doc! {"_id": "mongodb", "parent": "databases", "name": "MongoDB"},
            doc! {"_id": "databases", "parent": "tech", "name": "Databases"},
            doc! {"_id": "tech", "parent": null, "name": "Technology"},
            doc! {"_id": "nosql", "parent": "databases"},
            doc! {"_id": "garden"},
        ],
    );
}

fn category(db: &Db, id: &str) -> Document {
    one(db, "categories", doc! {"_id": id})
}

fn ids(documents: &[Document]) -> Vec<String> {
    let id = |document: &Document| document.get("_id").and_then(RawValue::as_str).unwrap_or("?").to_owned();
    let mut ids: Vec<String> = documents.iter().map(id).collect();
    ids.sort();
    ids
}

fn move_node(db: &Db, id: &str, to: Option<Value>, position: Position) -> Result<u64> {
    move_in(db, "categories", id.into(), to, position)
}

pub fn move_in(db: &Db, collection: &str, id: Value, to: Option<Value>, position: Position) -> Result<u64> {
    let pattern = db.engine.pattern(&ns(collection), "tree")?;
    let request = MoveRequest { pattern: &pattern, id, to, position, statement: 0 };
    db.run(|unit| write::move_node(unit, &ns(collection), &request)).map(|outcome| outcome.matched)
}

/// The children of a node in their order.
fn in_order(db: &Db, parent: &str) -> Vec<String> {
    let mut children = db.find("categories", doc! {"parent": parent});
    children.sort_by_key(|child| number(child, "order"));
    let by_left = |one: &Document, other: &Document| number(one, "lft") < number(other, "lft");
    assert!(children.is_sorted_by(by_left));
    children.iter().map(|child| child.get("_id").and_then(RawValue::as_str).unwrap().to_owned()).collect()
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug>, code: ErrorCode) {
    match result {
        Err(error) => assert_eq!(error.code(), code, "{error}"),
        Ok(value) => panic!("{value:?}"),
    }
}

#[test]
fn the_four_shapes_of_a_tree_are_kept_at_once() {
    everywhere(|db| {
        categories(&db, doc! {});
        let mongodb = category(&db, "mongodb");
        assert_eq!(mongodb.get("ancestors").unwrap().to_value().as_raw().as_array().unwrap().len(), 2);
        assert_eq!(mongodb.get("path").and_then(RawValue::as_str), Some(",tech,databases,mongodb,"));
        assert_eq!(number(&mongodb, "depth"), 2);
        let tech = category(&db, "tech");
        assert_eq!((number(&tech, "children"), number(&tech, "descendants")), (1, 3));
        assert_eq!(
            ids(&db.find("categories", doc! {"ancestors": "tech"})),
            ["databases", "mongodb", "nosql"]
        );
        let path = doc! {"path": {"$regex": ",databases,"}};
        assert_eq!(ids(&db.find("categories", path)), ["databases", "mongodb", "nosql"]);
        let (lft, rgt) = (number(&mongodb, "lft"), number(&mongodb, "rgt"));
        let above = doc! {"lft": {"$lt": lft}, "rgt": {"$gt": rgt}};
        assert_eq!(ids(&db.find("categories", above)), ["databases", "tech"]);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn a_move_takes_all_below_along() {
    everywhere(|db| {
        categories(&db, doc! {});
        db.update("categories", doc! {"_id": "databases"}, doc! {"$set": {"parent": "garden"}}).unwrap();
        assert_eq!(
            ids(&db.find("categories", doc! {"ancestors": "garden"})),
            ["databases", "mongodb", "nosql"]
        );
        assert!(db.find("categories", doc! {"ancestors": "tech"}).is_empty());
        assert_eq!(number(&category(&db, "tech"), "descendants"), 0);
        expect_true(&db, "categories", "tree");
        // To where there is nobody yet, and then there is.
        db.update("categories", doc! {"_id": "databases"}, doc! {"$set": {"parent": "it"}}).unwrap();
        assert_eq!(number(&category(&db, "databases"), "depth"), 0);
        db.insert("categories", &[doc! {"_id": "it", "parent": "tech"}]);
        assert_eq!(number(&category(&db, "mongodb"), "depth"), 3);
        assert_eq!(number(&category(&db, "tech"), "descendants"), 4);
        expect_true(&db, "categories", "tree");
        db.update("categories", doc! {"_id": "it"}, doc! {"$unset": {"parent": 1}}).unwrap();
        assert_eq!(
            category(&db, "mongodb").get("path").and_then(RawValue::as_str),
            Some(",it,databases,mongodb,")
        );
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn a_node_gets_the_place_among_its_siblings_that_is_asked_for() {
    everywhere(|db| {
        categories(&db, doc! {});
        db.insert("categories", &[doc! {"_id": "sql", "parent": "databases"}]);
        assert_eq!(in_order(&db, "databases"), ["mongodb", "nosql", "sql"]);
        let to = || Some(Value::from("databases"));
        assert_eq!(move_node(&db, "sql", to(), Position::First).unwrap(), 1);
        assert_eq!(in_order(&db, "databases"), ["sql", "mongodb", "nosql"]);
        move_node(&db, "garden", to(), Position::Before("nosql".into())).unwrap();
        move_node(&db, "sql", None, Position::After("mongodb".into())).unwrap();
        assert_eq!(in_order(&db, "databases"), ["mongodb", "sql", "garden", "nosql"]);
        for _ in 0..60 {
            let last = in_order(&db, "databases").pop().unwrap();
            move_node(&db, &last, None, Position::After("mongodb".into())).unwrap();
        }
        assert_eq!(in_order(&db, "databases"), ["mongodb", "sql", "garden", "nosql"]);
        expect_true(&db, "categories", "tree");
        refused(move_node(&db, "sql", Some("nobody".into()), Position::Last), ErrorCode::TreeParentMissing);
        refused(move_node(&db, "tech", to(), Position::Last), ErrorCode::TreeCycle);
        assert_eq!(move_node(&db, "nobody", None, Position::Last).unwrap(), 0);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn children_of_a_deleted_node_stay_go_or_move_up() {
    everywhere(|db| {
        categories(&db, doc! {});
        refused(db.delete("categories", doc! {"_id": "databases"}), ErrorCode::TreeNotEmpty);
        db.delete("categories", doc! {"_id": "mongodb"}).unwrap();
        assert_eq!(number(&category(&db, "tech"), "descendants"), 2);
        expect_true(&db, "categories", "tree");
    });
    everywhere(|db| {
        categories(&db, doc! {"onDelete": "cascade"});
        db.delete("categories", doc! {"_id": "databases"}).unwrap();
        assert_eq!(ids(&db.find("categories", doc! {})), ["garden", "tech"]);
        assert_eq!(number(&category(&db, "tech"), "descendants"), 0);
        expect_true(&db, "categories", "tree");
    });
    everywhere(|db| {
        categories(&db, doc! {"onDelete": "reparent"});
        db.delete("categories", doc! {"_id": "databases"}).unwrap();
        assert_eq!(ids(&db.find("categories", doc! {"parent": "tech"})), ["mongodb", "nosql"]);
        assert_eq!(number(&category(&db, "tech"), "children"), 2);
        expect_true(&db, "categories", "tree");
        db.delete("categories", doc! {"_id": "tech"}).unwrap();
        assert_eq!(number(&category(&db, "nosql"), "depth"), 0);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn r21_whole_documents_with_stale_fields_are_put_right() {
    everywhere(|db| {
        categories(&db, doc! {});
        let stale = doc! {"_id": "tech", "parent": null, "name": "IT", "descendants": 99, "ancestors": ["x"]};
        db.update("categories", doc! {"_id": "tech"}, stale).unwrap();
        assert_eq!(number(&category(&db, "tech"), "descendants"), 3);
        refused(
            db.update("categories", doc! {"_id": "tech"}, doc! {"$set": {"depth": 4}}),
            ErrorCode::PatternFieldReadOnly,
        );
        let update = doc! {"$set": {"parent": "garden"}};
        let moved =
            db.run(|unit| find_and_modify(unit, "categories", doc! {"_id": "tech"}, update, None)).unwrap();
        assert_eq!(number(&moved.value.unwrap(), "depth"), 1);
        assert_eq!(number(&category(&db, "mongodb"), "depth"), 3);
        expect_true(&db, "categories", "tree");
    });
}

pub fn is_tree_error<T>(result: &Result<T>) -> bool {
    let codes = [
        ErrorCode::TreeCycle,
        ErrorCode::TreeNotEmpty,
        ErrorCode::TreeDepthExceeded,
        ErrorCode::TreeParentMissing,
    ];
    matches!(result, Err(error @ Error::User(_)) if codes.contains(&error.code()))
}

#[test]
fn circles_within_a_transaction_and_between_two_are_refused() {
    everywhere(|db| {
        categories(&db, doc! {});
        let set = |parent: &str| doc! {"$set": {"parent": parent}};
        let mut one = db.transaction(1, 1);
        one.update("categories", doc! {"_id": "tech"}, set("garden")).unwrap();
        one.update("categories", doc! {"_id": "garden"}, set("mongodb")).unwrap();
        refused(one.commit(), ErrorCode::TreeCycle);
        let mut first = db.transaction(1, 2);
        let mut second = db.transaction(2, 1);
        first.update("categories", doc! {"_id": "tech"}, set("garden")).unwrap();
        second.update("categories", doc! {"_id": "garden"}, set("tech")).unwrap();
        // Each counts on a node that the other wrote, so one of them has to begin anew.
        assert!(matches!(first.commit(), Err(Error::Conflict(_))));
        second.commit().unwrap();
        assert_eq!(number(&category(&db, "garden"), "depth"), 1);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn a_cascade_takes_along_what_its_transaction_inserted() {
    everywhere(|db| {
        categories(&db, doc! {"onDelete": "cascade"});
        let mut transaction = db.transaction(1, 1);
        transaction.insert("categories", doc! {"_id": "new", "parent": "mongodb"}).unwrap();
        transaction
            .run(|unit| crate::support::delete(unit, "categories", doc! {"_id": "databases"}, true))
            .unwrap();
        transaction.commit().unwrap();
        assert_eq!(ids(&db.find("categories", doc! {})), ["garden", "tech"]);
        assert_eq!(number(&category(&db, "tech"), "descendants"), 0);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn r28_two_transactions_that_add_to_one_tree_both_commit() {
    everywhere(|db| {
        categories(&db, doc! {});
        let mut first = db.transaction(1, 1);
        let mut second = db.transaction(2, 1);
        first.insert("categories", doc! {"_id": "a", "parent": "nosql"}).unwrap();
        second.insert("categories", doc! {"_id": "b", "parent": "nosql"}).unwrap();
        db.insert("categories", &[doc! {"_id": "c", "parent": "nosql"}]);
        first.insert("categories", doc! {"_id": "aa", "parent": "a"}).unwrap();
        second
            .update("categories", doc! {"_id": "b"}, doc! {"$set": {"name": "B", "parent": "mongodb"}})
            .unwrap();
        first.commit().unwrap();
        second.commit().unwrap();
        assert_eq!(number(&category(&db, "tech"), "descendants"), 7);
        assert_eq!(
            category(&db, "b").get("path").and_then(RawValue::as_str),
            Some(",tech,databases,mongodb,b,")
        );
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn what_was_there_before_is_filled_while_writers_go_on() {
    everywhere(|db| {
        let nodes = numbered(0..400, |id| doc! {"parent": (id + 1 + id % 7).min(400)});
        // Parents have larger numbers, so children come first.
        db.insert("nodes", &nodes);
        let pattern = declare(&db, "nodes", everything(doc! {"maxDepth": 500})).unwrap();
        assert_eq!(pattern.state, PatternState::Building);
        for id in 1000..1040 {
            db.insert("nodes", &[doc! {"_id": id, "parent": id % 400}]);
            db.update("nodes", doc! {"_id": id % 300}, doc! {"$set": {"parent": 398}}).unwrap();
        }
        wait_until_active(&db, "nodes", "tree");
        expect_true(&db, "nodes", "tree");
    });
}

#[test]
fn a_circle_that_was_there_before_is_told_and_can_be_broken() {
    let db = Db::memory();
    db.insert(
        "nodes",
        &[doc! {"_id": 1, "parent": 2}, doc! {"_id": 2, "parent": 1}, doc! {"_id": 3, "parent": 1}],
    );
    declare(&db, "nodes", everything(doc! {})).unwrap();
    kilim_testkit::eventually(
        "the pattern fails",
        || matches!(&db.engine.pattern(&ns("nodes"), "tree").unwrap().state, PatternState::Failed(reason) if reason.contains("cannot be below")),
    );
    db.update("nodes", doc! {"_id": 1}, doc! {"$set": {"parent": null}}).unwrap();
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("nodes"), "tree").unwrap();
    db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
    expect_true(&db, "nodes", "tree");
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 1}), "descendants"), 2);
}

#[test]
fn drift_while_paused_is_found_and_repaired() {
    everywhere(|db| {
        categories(&db, doc! {});
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = || db.engine.pattern(&ns("categories"), "tree").unwrap();
        db.engine.pause_pattern(&operation, &pattern()).unwrap();
        db.update("categories", doc! {"_id": "databases"}, doc! {"$set": {"parent": "garden", "lft": 5}})
            .unwrap();
        db.insert("categories", &[doc! {"_id": "new", "parent": "mongodb"}]);
        assert!(verify(&db, "categories", "tree").wrong > 3);
        let restarted = db.engine.restart_pattern(&operation, &pattern()).unwrap();
        db.engine.begin_filling(&restarted);
        wait_until_active(&db, "categories", "tree");
        assert_eq!(number(&category(&db, "garden"), "descendants"), 4);
        expect_true(&db, "categories", "tree");
        db.insert("categories", &[doc! {"_id": "newer", "parent": "new"}]);
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn a_scrub_finds_labels_and_counts_that_are_wrong() {
    for (field, value) in [("lft", 7i64), ("descendants", 9), ("order", 1)] {
        let db = Db::memory();
        make(&db, &["categories"]);
        let scrub = doc! {"everyHours": 1, "sample": 1.0};
        declare(&db, "categories", with(everything(doc! {}), "scrub", scrub)).unwrap();
        db.insert("categories", &[doc! {"_id": "a"}, doc! {"_id": "b", "parent": "a"}]);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let later = db.engine.now_millis() + 3_600_001;
        assert_eq!(db.engine.scrub(&operation, later).unwrap(), 0);
        spoil(&db, "categories", "tree", || {
            let mut set = Document::new();
            set.push(field, value);
            db.update("categories", doc! {"_id": "b"}, doc! {"$set": set}).unwrap();
        });
        assert!(db.engine.scrub(&operation, later + 3_600_001).unwrap() > 0, "{field}");
        let pattern = db.engine.pattern(&ns("categories"), "tree").unwrap();
        assert_eq!(pattern.state, PatternState::Suspect);
        db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
        expect_true(&db, "categories", "tree");
    }
}

#[test]
fn several_trees_in_one_collection_are_kept_apart() {
    everywhere(|db| {
        categories(&db, doc! {"scope": "shop", "pathSeparator": "/"});
        db.insert(
            "categories",
            &[
                doc! {"_id": "a", "shop": 1},
                doc! {"_id": "b", "shop": 1, "parent": "a"},
                doc! {"_id": "c", "shop": 2, "parent": "a"},
                doc! {"_id": "1,2/3", "shop": 1, "parent": "b"},
            ],
        );
        assert_eq!(number(&category(&db, "c"), "depth"), 0);
        assert_eq!(category(&db, "1,2/3").get("path").and_then(RawValue::as_str), Some("/a/b/1,2%2F3/"));
        db.update("categories", doc! {"_id": "c"}, doc! {"$set": {"shop": 1}}).unwrap();
        assert_eq!(number(&category(&db, "a"), "descendants"), 3);
        refused(
            db.update("categories", doc! {"_id": "a"}, doc! {"$set": {"shop": 2}}),
            ErrorCode::TreeNotEmpty,
        );
        expect_true(&db, "categories", "tree");
    });
}

#[test]
fn it_outlives_a_restart() {
    let mut db = Db::disk();
    make(&db, &["nodes"]);
    declare(&db, "nodes", everything(doc! {})).unwrap();
    db.insert("nodes", &[doc! {"_id": -1}]);
    db.insert("nodes", &numbered(0..300, |_| doc! {"parent": -1}));
    db.reopen();
    db.insert("nodes", &[doc! {"_id": -2, "parent": -1}, doc! {"_id": -3, "parent": 5}]);
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": -1}), "children"), 301);
    expect_true(&db, "nodes", "tree");
}

#[test]
fn ids_of_all_types_are_ids() {
    everywhere(|db| {
        make(&db, &["nodes"]);
        declare(&db, "nodes", everything(doc! {})).unwrap();
        let long = "x".repeat(9000);
        let ids = [
            Value::Int32(1),
            Value::from("1"),
            Value::Document(doc! {"a": 1, "b": [1]}),
            Value::Bool(true),
            Value::from(&*long),
            Value::DateTime(5),
        ];
        for id in &ids {
            let child = doc! {"of": id.clone()};
            db.insert("nodes", &[doc! {"_id": child, "parent": id.clone()}]);
            db.insert("nodes", &[doc! {"_id": id.clone()}]);
        }
        // An equal number of another type is the same parent, and an array is nobody's.
        db.insert("nodes", &[doc! {"_id": "f", "parent": 1.0}, doc! {"_id": "g", "parent": array![1]}]);
        assert_eq!(number(&one(&db, "nodes", doc! {"_id": 1}), "descendants"), 2);
        assert_eq!(number(&one(&db, "nodes", doc! {"_id": "g"}), "depth"), 0);
        expect_true(&db, "nodes", "tree");
    });
}

/// Null names no parent, also where a node has it as its `_id`.
#[test]
fn a_node_whose_id_is_null_has_nobody_below_it() {
    for on_delete in ["restrict", "cascade", "reparent"] {
        everywhere(|db| {
            make(&db, &["nodes"]);
            declare(&db, "nodes", everything(doc! {"onDelete": on_delete})).unwrap();
            db.insert(
                "nodes",
                &[doc! {"_id": 1}, doc! {"_id": 2, "parent": null}, doc! {"_id": 3, "parent": 1}],
            );
            db.insert("nodes", &[doc! {"_id": null}, doc! {"_id": 4}]);
            let null = one(&db, "nodes", doc! {"_id": null});
            assert_eq!([number(&null, "children"), number(&null, "descendants")], [0, 0]);
            expect_true(&db, "nodes", "tree");
            db.update("nodes", doc! {"_id": null}, doc! {"$set": {"parent": 3}}).unwrap();
            db.update("nodes", doc! {"_id": 4}, doc! {"$set": {"parent": null}}).unwrap();
            expect_true(&db, "nodes", "tree");
            assert_eq!(number(&one(&db, "nodes", doc! {"_id": 1}), "descendants"), 2);
            move_in(&db, "nodes", Value::Null, Some(Value::Null), Position::First).unwrap();
            expect_true(&db, "nodes", "tree");
            assert_eq!(db.delete("nodes", doc! {"_id": null}).unwrap(), 1);
            assert_eq!(db.count("nodes", doc! {}), 4);
            expect_true(&db, "nodes", "tree");
        });
    }
}

#[test]
fn a_move_puts_nothing_in_the_place_of_what_a_user_wrote() {
    let db = Db::memory();
    make(&db, &["nodes"]);
    let spec = doc! {"parent": "meta.parent", "depth": "depth", "order": "order"};
    declare(&db, "nodes", doc! {"name": "tree", "tree": spec}).unwrap();
    db.insert("nodes", &[doc! {"_id": 1}, doc! {"_id": 2, "meta": 5}, doc! {"_id": 3, "meta": {"own": 1}}]);
    let to = |id: i32| move_in(&db, "nodes", id.into(), Some(Value::Int32(1)), Position::Last);
    refused(to(2), ErrorCode::PathNotViable);
    assert_eq!(number(&one(&db, "nodes", doc! {"_id": 2}), "meta"), 5);
    to(3).unwrap();
    assert_eq!(db.count("nodes", doc! {"meta": {"own": 1, "parent": 1}, "depth": 1}), 1);
    expect_true(&db, "nodes", "tree");
}

/// An index has an array by its elements, and of a very long value a part.
#[test]
fn scopes_that_an_index_does_not_tell_apart_are_kept_apart() {
    everywhere(|db| {
        make(&db, &["nodes"]);
        declare(&db, "nodes", everything(doc! {"scope": "shop"})).unwrap();
        let long = |end: &str| Value::from(format!("{}{end}", "x".repeat(9000)));
        let scopes: [Value; 7] = [
            1.into(),
            array![1].into(),
            array![1, 2].into(),
            array![array![1]].into(),
            doc! {"a": 1}.into(),
            long("a"),
            long("b"),
        ];
        for round in 0..4 {
            for (at, scope) in scopes.iter().enumerate() {
                let (id, parent) = (at as i32 * 100 + round, at as i32 * 100 + round / 2);
                let mut node = doc! {"_id": id, "shop": scope.clone()};
                if id != parent {
                    node.push("parent", parent);
                }
                db.insert("nodes", &[node]);
            }
        }
        for at in 0..scopes.len() as i32 {
            assert_eq!(number(&one(&db, "nodes", doc! {"_id": at * 100}), "descendants"), 3, "{at}");
        }
        expect_true(&db, "nodes", "tree");
        db.update("nodes", doc! {"_id": 103}, doc! {"$set": {"parent": 100, "shop": array![1]}}).unwrap();
        db.update("nodes", doc! {"_id": 3}, doc! {"$set": {"parent": 100, "shop": array![1]}}).unwrap();
        expect_true(&db, "nodes", "tree");
    });
}

/// Such a path leads to nothing in a tree, and to the elements in an index.
#[test]
fn scopes_and_parents_within_arrays_are_none() {
    everywhere(|db| {
        make(&db, &["nodes", "ordered"]);
        let spec = doc! {"parent": "in.parent", "scope": "in.shop", "nestedSets": ["lft", "rgt"]};
        declare(&db, "nodes", doc! {"name": "tree", "tree": spec}).unwrap();
        let ordered = doc! {"parent": "in.parent", "order": "order"};
        declare(&db, "ordered", doc! {"name": "tree", "tree": ordered}).unwrap();
        for at in ["nodes", "ordered"] {
            let within = || array![doc! {"parent": 1, "shop": 1}];
            db.insert(
                at,
                &[doc! {"_id": 1, "in": {"shop": 1}}, doc! {"_id": 2, "in": within()}, doc! {"_id": 3}],
            );
            db.insert(
                at,
                &[doc! {"_id": 4, "in": within()}, doc! {"_id": 5, "in": {"shop": 1, "parent": 1}}],
            );
            move_in(&db, at, 4.into(), None, Position::First).unwrap();
            move_in(&db, at, 3.into(), None, Position::Before(2.into())).unwrap();
            expect_true(&db, at, "tree");
        }
        let orders: HashSet<i64> =
            db.find("ordered", doc! {}).iter().map(|node| number(node, "order")).collect();
        assert!(orders.len() >= 4, "of four roots and a child: {orders:?}");
        db.check();
    });
}

/// Whichever pattern was declared first, the tree follows what the other deletes.
#[test]
fn a_tree_follows_what_another_pattern_deletes() {
    for (tree_first, on_delete) in
        [(true, "cascade"), (false, "cascade"), (true, "reparent"), (false, "reparent"), (true, "restrict")]
    {
        everywhere(|db| {
            make(&db, &["makers", "nodes"]);
            let maker = doc! {"name": "maker", "extendedReference": {
                "from": "makers", "localField": "by", "as": "maker", "fields": {"name": 1}, "onSourceDelete": "cascade",
            }};
            let mut declarations = vec![everything(doc! {"onDelete": on_delete}), maker];
            if !tree_first {
                declarations.reverse();
            }
            for declaration in declarations {
                declare(&db, "nodes", declaration).unwrap();
            }
            db.insert("makers", &[doc! {"_id": 1, "name": "a"}, doc! {"_id": 2, "name": "b"}]);
            let nodes = numbered(24..28, |id| doc! {"parent": id - 1, "by": id % 2 + 1});
            db.insert("nodes", &nodes);
            let deleted = db.delete("makers", doc! {"_id": 1});
            let left = match on_delete {
                "cascade" => 0,
                "reparent" => 2,
                _ => {
                    refused(deleted, ErrorCode::TreeNotEmpty);
                    4
                }
            };
            assert_eq!(db.count("nodes", doc! {}), left, "{on_delete} {tree_first}");
            expect_true(&db, "nodes", "tree");
            expect_true(&db, "nodes", "maker");
            db.check();
        });
    }
    let db = Db::memory();
    make(&db, &["nodes"]);
    declare(&db, "nodes", everything(doc! {"onDelete": "cascade"})).unwrap();
    let other = doc! {"name": "other", "tree": {"parent": "boss", "depth": "rank", "onDelete": "cascade"}};
    refused(declare(&db, "nodes", other).map(drop), ErrorCode::PatternCycle);
}
