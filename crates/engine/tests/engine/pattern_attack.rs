//! What an attack on the first kinds found, each by its name.

use std::time::{SystemTime, UNIX_EPOCH};

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::index::IndexSpec;
use kilim_engine::write::{self, FindAndModifyRequest, Modification, UpdateRequest};
use kilim_error::ErrorCode;
use kilim_query::update::Update;

use crate::pattern::{card, declare, make, one, recent, stats, wait_until_active};
use crate::pattern_regression::{expect_true, verify};
use crate::support::{Db, everywhere, filter, ids, ns, number, numbered, spec, unique};

fn copied(from: &str, more: Document) -> Document {
    let mut reference = doc! {"from": from, "localField": "ref", "fields": {"name": 1}};
    more.iter().for_each(|(name, value)| reference.push(name, value));
    doc! {"name": "copy", "extendedReference": reference}
}

#[test]
fn a_restricted_source_does_not_keep_others_from_expiring() {
    everywhere(|db| {
        make(&db, &["a", "holders", "z"]);
        let expired = Value::DateTime(
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 - 100_000,
        );
        for name in ["a", "z"] {
            let index = IndexSpec { expire_after_seconds: Some(1), ..spec(doc! {"at": 1}) };
            db.build(name, vec![index]).unwrap();
        }
        declare(&db, "holders", copied("a", doc! {"as": "copy", "onSourceDelete": "restrict"})).unwrap();
        db.insert("a", &numbered(0..5, |_| doc! {"at": expired.clone(), "name": "n"}));
        db.insert("z", &numbered(0..3, |_| doc! {"at": expired.clone()}));
        db.insert("holders", &[doc! {"_id": 1, "ref": 2}]);
        let operation = db.engine.operations.start(0);
        assert_eq!(db.engine.expire(&operation).unwrap(), 7);
        assert_eq!(ids(&db.find("a", doc! {})), [2]);
        assert_eq!(db.count("z", doc! {}), 0);
        // It goes as soon as nobody refers to it.
        db.delete("holders", doc! {}).unwrap();
        assert_eq!(db.engine.expire(&operation).unwrap(), 1);
        db.check();
    });
}

#[test]
fn an_upsert_by_find_and_modify_returns_what_was_written() {
    let db = Db::memory();
    make(&db, &["customers", "orders", "products", "reviews"]);
    declare(&db, "orders", card()).unwrap();
    declare(&db, "products", stats()).unwrap();
    declare(&db, "products", recent()).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    let upsert = |collection: &str, id: i32, set: Document| {
        let update = Update::parse(RawValue::Document(doc! {"$set": set}.as_raw()), None, false).unwrap();
        let target = UpdateRequest {
            filter: filter(doc! {"_id": id}),
            update: &update,
            multi: false,
            upsert: true,
            hint: None,
            collation: None,
            now_ms: 0,
            statement: 0,
            projection: None,
        };
        let modification = Modification::Update { new: true };
        let request =
            FindAndModifyRequest { target, modification, sort: None, tells_key: false, tells_score: false };
        db.run(|unit| write::find_and_modify(unit, &ns(collection), &request)).unwrap().value.unwrap()
    };
    let order = upsert("orders", 5, doc! {"customerId": 1});
    assert_eq!(order, doc! {"_id": 5, "customerId": 1, "customer": {"name": "Ann"}});
    let product = upsert("products", 7, doc! {"title": "t"});
    assert_eq!(product, one(&db, "products", doc! {}));
    assert_eq!(number(&product, "count"), 0);
}

#[test]
fn a_source_with_several_keys_is_followed_by_each() {
    everywhere(|db| {
        make(&db, &["sources", "holders"]);
        db.build("sources", vec![unique(doc! {"codes": 1})]).unwrap();
        let pattern =
            copied("sources", doc! {"as": "copy", "foreignField": "codes", "onSourceDelete": "null"});
        declare(&db, "holders", pattern).unwrap();
        db.insert("holders", &[doc! {"_id": 0, "ref": "late"}]);
        db.insert("sources", &[doc! {"_id": 1, "name": "n1", "codes": ["a", "b"]}]);
        db.insert("holders", &[doc! {"_id": 1, "ref": "a"}, doc! {"_id": 2, "ref": ["b", "c"]}]);
        let names = |name: &str| ids(&db.find("holders", doc! {"copy.name": name}));
        assert_eq!(names("n1"), [1, 2]);
        db.update("sources", doc! {"_id": 1}, doc! {"$set": {"name": "n2"}}).unwrap();
        assert_eq!(names("n2"), [1, 2]);
        // A key that comes, and one that goes.
        db.update("sources", doc! {"_id": 1}, doc! {"$set": {"codes": ["late", "b"]}}).unwrap();
        assert_eq!(names("n2"), [0, 2]);
        assert!(matches!(one(&db, "holders", doc! {"_id": 1}).get("copy"), Some(RawValue::Null)));
        db.insert("sources", &[doc! {"_id": 2, "name": "n3", "codes": "a"}]);
        assert_eq!(names("n3"), [1]);
        db.delete("sources", doc! {"_id": 1}).unwrap();
        assert!(names("n2").is_empty());
        expect_true(&db, "holders", "copy");
    });
}

