//! What becomes of those who hold copies while they are pending: their source goes, or they are frozen.

use std::time::Duration;

use kilim_bson::doc;
use kilim_engine::plan::ReadRequest;
use kilim_error::ErrorCode;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use super::{
    expect_seen, expect_true, finish, keeping, lag, name_in, read, rename, shop, slow, stored_names,
};
use crate::pipeline::run as aggregate;
use crate::support::{Db, filter, ids, number, spec};

#[test]
fn a_deleted_source_is_gone_for_its_holders_at_once() {
    for (action, expected) in [("unset", ""), ("null", "null"), ("keep", "Zoe")] {
        let db = Db::memory();
        shop(&db, slow(keeping(action)));
        rename(&db, 1, "Zoe");
        db.delete("customers", doc! {"_id": 1}).unwrap();
        let seen: Vec<String> = db.find("orders", doc! {"customerId": 1}).iter().map(name_in).collect();
        assert_eq!(seen, vec![expected; 10], "{action}");
        expect_true(&db, "orders", "card");
        // It comes back.
        db.insert("customers", &[doc! {"_id": 1, "name": "Cleo"}]);
        assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 10, "{action}");
        db.delete("customers", doc! {"_id": 1}).unwrap();
        finish(&db, "orders", "card");
        let last = if action == "keep" { "Cleo" } else { expected };
        assert_eq!(stored_names(&db)[..10], vec![last; 10], "{action}");
        expect_true(&db, "orders", "card");
        db.check();
    }
}

#[test]
fn those_who_go_with_their_source_are_not_there() {
    let db = Db::memory();
    shop(&db, slow(keeping("cascade")));
    db.build("orders", vec![spec(doc! {"n": 1}), spec(doc! {"customer.name": 1})]).unwrap();
    db.delete("customers", doc! {"_id": 1}).unwrap();
    assert_eq!(lag(&db, "orders", "card"), 1);
    assert_eq!(ids(&db.find("orders", doc! {})), [10, 11]);
    assert_eq!(db.count("orders", doc! {}), 2);
    assert_eq!(db.count("orders", doc! {"n": {"$gte": 0}}), 2);
    assert_eq!(ids(&db.find("orders", doc! {"n": {"$in": [3, 11]}})), [11]);
    assert!(db.find("orders", doc! {"_id": 3}).is_empty());
    assert_eq!(db.update("orders", doc! {"_id": 3}, doc! {"$set": {"x": 1}}).unwrap().matched, 0);
    assert_eq!(db.delete("orders", doc! {"n": 3}).unwrap(), 0);
    let mut covered = ReadRequest::new(filter(doc! {"n": {"$gte": 0}}));
    covered.projection = Some(Projection::parse(doc! {"_id": 0, "n": 1}.as_raw()).unwrap());
    (covered.skip, covered.sort) = (1, Some(Sort::parse(doc! {"n": 1}.as_raw()).unwrap()));
    assert_eq!(read(&db, covered), [doc! {"n": 11}]);
    let counted = aggregate(&db, "orders", vec![doc! {"$count": "n"}]);
    assert_eq!(number(&counted[0], "n"), 2);
    // Whoever begins to refer to it is not one of them: he waits until they are gone.
    let insert = |id: i32| {
        db.run_limited(Some(Duration::from_millis(200)), |unit| {
            crate::support::insert(unit, "orders", &[doc! {"_id": id, "customerId": 1}], true)
        })
    };
    assert_eq!(insert(30).unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    finish(&db, "orders", "card");
    insert(31).unwrap();
    assert_eq!(ids(&db.find("orders", doc! {})), [10, 11, 31]);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_source_with_many_holders_cannot_go_where_that_is_refused() {
    let db = Db::memory();
    shop(&db, slow(keeping("restrict")));
    rename(&db, 1, "Zoe");
    let error = db.delete("customers", doc! {"_id": 1}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternRestrict);
    expect_seen(&db, "Zoe", "Ann");
}

#[test]
fn what_is_frozen_while_it_is_pending_is_frozen_as_it_is_seen() {
    let db = Db::memory();
    let pattern = doc! {"name": "card", "maxSync": 3, "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "while": {"done": {"$ne": true}},
    }};
    shop(&db, slow(pattern));
    db.update_many("orders", doc! {"n": {"$lt": 2}}, doc! {"$set": {"done": true}}).unwrap();
    rename(&db, 1, "Zoe");
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 2);
    db.update_many("orders", doc! {"n": {"$gte": 8}}, doc! {"$set": {"done": true}}).unwrap();
    rename(&db, 1, "Cleo");
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 2);
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 2);
    assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 6);
    expect_true(&db, "orders", "card");
}
