//! `$out` onto a collection that patterns concern: one commit, or refused with everything as it was.

use kilim_bson::{Document, Value, doc};
use kilim_engine::ddl::out;
use kilim_error::{ErrorCode, Result};
use kilim_query::stage;

use crate::pattern::{card, declare, make, wait_until_active};
use crate::pattern_lifecycle::{shop, verify, with};
use crate::pipeline::open;
use crate::support::{Db, numbered};

/// Runs a pipeline and puts what it gives in the place of a collection.
fn replace(db: &Db, target: &str, source: &str, pipeline: Vec<Document>) -> Result<()> {
    let mut step = open(db, source, pipeline, true)?;
    let stage = stage::Out { database: "test".into(), collection: target.into(), time_series: None };
    db.run(|unit| out(unit, &stage, &mut *step))
}

/// Nothing in the making is left, and nothing is wrong.
#[track_caller]
fn expect_whole(db: &Db, target: &str, pattern: &str) {
    let names: Vec<String> = db.engine.catalog().iter().map(|it| it.namespace.collection.clone()).collect();
    assert!(names.iter().all(|name| !name.starts_with("tmp.agg_out.")), "{names:?}");
    assert_eq!(verify(db, target, pattern).wrong, 0);
    db.check();
}

#[test]
fn more_than_one_commit_can_hold_is_refused() {
    // On disk, so that only the commit itself lies in memory.
    let db = Db::disk();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    wait_until_active(&db, "orders", "card");
    let customers = db.find("customers", doc! {});
    let ids: Vec<Value> = (0..20).map(Value::Int32).collect();
    db.insert("large", &[doc! {"_id": 1, "ids": ids, "text": "x".repeat(14 << 20)}]);
    let pipeline = vec![doc! {"$unwind": "$ids"}, doc! {"$project": {"_id": "$ids", "text": 1}}];
    let error = replace(&db, "customers", "large", pipeline).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TransactionTooLarge);
    assert_eq!(db.find("customers", doc! {}), customers);
    expect_whole(&db, "orders", "card");
}

#[test]
fn what_refers_to_those_that_the_same_commit_leaves_to_go_is_refused() {
    let db = Db::memory();
    make(&db, &["people"]);
    let boss = doc! {"name": "boss", "maxSync": 2, "extendedReference": {
        "from": "people", "localField": "bossId", "as": "boss", "fields": {"name": 1}, "onSourceDelete": "cascade",
    }};
    declare(&db, "people", boss).unwrap();
    db.insert("people", &[doc! {"_id": 0, "name": "Ann"}]);
    db.insert("people", &numbered(1..10, |_| doc! {"bossId": 0}));
    let people = db.find("people", doc! {});
    // Without Ann those who refer to her go, more of them than a commit takes: then nobody new can refer to her.
    db.insert("others", &[doc! {"_id": 20, "bossId": 0}]);
    let error = replace(&db, "people", "others", Vec::new()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CommandFailed);
    assert!(error.to_string().contains("cannot be replaced in one commit"), "{error}");
    assert_eq!(db.find("people", doc! {}), people);
    expect_whole(&db, "people", "boss");
    // With her in the new ones as well, they go as they came.
    db.insert("others", &[doc! {"_id": 0, "name": "Zoe"}]);
    replace(&db, "people", "others", Vec::new()).unwrap();
    assert_eq!(db.count("people", doc! {}), 2);
    assert_eq!(db.count("people", doc! {"_id": 20, "boss.name": "Zoe"}), 1);
    expect_whole(&db, "people", "boss");
}

#[test]
fn what_there_is_no_room_to_leave_is_written_with_the_commit() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", with(card(), "maxSync", 0)).unwrap();
    db.insert("customers", &numbered(0..70, |id| doc! {"name": format!("c{id}")}));
    db.insert("orders", &numbered(0..70, |id| doc! {"customerId": id}));
    let renamed = vec![doc! {"$set": {"name": {"$concat": ["new ", "$name"]}}}];
    replace(&db, "customers", "customers", renamed).unwrap();
    for id in [0, 69] {
        assert_eq!(db.count("orders", doc! {"_id": id, "customer.name": format!("new c{id}")}), 1);
    }
    expect_whole(&db, "orders", "card");
}

/// A node goes before its children where these go too, or come to be below another.
#[test]
fn a_tree_that_restricts_is_replaced_whatever_the_order() {
    let db = Db::memory();
    make(&db, &["nodes", "new"]);
    let tree = doc! {"parent": "parent", "ancestors": "ancestors", "nestedSets": ["lft", "rgt"], "childCount": "children"};
    declare(&db, "nodes", doc! {"name": "tree", "tree": tree}).unwrap();
    db.insert("nodes", &numbered(0..6, |id| doc! {"parent": id - 1}));
    db.insert("new", &[doc! {"_id": 3, "parent": 9}, doc! {"_id": 9}, doc! {"_id": 4, "parent": 3}]);
    replace(&db, "nodes", "new", vec![]).unwrap();
    let mut ids = crate::support::ids(&db.find("nodes", doc! {}));
    ids.sort_unstable();
    assert_eq!(ids, [3, 4, 9]);
    assert_eq!(db.count("nodes", doc! {"ancestors": [9, 3]}), 1);
    expect_whole(&db, "nodes", "tree");
    // One that a new node names as its parent does not go.
    db.delete("new", doc! {"_id": 9}).unwrap();
    assert_eq!(replace(&db, "nodes", "new", vec![]).unwrap_err().code(), ErrorCode::TreeNotEmpty);
    assert_eq!(db.count("nodes", doc! {}), 3);
    expect_whole(&db, "nodes", "tree");
}
