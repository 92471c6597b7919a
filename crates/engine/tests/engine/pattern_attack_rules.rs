//! Rules of the contract that an attack found broken: what a pattern may do to writes, which declarations are refused,
//! and what may be taken away from a pattern.

use std::sync::Arc;

use kilim_bson::{Array, Document, RawValue, Value, array, doc};
use kilim_engine::patterns::PatternState;
use kilim_engine::upkeep::{Part, Verification};
use kilim_error::ErrorCode;

use crate::pattern::{card, declare, make, one, recent, stats, wait_until_active};
use crate::pattern_lifecycle::{pattern, state, with};
use crate::pattern_regression::{expect_true, verify};
use crate::support::{Db, eventually, everywhere, ids, insert, ns, number, numbered, spec};

fn numbers(range: std::ops::Range<i32>) -> Array {
    range.map(Value::Int32).collect()
}

fn sampled(db: &Db, target: &str, name: &str, share: f64) -> Verification {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let part = Part { filter: None, sample: Some(share) };
    db.engine.verify_pattern(&operation, &pattern(db, target, name), part, 10).unwrap()
}

fn pause(db: &Db, target: &str, name: &str) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.pause_pattern(&operation, &pattern(db, target, name)).unwrap();
}

fn resume(db: &Db, target: &str, name: &str) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let restarted = db.engine.restart_pattern(&operation, &pattern(db, target, name)).unwrap();
    db.engine.begin_filling(&restarted);
    wait_until_active(db, target, name);
}

/// The names of the indexes that patterns made.
fn made_for_patterns(db: &Db, collection: &str) -> Vec<String> {
    let collection = db.engine.collection(&ns(collection)).unwrap();
    let names = collection.indexes.iter().map(|index| index.spec.name.clone());
    names.filter(|name| name.starts_with("kilim_")).collect()
}

#[test]
fn an_index_of_a_pattern_refuses_no_document() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        declare(&db, "products", recent()).unwrap();
        db.insert("products", &[doc! {"_id": 1}]);
        // Several arrays beside each other, few and many elements.
        db.insert("reviews", &[doc! {"_id": 1, "product": [1, 2], "rating": [3, 4], "at": [5, 6]}]);
        let many =
            doc! {"_id": 2, "product": numbers(0..300), "rating": numbers(0..300), "at": numbers(0..9)};
        db.insert("reviews", &[many, doc! {"_id": 3, "product": 1, "rating": 7}]);
        db.update("reviews", doc! {"_id": 3}, doc! {"$set": {"rating": array![8, 9]}}).unwrap();
        db.update("reviews", doc! {"_id": 3}, doc! {"$set": {"rating": 5, "at": array![]}}).unwrap();
        // Found by the index all the same, by one part and by two.
        for index in made_for_patterns(&db, "reviews") {
            for (asked, found) in [
                (doc! {"product": 2}, vec![1, 2]),
                (doc! {"product": 299}, vec![2]),
                (doc! {"product": 1, "rating": 4}, vec![1, 2]),
                (doc! {"product": 2, "rating": 299, "at": 8}, vec![2]),
                (doc! {"product": 1, "rating": 5}, vec![2, 3]),
            ] {
                let mut answer = ids(&db.find_by("reviews", asked.clone(), &index));
                answer.sort_unstable();
                assert_eq!(answer, found, "{asked:?} {index}");
            }
        }
        expect_true(&db, "products", "stats");
        expect_true(&db, "products", "recent");
        db.delete("reviews", doc! {"_id": 2}).unwrap();
        db.delete("reviews", doc! {"_id": 3}).unwrap();
        assert_eq!(number(&one(&db, "products", doc! {}), "count"), 0);
        expect_true(&db, "products", "stats");
        db.check();
    });
}

#[test]
fn documents_that_two_arrays_make_many_are_there_before_a_pattern_is() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    db.insert("reviews", &[doc! {"_id": 1, "product": numbers(0..200), "rating": numbers(0..200)}]);
    db.insert("products", &[doc! {"_id": 1}]);
    declare(&db, "products", stats()).unwrap();
    wait_until_active(&db, "products", "stats");
    let index = made_for_patterns(&db, "reviews").remove(0);
    assert_eq!(ids(&db.find_by("reviews", doc! {"product": 5, "rating": 199}, &index)), [1]);
    db.check();
}

