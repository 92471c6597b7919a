//! Bad input: what cannot be kept is refused by name and leaves nothing behind; everything else is kept true.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Array, Document, RawValue, Value, array, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::{ErrorCode, Result};

use crate::pattern::{card, declare, make, one, wait_until_active};
use crate::pattern_lifecycle::with;
use crate::pattern_regression::expect_true;
use crate::support::{Db, everywhere, ns, number, numbered};

fn tree(more: Document) -> Document {
    let mut spec = doc! {"parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth"};
    more.iter().for_each(|(name, value)| spec.push(name, value));
    doc! {"name": "tree", "tree": spec}
}

fn specs() -> Document {
    doc! {"name": "specs", "attribute": {"paths": ["specs.*"], "as": "kv", "store": "both"}}
}

fn variants() -> Document {
    doc! {"name": "variants", "polymorphic": {
        "discriminator": "type", "onTypeChange": "unset",
        "variants": {"book": {"required": ["isbn"], "properties": {"isbn": {}}}, "dvd": {"properties": {"minutes": {}}}},
    }}
}

#[test]
fn declarations_whose_paths_collide_are_refused_and_leave_nothing() {
    let db = Db::memory();
    make(&db, &["customers", "nodes"]);
    let computed = |path: &str| {
        let mut set = Document::new();
        set.push(path, 1);
        doc! {"name": "set", "computed": {"set": set}}
    };
    let pairs = [
        (tree(doc! {}), computed("depth")),
        (tree(doc! {}), computed("path.of")),
        (tree(doc! {}), with(doc! {"name": "other"}, "tree", doc! {"parent": "boss", "depth": "depth"})),
        (tree(doc! {"order": "customer"}), card()),
        (specs(), computed("kv")),
        (specs(), with(doc! {"name": "other"}, "attribute", doc! {"paths": ["specs.*"], "as": "others"})),
        (tree(doc! {"order": "kv"}), specs()),
    ];
    for (first, second) in pairs {
        let name =
            |declaration: &Document| declaration.get("name").and_then(RawValue::as_str).unwrap().to_owned();
        declare(&db, "nodes", first.clone()).unwrap();
        wait_until_active(&db, "nodes", &name(&first));
        let before = db.engine.collection(&ns("nodes")).unwrap().indexes.len();
        let declared = declare(&db, "nodes", second.clone());
        let Err(error) = declared else { panic!("{second:?} was accepted beside {first:?}") };
        assert_eq!(error.code(), ErrorCode::PatternFieldConflict, "{first:?}, {second:?}: {error}");
        assert!(db.engine.patterns().find(&ns("nodes"), &name(&second)).is_none());
        assert_eq!(db.engine.collection(&ns("nodes")).unwrap().indexes.len(), before, "{second:?}");
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("nodes"), &name(&first)).unwrap();
        db.engine.drop_pattern(&operation, &pattern).unwrap();
    }
}

#[test]
fn names_that_contain_the_separator_and_ids_of_every_type_make_a_tree() {
    everywhere(|db| {
        make(&db, &["nodes"]);
        declare(&db, "nodes", tree(doc! {"pathSeparator": "::", "descendantCount": "below"})).unwrap();
        let ids: Vec<Value> = vec![
            "a::b".into(),
            Value::Int32(1),
            "1".into(),
            "%3A".into(),
            "".into(),
            Value::Double(2.5),
            Value::Bool(true),
            doc! {"x": 1}.into(),
            ":".into(),
        ];
        let mut parent = Value::Null;
        for id in &ids {
            db.insert("nodes", &[doc! {"_id": id.clone(), "parent": parent.clone()}]);
            parent = id.clone();
        }
        expect_true(&db, "nodes", "tree");
        let last = one(&db, "nodes", doc! {"_id": ":"});
        assert_eq!(number(&last, "depth"), ids.len() as i64 - 1);
        let path = last.get("path").and_then(RawValue::as_str).unwrap();
        assert_eq!(path.split("::").count(), ids.len() + 2, "{path}");
        db.update("nodes", doc! {"_id": "1"}, doc! {"$set": {"parent": "a::b"}}).unwrap();
        expect_true(&db, "nodes", "tree");
        assert_eq!(number(&one(&db, "nodes", doc! {"_id": ":"}), "depth"), ids.len() as i64 - 2);
        // An array is nobody's parent, and cannot be an id.
        db.insert("nodes", &[doc! {"_id": "in two", "parent": array!["1", 1]}]);
        assert_eq!(number(&one(&db, "nodes", doc! {"_id": "in two"}), "depth"), 0);
        expect_true(&db, "nodes", "tree");
    });
}

#[test]
fn documents_without_parent_or_discriminator() {
    everywhere(|db| {
        make(&db, &["nodes", "items"]);
        declare(&db, "nodes", tree(doc! {})).unwrap();
        let roots = [doc! {"_id": 1}, doc! {"_id": 2, "parent": null}, doc! {"_id": 3, "parent": 99}];
        db.insert("nodes", &roots);
        assert_eq!(db.count("nodes", doc! {"depth": 0}), 3);
        expect_true(&db, "nodes", "tree");
        declare(&db, "items", variants()).unwrap();
        for document in [doc! {"_id": 1}, doc! {"_id": 2, "type": null}, doc! {"_id": 3, "type": 5}] {
            let refused = db.try_insert("items", document).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::VariantValidationFailed, "{refused}");
        }
        assert_eq!(db.count("items", doc! {}), 0);
        expect_true(&db, "items", "variants");
    });
}