#[test]
fn an_empty_frozen_copy_is_no_drift() {
    everywhere(|db| {
        for (place, shape) in
            [(doc! {"as": null}, "flat"), (doc! {"as": "in", "localField": "in.ref"}, "inside")]
        {
            let holders = format!("holders_{shape}");
            make(&db, &[&holders]);
            let mut spec = doc! {"from": "sources", "fields": {"name": 1}, "while": {"open": true}};
            place.iter().for_each(|(name, value)| spec.push(name, value));
            if spec.get("localField").is_none() {
                spec.push("localField", "ref");
            }
            if db.engine.collection(&ns("sources")).is_none() {
                make(&db, &["sources"]);
                db.insert("sources", &[doc! {"_id": 1}]);
            }
            db.update("sources", doc! {"_id": 1}, doc! {"$unset": {"name": 1}}).unwrap();
            declare(&db, &holders, doc! {"name": "copy", "extendedReference": spec}).unwrap();
            let holder = if shape == "flat" {
                doc! {"_id": 1, "ref": 1}
            } else {
                doc! {"_id": 1, "in": {"ref": 1}}
            };
            db.insert(&holders, &[holder]);
            let frozen = one(&db, &holders, doc! {});
            db.update("sources", doc! {"_id": 1}, doc! {"$set": {"name": "later"}}).unwrap();
            assert_eq!(verify(&db, &holders, "copy").wrong, 0, "{shape}");
            let operation = std::sync::Arc::clone(&db.engine.operations.start(1));
            let pattern = db.engine.pattern(&ns(&holders), "copy").unwrap();
            db.engine.repair_pattern(&operation, &pattern, None, 10).unwrap();
            assert_eq!(one(&db, &holders, doc! {}), frozen, "{shape}");
        }
    });
}

#[test]
fn a_pause_leaves_an_empty_frozen_copy_and_fills_what_came_meanwhile() {
    everywhere(|mut db| {
        make(&db, &["sources", "holders"]);
        let spec = doc! {"as": null, "while": {"open": true}};
        declare(&db, "holders", copied("sources", spec)).unwrap();
        db.insert("sources", &[doc! {"_id": 1}]);
        // One is frozen without a name, one follows.
        db.insert("holders", &[doc! {"_id": 1, "ref": 1}, doc! {"_id": 2, "ref": 1, "open": true}]);
        let operation = std::sync::Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("holders"), "copy").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        db.update("sources", doc! {"_id": 1}, doc! {"$set": {"name": "later"}}).unwrap();
        db.insert("holders", &[doc! {"_id": 3, "ref": 1}]);
        if db.is_durable() {
            db.reopen();
        }
        let operation = std::sync::Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("holders"), "copy").unwrap();
        let pattern = db.engine.restart_pattern(&operation, &pattern).unwrap();
        db.engine.begin_filling(&pattern);
        wait_until_active(&db, "holders", "copy");
        let mut named = ids(&db.find("holders", doc! {"name": "later"}));
        named.sort_unstable();
        assert_eq!(named, [2, 3]);
        expect_true(&db, "holders", "copy");
    });
}

#[test]
fn what_a_deleted_source_left_is_kept_when_the_copy_thaws_or_is_replaced() {
    everywhere(|db| {
        make(&db, &["sources", "holders"]);
        declare(&db, "holders", copied("sources", doc! {"as": "copy", "while": {"open": true}})).unwrap();
        db.insert("sources", &[doc! {"_id": 1, "name": "n1"}]);
        db.insert(
            "holders",
            &[doc! {"_id": 1, "ref": 1, "open": false}, doc! {"_id": 2, "ref": 1, "open": true}],
        );
        db.delete("sources", doc! {"_id": 1}).unwrap();
        db.update("holders", doc! {"_id": 1}, doc! {"$set": {"open": true}}).unwrap();
        // As an ODM does, from what it read before it knew of the copy.
        db.update("holders", doc! {"_id": 2}, doc! {"_id": 2, "ref": 1, "open": true, "x": 1}).unwrap();
        assert_eq!(db.count("holders", doc! {"copy.name": "n1"}), 2);
        db.update("holders", doc! {"_id": 2}, doc! {"$set": {"ref": 9}}).unwrap();
        assert_eq!(db.count("holders", doc! {"copy": null}), 1);
        expect_true(&db, "holders", "copy");
    });
}

#[test]
fn a_condition_that_depends_on_chance_or_time_is_refused() {
    let db = Db::memory();
    make(&db, &["sources", "holders"]);
    for condition in [
        doc! {"$expr": {"$lt": [{"$rand": {}}, 0.5]}},
        doc! {"$sampleRate": 0.5},
        doc! {"$expr": {"$gt": ["$at", "$$NOW"]}},
    ] {
        let refused = declare(&db, "holders", copied("sources", doc! {"as": "copy", "while": condition}));
        assert_eq!(refused.unwrap_err().code(), ErrorCode::PatternNotDeterministic);
    }
}

#[test]
fn a_subset_shows_fields_of_nested_documents() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    let subset = |fields: Document| {
        doc! {"name": "recent", "subset": {
            "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"_id": -1}, "limit": 1,
            "fields": fields,
        }}
    };
    let both = declare(&db, "products", subset(doc! {"a": 1, "a.b": 1})).unwrap_err();
    assert_eq!(both.code(), ErrorCode::PatternFieldConflict);
    declare(&db, "products", subset(doc! {"a.b": 1, "a.c": "$x", "d": 1})).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    db.insert("reviews", &[doc! {"_id": 5, "product": 1, "a": {"b": 2, "z": 9}, "x": 3, "d": 4}]);
    let shown = array![doc! {"_id": 5, "a": {"b": 2, "c": 3}, "d": 4}];
    assert_eq!(one(&db, "products", doc! {}), doc! {"_id": 1, "recent": shown});
    expect_true(&db, "products", "recent");
}