fn reference(local: &str, as_path: Option<&str>) -> Document {
    let as_path = as_path.map_or(Value::Null, Value::from);
    doc! {"name": "copy", "extendedReference": {
        "from": "sources", "localField": local, "as": as_path, "fields": {"name": 1}, "onSourceDelete": "null",
    }}
}

#[test]
fn references_in_an_array_have_their_copies_wherever_these_stand() {
    everywhere(|db| {
        make(&db, &["sources", "beside", "flat", "inside"]);
        db.insert("sources", &numbered(1..4, |id| doc! {"name": format!("n{id}")}));
        declare(&db, "beside", reference("items.ref", Some("copies"))).unwrap();
        declare(&db, "flat", reference("refs", None)).unwrap();
        declare(&db, "inside", reference("in.refs", Some("in"))).unwrap();
        let items = array![doc! {"ref": 1}, doc! {"x": 1}, doc! {"ref": 9}, doc! {"ref": array![2, 3]}];
        db.insert("beside", &[doc! {"_id": 1, "items": items.clone()}, doc! {"_id": 2, "items": {"ref": 2}}]);
        db.insert("flat", &[doc! {"_id": 1, "refs": [2, 1, 9]}, doc! {"_id": 2, "refs": 1}]);
        db.insert("inside", &[doc! {"_id": 1, "in": {"refs": [1, 2], "mine": 1}}]);
        let copy = |name: &str| doc! {"name": name};
        let copies = array![copy("n1"), Value::Null, copy("n2"), copy("n3")];
        assert_eq!(one(&db, "beside", doc! {"_id": 1}), doc! {"_id": 1, "items": items, "copies": copies});
        let document = doc! {"_id": 2, "items": {"ref": 2}, "copies": copy("n2")};
        assert_eq!(one(&db, "beside", doc! {"_id": 2}), document);
        let flat = |names: Array| doc! {"_id": 1, "refs": [2, 1, 9], "name": names};
        assert_eq!(one(&db, "flat", doc! {"_id": 1}), flat(array!["n2", "n1", Value::Null]));
        assert_eq!(
            one(&db, "inside", doc! {}),
            doc! {"_id": 1, "in": {"refs": [1, 2], "name": ["n1", "n2"]}}
        );
        // Sources change, go and come.
        db.update("sources", doc! {"_id": 1}, doc! {"$set": {"name": "new"}}).unwrap();
        db.delete("sources", doc! {"_id": 2}).unwrap();
        db.insert("sources", &[doc! {"_id": 9, "name": "late"}]);
        let copies = array![copy("new"), copy("late"), Value::Null, copy("n3")];
        let shown = one(&db, "beside", doc! {"_id": 1}).get("copies").map(RawValue::to_value);
        assert_eq!(format!("{shown:?}"), format!("{:?}", Some(Value::Array(copies))));
        assert_eq!(one(&db, "flat", doc! {"_id": 1}), flat(array![Value::Null, "new", "late"]));
        assert_eq!(number(&one(&db, "flat", doc! {"_id": 2}), "refs"), 1);
        db.update("flat", doc! {"_id": 2}, doc! {"$set": {"refs": array![]}}).unwrap();
        assert_eq!(one(&db, "flat", doc! {"_id": 2}), doc! {"_id": 2, "refs": [], "name": []});
        for target in ["beside", "flat", "inside"] {
            expect_true(&db, target, "copy");
        }
        db.check();
    });
    let db = Db::memory();
    make(&db, &["sources", "holders"]);
    let refused = declare(&db, "holders", reference("items.0.ref", Some("copy"))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BadValue);
    assert!(refused.to_string().contains("'items.0.ref'"), "{refused}");
}

fn rollup(name: &str, from: &str, key: &str, fields: Document) -> Document {
    let mut group = doc! {"_id": key};
    fields.iter().for_each(|(name, value)| group.push(name, value));
    doc! {"name": name, "computed": {"from": from, "whenNotMatched": "insert", "pipeline": [{"$group": group}]}}
}