#[test]
fn an_attribute_with_very_many_values_is_found_by_each() {
    let db = Db::memory();
    make(&db, &["products"]);
    declare(&db, "products", specs()).unwrap();
    let values: Array = (0..20_000).map(Value::Int32).collect();
    db.insert("products", &[doc! {"_id": 1, "specs": {"sizes": values, "color": "red"}}]);
    db.insert("products", &numbered(2..500, |id| doc! {"specs": {"sizes": id, "color": "red"}}));
    assert_eq!(db.count("products", doc! {"specs.sizes": 19_999}), 1);
    assert_eq!(db.count("products", doc! {"specs.sizes": 77, "specs.color": "red"}), 2);
    assert_eq!(db.count("products", doc! {"kv": {"$elemMatch": {"k": "sizes", "v": 499}}}), 2);
    db.update("products", doc! {"_id": 1}, doc! {"$unset": {"specs.sizes": 1}}).unwrap();
    assert_eq!(db.count("products", doc! {"specs.sizes": 19_999}), 0);
    expect_true(&db, "products", "specs");
    db.check();
}

#[test]
fn a_tree_is_dropped_renamed_and_declared_under_its_writers() {
    drop_rename_and_declare_under_writers(&Db::memory());
}

#[test]
fn a_tree_on_disk_is_dropped_renamed_and_declared_under_its_writers() {
    drop_rename_and_declare_under_writers(&Db::small_disk());
}

/// A tree, sums of what is in it and a copy of it: dropped, renamed, made and declared under their writers.
fn drop_rename_and_declare_under_writers(db: &Db) {
    let end = Instant::now() + Duration::from_secs(2);
    let work = |work: &(dyn Fn(i32) -> Result<()> + Sync)| {
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            if let Err(error) = work(turn) {
                let expected = [
                    ErrorCode::NamespaceNotFound,
                    ErrorCode::NamespaceExists,
                    ErrorCode::PatternSourceMissing,
                    ErrorCode::PatternAlreadyExists,
                    ErrorCode::PatternNotFound,
                    ErrorCode::IndexBuildAborted,
                    ErrorCode::QueryPlanKilled,
                    ErrorCode::DuplicateKey,
                    ErrorCode::TreeNotEmpty,
                ];
                assert!(expected.contains(&error.code()), "{error}");
            }
        }
    };
    let late = with(tree(doc! {"descendantCount": "below", "order": "order"}), "maxSync", 1);
    let sums = doc! {"name": "sums", "computed": {
        "from": "nodes", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$parent", "count": {"$count": {}}, "best": {"$max": "$v"}}}],
    }};
    let copies = doc! {"name": "copies", "extendedReference": {
        "from": "nodes", "localField": "node", "as": "copy", "fields": {"v": 1}, "onSourceDelete": "null",
    }};
    thread::scope(|scope| {
        for writer in 0..2 {
            let work = &work;
            scope.spawn(move || {
                work(&|turn| {
                    // Parents have smaller ids: while no tree is declared, nobody would refuse a circle.
                    let id = (turn * 7 + writer) % 20;
                    let parent = (turn * 3) % id.max(1) - i32::from(id == 0);
                    db.upsert("nodes", doc! {"_id": id}, doc! {"$set": {"parent": parent, "v": turn}})
                        .map(drop)
                })
            });
        }
        scope.spawn(|| work(&|turn| db.delete("nodes", doc! {"_id": turn % 20}).map(drop)));
        scope.spawn(|| work(&|turn| db.try_insert("holders", doc! {"node": turn % 20})));
        scope.spawn(|| work(&|_| declare(db, "nodes", late.clone()).map(drop)));
        scope.spawn(|| work(&|_| declare(db, "sums", sums.clone()).map(drop)));
        scope.spawn(|| work(&|_| declare(db, "holders", copies.clone()).map(drop)));
        scope.spawn(|| {
            work(&|turn| {
                thread::sleep(Duration::from_millis(20));
                match turn % 4 {
                    0 => db.drop_collection("nodes"),
                    1 => db.drop_collection("sums"),
                    2 => db.drop_collection("holders"),
                    _ => db.rename("nodes", "others", true).and_then(|()| db.rename("others", "nodes", true)),
                }
            })
        });
    });
    let operation = Arc::clone(&db.engine.operations.start(1));
    crate::support::eventually("no job is left", || db.engine.jobs.lock().is_empty());
    for pattern in db.engine.patterns().iter() {
        let (name, target) = (&pattern.declaration.name, &pattern.target);
        assert_eq!(pattern.state, PatternState::Active, "{name} of {target}");
        let found = db.engine.verify_pattern(&operation, pattern, None, 3).unwrap();
        assert_eq!(found.wrong, 0, "{name} of {target}: {found:?}");
    }
    db.check();
}