#[test]
fn circles_through_the_documents_of_rollups_are_refused() {
    let db = Db::memory();
    make(&db, &["a", "b", "c"]);
    let count = || doc! {"n": {"$count": {}}};
    let code = |target: &str, pattern: Document| declare(&db, target, pattern).unwrap_err().code();
    assert_eq!(code("a", rollup("own", "a", "$x", count())), ErrorCode::PatternCycle);
    declare(&db, "b", rollup("ab", "a", "$x", count())).unwrap();
    declare(&db, "c", rollup("bc", "b", "$_id", count())).unwrap();
    // Each reads nothing but which documents there are.
    let error = declare(&db, "a", rollup("ca", "c", "$_id", count())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternCycle);
    assert!(error.to_string().contains("a.ca reads '_id' of c.bc"), "{error}");
    // Two that make the documents of one collection would remove each other's.
    assert_eq!(
        code("b", rollup("other", "c", "$x", doc! {"m": {"$count": {}}})),
        ErrorCode::PatternFieldConflict
    );
    // Two collections that delete each other's documents.
    let cascade = |from: &str| {
        doc! {"name": "cascade", "extendedReference": {
            "from": from, "localField": "ref", "as": "copy", "fields": {"name": 1}, "onSourceDelete": "cascade",
        }}
    };
    make(&db, &["left", "right"]);
    declare(&db, "left", cascade("right")).unwrap();
    assert_eq!(code("right", cascade("left")), ErrorCode::PatternCycle);
}

#[test]
fn a_rollup_over_the_ids_of_another_follows_it() {
    everywhere(|db| {
        make(&db, &["reviews", "tags", "kinds", "labels"]);
        db.insert("labels", &[doc! {"_id": 1, "name": "one"}]);
        // Not in the order of the chain.
        declare(&db, "kinds", rollup("byKind", "tags", "$_id.kind", doc! {"tags": {"$count": {}}})).unwrap();
        let copy = doc! {"name": "label", "extendedReference": {
            "from": "labels", "localField": "_id.kind", "as": "label", "fields": {"name": 1},
        }};
        declare(&db, "tags", copy).unwrap();
        declare(&db, "tags", rollup("byTag", "reviews", "$tag", doc! {"sum": {"$sum": "$n"}})).unwrap();
        let review = |kind: i32, tag: i32| doc! {"tag": {"kind": kind, "tag": tag}, "n": 0};
        db.insert("reviews", &numbered(0..6, |id| review(id % 2, id % 4)));
        assert_eq!(db.count("tags", doc! {}), 4);
        assert_eq!(db.count("tags", doc! {"label.name": "one"}), 2);
        assert_eq!(number(&one(&db, "kinds", doc! {"_id": 1}), "tags"), 2);
        db.delete("reviews", doc! {"tag.tag": 3}).unwrap();
        assert_eq!(number(&one(&db, "kinds", doc! {"_id": 1}), "tags"), 1);
        for (target, name) in [("tags", "byTag"), ("tags", "label"), ("kinds", "byKind")] {
            expect_true(&db, target, name);
        }
        // A group that shows 0 anyway is emptied while nobody looks.
        pause(&db, "tags", "byTag");
        db.delete("reviews", doc! {}).unwrap();
        assert!(db.count("tags", doc! {}) > 0);
        resume(&db, "tags", "byTag");
        assert_eq!(db.count("tags", doc! {}), 0);
        assert_eq!(db.count("kinds", doc! {}), 0);
        db.check();
    });
}

#[test]
fn what_a_cascade_deletes_is_counted_by_nobody() {
    let db = Db::memory();
    make(&db, &["customers", "orders", "products"]);
    let count = doc! {"name": "orders", "computed": {"from": "orders", "pipeline": [
        {"$group": {"_id": "$product", "orders": {"$count": {}}}},
    ]}};
    declare(&db, "products", count).unwrap();
    let card = doc! {"name": "card", "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "onSourceDelete": "cascade",
    }};
    declare(&db, "orders", card).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("products", &[doc! {"_id": 1}]);
    db.insert("orders", &numbered(0..4, |_| doc! {"customerId": 1, "product": 1}));
    assert_eq!(number(&one(&db, "products", doc! {}), "orders"), 4);
    db.delete("customers", doc! {"_id": 1}).unwrap();
    assert_eq!(number(&one(&db, "products", doc! {}), "orders"), 0);
}

#[test]
fn an_index_that_serves_a_pattern_stays() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    db.build("orders", vec![spec(doc! {"customerId": 1, "at": 1})]).unwrap();
    declare(&db, "orders", card()).unwrap();
    assert!(made_for_patterns(&db, "orders").is_empty(), "the user's serves");
    let hide = |name: &str| {
        let collection = db.engine.collection(&ns("orders")).unwrap();
        db.engine.check_may_hide(&collection, collection.index_named(name).unwrap().id)
    };
    let free = |name: &str| {
        let collection = db.engine.collection(&ns("orders")).unwrap();
        db.engine.check_indexes_free(&collection, &[collection.index_named(name).unwrap().id])
    };
    for refused in [free("customerId_1_at_1"), hide("customerId_1_at_1")] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::IndexOwnedByPattern);
        assert!(refused.to_string().contains("'customerId_1_at_1'"), "{refused}");
    }
    // Another that serves as well.
    db.build("orders", vec![spec(doc! {"customerId": 1, "z": 1})]).unwrap();
    hide("customerId_1_at_1").unwrap();
    free("customerId_1_at_1").unwrap();
    db.drop_index("orders", "customerId_1_at_1").unwrap();
    assert!(free("customerId_1_z_1").is_err());
}

#[test]
fn a_pattern_without_indexes_of_its_own_is_kept_true() {
    let db = Db::memory();
    make(&db, &["customers", "orders", "products", "reviews"]);
    declare(&db, "orders", with(card(), "createIndexes", false)).unwrap();
    declare(&db, "products", with(stats(), "createIndexes", false)).unwrap();
    assert!(made_for_patterns(&db, "orders").is_empty() && made_for_patterns(&db, "reviews").is_empty());
    db.build("orders", vec![spec(doc! {"customerId": 1})]).unwrap();
    let orders = db.engine.collection(&ns("orders")).unwrap();
    db.engine.check_indexes_free(&orders, &[orders.index_named("customerId_1").unwrap().id]).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..5, |_| doc! {"customerId": 1}));
    db.insert("products", &[doc! {"_id": 1}]);
    db.insert("reviews", &numbered(0..5, |id| doc! {"product": 1, "rating": id}));
    db.drop_index("orders", "customerId_1").unwrap();
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Bea"}}).unwrap();
    db.delete("reviews", doc! {"_id": 4}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Bea"}), 5);
    assert_eq!(number(&one(&db, "products", doc! {}), "best"), 3);
    expect_true(&db, "orders", "card");
    expect_true(&db, "products", "stats");
}

#[test]
fn a_validator_is_asked_with_and_without_what_is_maintained() {
    everywhere(|db| {
        make(&db, &["customers"]);
        let valid = doc! {"$jsonSchema": {
            "required": ["customerId"], "properties": {"customer": {"properties": {"name": {"maxLength": 3}}}},
        }};
        db.engine.create_collection(&ns("orders"), doc! {"validator": valid}).unwrap();
        db.engine
            .create_collection(&ns("strict"), doc! {"validator": {"customer.name": {"$type": "string"}}})
            .unwrap();
        declare(&db, "orders", card()).unwrap();
        declare(&db, "strict", card()).unwrap();
        db.insert("customers", &[doc! {"_id": 1, "name": "Annabel"}]);
        // Valid without the copy.
        db.insert("orders", &[doc! {"_id": 1, "customerId": 1}]);
        db.update("orders", doc! {"_id": 1}, doc! {"$set": {"x": 1}}).unwrap();
        // Valid with it.
        db.insert("strict", &[doc! {"_id": 1, "customerId": 1}]);
        // Neither.
        for (collection, document) in
            [("orders", doc! {"_id": 2}), ("strict", doc! {"_id": 2, "customerId": 9})]
        {
            let error = db.try_insert(collection, document).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DocumentValidationFailure, "{collection}");
        }
        // Who bypasses the validator does not bypass maintenance.
        db.run(|unit| {
            unit.bypass_validation = true;
            insert(unit, "orders", &[doc! {"_id": 3, "customer": {"name": "Eve"}}], true).map(drop)?;
            insert(unit, "strict", &[doc! {"_id": 3, "customerId": 1, "customer": 5}], true).map(drop)
        })
        .unwrap();
        assert_eq!(one(&db, "orders", doc! {"_id": 3}), doc! {"_id": 3});
        assert_eq!(db.count("strict", doc! {"customer.name": "Annabel"}), 2);
        db.delete("orders", doc! {"_id": 3}).unwrap();
        expect_true(&db, "orders", "card");
        expect_true(&db, "strict", "card");
    });
}

#[test]
fn indexes_made_for_patterns_go_with_the_last_that_wants_them() {
    everywhere(|db| {
        make(&db, &["customers", "orders", "products", "reviews", "brands"]);
        declare(&db, "orders", card()).unwrap();
        declare(&db, "products", stats()).unwrap();
        declare(&db, "brands", with(stats(), "name", "other")).unwrap();
        db.drop_collection("products").unwrap();
        assert_eq!(made_for_patterns(&db, "reviews").len(), 1, "the other pattern wants it");
        db.drop_collection("brands").unwrap();
        assert!(made_for_patterns(&db, "reviews").is_empty());
        assert_eq!(made_for_patterns(&db, "orders").len(), 1);
        db.drop_collection("kilim.patterns").unwrap();
        assert!(made_for_patterns(&db, "orders").is_empty());
        db.check();
    });
}

#[test]
fn a_sample_is_true_while_a_fan_out_is_pending() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    let slow = doc! {"batch": 1, "throttleMs": 60_000};
    let options = with(with(card(), "maxSync", 3), "backfill", slow);
    declare(&db, "orders", with(options, "scrub", doc! {"everyHours": 1, "sample": 0.1})).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..100, |_| doc! {"customerId": 1}));
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Bea"}}).unwrap();
    let pending = || db.engine.pending_of(&pattern(&db, "orders", "card")).unwrap();
    assert_eq!(pending().count, 1);
    for share in [0.05, 0.1, 0.15, 0.5] {
        let found = sampled(&db, "orders", "card", share);
        assert_eq!(found.wrong, 0, "{share}: {found:?}");
    }
    let operation = Arc::clone(&db.engine.operations.start(1));
    let later = db.engine.now_millis() + 3_600_001;
    assert_eq!(db.engine.scrub(&operation, later).unwrap(), 0);
    assert_eq!(state(&db, "orders", "card"), PatternState::Active);
    // The lag grows for as long as the source waits, and is gone with it.
    eventually("the lag grows", || pending().age_millis > 5);
    db.engine.finish_pending(&operation, &pattern(&db, "orders", "card")).unwrap();
    assert_eq!((pending().count, pending().age_millis), (0, 0));
    expect_true(&db, "orders", "card");
}

#[test]
fn a_group_beyond_the_largest_document_keeps_what_its_parent_has() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    let all = doc! {"name": "all", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$product", "all": {"$push": "$text"}, "count": {"$count": {}}}},
    ]}};
    declare(&db, "products", all).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    let text = "x".repeat(5 * 1024 * 1024);
    db.insert("reviews", &numbered(0..5, |_| doc! {"product": 1, "text": text.as_str()}));
    assert_eq!(db.count("reviews", doc! {}), 5, "a child's write never fails for its parent");
    assert_eq!(number(&one(&db, "products", doc! {}), "count"), 3);
    db.engine.tick();
    eventually("the pattern is suspect", || state(&db, "products", "all") == PatternState::Suspect);
    assert_eq!(verify(&db, "products", "all").wrong, 1);
    db.delete("reviews", doc! {"_id": {"$gte": 1}}).unwrap();
    assert_eq!(number(&one(&db, "products", doc! {}), "count"), 1);
    assert_eq!(verify(&db, "products", "all").wrong, 0);
    eventually("the pattern is active", || state(&db, "products", "all") == PatternState::Active);
    // Within one document: what cannot be computed is null.
    let twice = doc! {"name": "twice", "computed": {"set": {"twice": {"$concat": ["$text", "$text", "$text", "$text"]}}}};
    declare(&db, "reviews", twice).unwrap();
    db.insert("reviews", &[doc! {"_id": 9, "text": text.as_str()}]);
    assert!(matches!(one(&db, "reviews", doc! {"_id": 9}).get("twice"), Some(RawValue::Null)));
}

#[test]
fn a_set_has_the_order_of_its_rows_when_one_comes_late() {
    everywhere(|db| {
        make(&db, &["readings", "sets"]);
        let pipeline = array![doc! {"$group": {"_id": "$group", "all": {"$addToSet": "$x"}}}];
        let sets = doc! {"name": "sets", "computed": {
            "from": "readings", "pipeline": pipeline, "whenNotMatched": "insert",
        }};
        declare(&db, "sets", sets).unwrap();
        let reading = |id: i32, group: &str| doc! {"_id": id, "group": group, "x": 10 * id};
        db.insert("readings", &[reading(1, "b"), reading(2, "a"), reading(3, "a")]);
        // The oldest row enters the group of the others.
        db.update("readings", doc! {"_id": 1}, doc! {"$set": {"group": "a"}}).unwrap();
        assert_eq!(db.find("sets", doc! {}), [doc! {"_id": "a", "all": [10, 20, 30]}]);
        expect_true(&db, "sets", "sets");
    });
}

#[test]
fn a_commit_measures_the_newest_record_of_a_versioned_target() {
    everywhere(|db| {
        make(&db, &["sensors", "sites"]);
        db.insert("sites", &[doc! {"_id": 1, "name": "n", "addr": "a"}]);
        let versions = doc! {"name": "versions", "schemaVersion": {
            "field": "v", "from": 1, "to": 2,
            "up": [{"$set": {"address": "$addr"}}, {"$unset": "addr"}],
            "down": [{"$set": {"addr": "$address"}}, {"$unset": "address"}],
        }};
        declare(&db, "sites", versions).unwrap();
        wait_until_active(&db, "sites", "versions");
        let pipeline = array![doc! {"$group": {"_id": "$site", "count": {"$sum": 1}}}];
        declare(
            &db,
            "sites",
            doc! {"name": "sensors", "computed": {"from": "sensors", "pipeline": pipeline}},
        )
        .unwrap();
        wait_until_active(&db, "sites", "sensors");
        let mut transaction = db.transaction(1, 1);
        transaction.insert("sensors", doc! {"_id": 1, "site": 1}).unwrap();
        // The document that the commit will write grows meanwhile.
        db.update("sites", doc! {"_id": 1}, doc! {"$set": {"name": "n".repeat(100)}}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(number(&one(&db, "sites", doc! {"_id": 1}), "count"), 1);
        db.check();
    });
}

#[test]
fn a_step_is_refused_if_the_validator_would_refuse_its_documents() {
    let db = Db::memory();
    let validator = doc! {"validator": {"phone": {"$type": "string"}}};
    db.engine.create_collection(&ns("users"), validator).unwrap();
    db.insert("users", &[doc! {"_id": 1, "phone": "1"}]);
    let step = || {
        doc! {"name": "phones", "schemaVersion": {
            "field": "v", "from": 1, "to": 2,
            "up": [{"$set": {"phone": {"number": "$phone"}}}],
            "down": [{"$set": {"phone": "$phone.number"}}],
        }}
    };
    let error = declare(&db, "users", step()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DocumentValidationFailure);
    assert!(error.to_string().contains("collMod"), "{error}");
    db.update("users", doc! {"_id": 1}, doc! {"$set": {"name": "Ada"}}).unwrap();
    assert_eq!(db.find("users@1", doc! {}), []);
}

#[test]
fn a_date_that_a_pattern_sets_overwrites_nothing_that_another_owns() {
    let db = Db::memory();
    make(&db, &["orders", "customers"]);
    db.insert("customers", &[doc! {"_id": 1, "name": "Ada"}]);
    db.insert("orders", &[doc! {"_id": 1, "customer": 1}]);
    for touch in ["customer", "card", "card.name", "_id"] {
        let card = doc! {"name": "card", "touch": touch, "extendedReference": {
            "from": "customers", "localField": "customer", "as": "card", "fields": {"name": 1},
        }};
        let error = declare(&db, "orders", card).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PatternFieldConflict, "{touch}");
    }
    assert_eq!(one(&db, "orders", doc! {"_id": 1}), doc! {"_id": 1, "customer": 1});
}
