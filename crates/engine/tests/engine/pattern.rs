//! Patterns kept true by writes.

use std::sync::Arc;
use std::thread;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::patterns::{Pattern, PatternState};
use kilim_error::{ErrorCode, Result};
use kilim_patterns::Declaration;

use crate::support::{Db, eventually, everywhere, ns, number};

pub fn declare(db: &Db, target: &str, fields: Document) -> Result<Arc<Pattern>> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let declaration = Declaration::parse(target, fields.as_raw())?;
    let pattern = db.engine.create_pattern(&operation, "test", declaration)?;
    if pattern.state == PatternState::Building {
        db.engine.begin_filling(&pattern);
    }
    Ok(pattern)
}

pub fn wait_until_active(db: &Db, target: &str, name: &str) {
    eventually("the pattern is active", || match &db.engine.pattern(&ns(target), name).unwrap().state {
        PatternState::Active => true,
        PatternState::Building | PatternState::Verifying => false,
        other => panic!("{other:?}"),
    });
}

pub fn one(db: &Db, collection: &str, filter: Document) -> Document {
    let mut found = db.find(collection, filter);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

pub fn card() -> Document {
    doc! {"name": "card", "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
    }}
}

pub fn stats() -> Document {
    doc! {"name": "stats", "computed": {"from": "reviews", "pipeline": [
        {"$match": {"hidden": {"$ne": true}}},
        {"$group": {
            "_id": "$product", "count": {"$count": {}}, "average": {"$avg": "$rating"}, "best": {"$max": "$rating"},
        }},
    ]}}
}

pub fn recent() -> Document {
    doc! {"name": "recent", "subset": {
        "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"at": -1}, "limit": 2,
        "fields": {"rating": 1},
    }}
}

pub fn make(db: &Db, names: &[&str]) {
    for name in names {
        db.engine.create_collection(&ns(name), Document::new()).unwrap();
    }
}

#[test]
fn a_copy_follows_its_source() {
    everywhere(|db| {
        make(&db, &["customers", "orders"]);
        declare(&db, "orders", card()).unwrap();
        db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}, doc! {"_id": 2, "name": "Bob"}]);
        db.insert(
            "orders",
            &[
                doc! {"_id": 1, "customerId": 1},
                doc! {"_id": 2, "customerId": 2},
                doc! {"_id": 3, "customerId": 9},
            ],
        );
        let copy = |id: i32| one(&db, "orders", doc! {"_id": id}).get("customer").map(RawValue::to_value);
        let shown = |id: i32| {
            format!("{:?}", copy(id).map(|value| value.as_raw().as_document().map(|copy| copy.to_document())))
        };
        assert_eq!(shown(1), format!("{:?}", Some(Some(doc! {"name": "Ann"}))));
        assert!(matches!(copy(3), Some(kilim_bson::Value::Null)));
        db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Anna"}}).unwrap();
        assert_eq!(shown(1), format!("{:?}", Some(Some(doc! {"name": "Anna"}))));
        // The source arrives late.
        db.insert("customers", &[doc! {"_id": 9, "name": "Zoe"}]);
        assert_eq!(shown(3), format!("{:?}", Some(Some(doc! {"name": "Zoe"}))));
        // Another reference, another copy.
        db.update("orders", doc! {"_id": 1}, doc! {"$set": {"customerId": 2}}).unwrap();
        assert_eq!(shown(1), format!("{:?}", Some(Some(doc! {"name": "Bob"}))));
        db.check();
    });
}

#[test]
fn users_do_not_write_what_is_maintained() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", card()).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &[doc! {"_id": 1, "customerId": 1, "customer": {"name": "Eve"}}]);
    assert_eq!(one(&db, "orders", doc! {}), doc! {"_id": 1, "customerId": 1, "customer": {"name": "Ann"}});
    for update in [
        doc! {"$set": {"customer.name": "Eve"}},
        doc! {"$unset": {"customer": 1}},
        doc! {"$set": {"customer.x": 1}},
    ] {
        let error = db.update("orders", doc! {"_id": 1}, update).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PatternFieldReadOnly);
        assert!(
            error.to_string().contains("maintained by extendedReference 'card' from test.customers"),
            "{error}"
        );
    }
    db.update("orders", doc! {"_id": 1}, doc! {"customerId": 1, "customer": {"name": "Eve"}, "n": 1})
        .unwrap();
    assert_eq!(
        one(&db, "orders", doc! {}),
        doc! {"_id": 1, "customerId": 1, "customer": {"name": "Ann"}, "n": 1}
    );
}

#[test]
fn groups_are_merged_into_their_parents() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        declare(&db, "products", recent()).unwrap();
        db.insert("products", &[doc! {"_id": 1}, doc! {"_id": 2}]);
        let product = |id: i32| one(&db, "products", doc! {"_id": id});
        let expect = |id: i32, count: i32, average: Option<f64>, best: Option<i32>, recent: &[i32]| {
            let found = product(id);
            assert_eq!(number(&found, "count"), i64::from(count), "{found:?}");
            let shown = |value: Option<RawValue<'_>>| format!("{value:?}");
            assert_eq!(
                shown(found.get("average")),
                match average {
                    Some(average) => format!("Some(Double({average:?}))"),
                    None => "Some(Null)".to_owned(),
                }
            );
            assert_eq!(
                shown(found.get("best")),
                match best {
                    Some(best) => format!("Some(Int32({best}))"),
                    None => "Some(Null)".to_owned(),
                }
            );
            let list = found.get("recent").and_then(RawValue::as_array).expect("a list");
            let ids: Vec<i64> =
                list.iter().map(|one| number(&one.as_document().unwrap().to_document(), "_id")).collect();
            assert_eq!(ids, recent.iter().map(|id| i64::from(*id)).collect::<Vec<_>>(), "{found:?}");
        };
        expect(1, 0, None, None, &[]);
        db.insert(
            "reviews",
            &[
                doc! {"_id": 1, "product": 1, "rating": 5, "at": 1},
                doc! {"_id": 2, "product": 1, "rating": 3, "at": 3},
                doc! {"_id": 3, "product": 1, "rating": 1, "at": 2},
            ],
        );
        expect(1, 3, Some(3.0), Some(5), &[2, 3]);
        db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"rating": 4}}).unwrap();
        expect(1, 3, Some(10.0 / 3.0), Some(5), &[2, 3]);
        // The best goes, and the newest.
        db.delete("reviews", doc! {"_id": 1}).unwrap();
        expect(1, 2, Some(2.5), Some(4), &[2, 3]);
        db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"hidden": true}}).unwrap();
        expect(1, 1, Some(1.0), Some(1), &[2, 3]);
        db.update("reviews", doc! {"_id": 2}, doc! {"$unset": {"hidden": 1}}).unwrap();
        // A child moves.
        db.update("reviews", doc! {"_id": 2}, doc! {"$set": {"product": 2}}).unwrap();
        expect(1, 1, Some(1.0), Some(1), &[3]);
        expect(2, 1, Some(4.0), Some(4), &[2]);
        // A child before its parent.
        db.insert("reviews", &[doc! {"_id": 9, "product": 3, "rating": 2, "at": 1}]);
        db.insert("products", &[doc! {"_id": 3, "count": 77}]);
        expect(3, 1, Some(2.0), Some(2), &[9]);
        // The last child goes.
        db.delete("reviews", doc! {"product": 3}).unwrap();
        expect(3, 0, None, None, &[]);
        db.check();
    });
}

#[test]
fn a_rollup_collection_has_a_document_for_each_group() {
    everywhere(|db| {
        make(&db, &["reviews"]);
        let by_rating = doc! {"name": "byRating", "computed": {
            "from": "reviews", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": "$rating", "count": {"$count": {}}}}],
        }};
        declare(&db, "ratings", by_rating).unwrap();
        db.insert(
            "reviews",
            &[doc! {"_id": 1, "rating": 5}, doc! {"_id": 2, "rating": 5}, doc! {"_id": 3, "rating": 1}],
        );
        assert_eq!(one(&db, "ratings", doc! {"_id": 5}), doc! {"_id": 5, "count": 2});
        db.delete("reviews", doc! {"_id": 3}).unwrap();
        assert_eq!(db.count("ratings", doc! {}), 1);
        db.check();
    });
}

#[test]
fn a_chain_is_carried_through_in_one_write() {
    let db = Db::memory();
    make(&db, &["a", "b", "c"]);
    let copies = |from: &str, field: &str| {
        doc! {"name": "copy", "extendedReference": {
            "from": from, "localField": "ref", "as": "source", "fields": {"name": field},
        }}
    };
    declare(&db, "b", copies("a", "$name")).unwrap();
    declare(&db, "c", copies("b", "$source.name")).unwrap();
    declare(&db, "c", doc! {"name": "length", "computed": {"set": {"length": {"$strLenCP": {"$ifNull": ["$source.name", ""]}}}}}).unwrap();
    db.insert("a", &[doc! {"_id": 1, "name": "x"}]);
    db.insert("b", &[doc! {"_id": 2, "ref": 1}]);
    db.insert("c", &[doc! {"_id": 3, "ref": 2}]);
    db.update("a", doc! {"_id": 1}, doc! {"$set": {"name": "long"}}).unwrap();
    assert_eq!(one(&db, "c", doc! {}), doc! {"_id": 3, "ref": 2, "source": {"name": "long"}, "length": 4});
    let back = doc! {"name": "back", "extendedReference": {"from": "c", "localField": "r", "as": "back", "fields": {"x": "$length"}}};
    declare(&db, "a", back).unwrap();
    let circle = doc! {"name": "circle", "computed": {"set": {"name": {"$toString": "$back.x"}}}};
    assert_eq!(declare(&db, "a", circle).unwrap_err().code(), ErrorCode::PatternCycle);
}

#[test]
fn what_was_there_before_is_filled() {
    everywhere(|db| {
        db.insert("products", &crate::support::numbered(0..50, |_| doc! {}));
        db.insert(
            "reviews",
            &crate::support::numbered(0..500, |id| doc! {"product": id % 50, "rating": id % 5, "at": id}),
        );
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for id in 500..700 {
                    db.insert("reviews", &[doc! {"_id": id, "product": id % 50, "rating": 3, "at": id}]);
                    db.delete("reviews", doc! {"_id": id - 500}).unwrap();
                }
            });
            declare(&db, "products", stats()).unwrap();
            declare(&db, "products", recent()).unwrap();
            writer.join().unwrap();
        });
        wait_until_active(&db, "products", "stats");
        wait_until_active(&db, "products", "recent");
        for product in db.find("products", doc! {}) {
            let reviews = db.find("reviews", doc! {"product": number(&product, "_id")});
            assert_eq!(number(&product, "count"), reviews.len() as i64, "{product:?}");
            let list = product.get("recent").and_then(RawValue::as_array).expect("a list");
            assert_eq!(list.len(), reviews.len().min(2));
        }
        db.check();
    });
}

#[test]
fn r28_two_transactions_that_meet_on_a_counter_both_commit() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        db.insert("products", &[doc! {"_id": 1}]);
        let mut first = db.transaction(1, 1);
        let mut second = db.transaction(2, 1);
        first.insert("reviews", doc! {"_id": 1, "product": 1, "rating": 5}).unwrap();
        second.insert("reviews", doc! {"_id": 2, "product": 1, "rating": 3}).unwrap();
        db.insert("reviews", &[doc! {"_id": 3, "product": 1, "rating": 1}]);
        first.commit().unwrap();
        second.commit().unwrap();
        let product = one(&db, "products", doc! {});
        assert_eq!(number(&product, "count"), 3);
        assert_eq!(number(&product, "average"), 3);
        let mut third = db.transaction(1, 2);
        third.insert("reviews", doc! {"_id": 4, "product": 1, "rating": 5}).unwrap();
        third.abort().unwrap();
        assert_eq!(number(&one(&db, "products", doc! {}), "count"), 3);
        db.check();
    });
}

#[test]
fn r14_a_source_renamed_60_times_among_6_inserters_leaves_nobody_stale() {
    everywhere(|db| {
        make(&db, &["customers", "orders"]);
        declare(&db, "orders", card()).unwrap();
        db.insert("customers", &[doc! {"_id": 1, "name": "n0"}]);
        thread::scope(|scope| {
            for writer in 0..6 {
                let db = &db;
                scope.spawn(move || {
                    for order in 0..40 {
                        db.insert("orders", &[doc! {"_id": writer * 1000 + order, "customerId": 1}]);
                    }
                });
            }
            for turn in 1..=60 {
                db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": format!("n{turn}")}}).unwrap();
            }
        });
        let stale = db.find("orders", doc! {"customer.name": {"$ne": "n60"}});
        assert!(stale.is_empty(), "{} of {}", stale.len(), db.count("orders", doc! {}));
        assert_eq!(db.count("orders", doc! {}), 240);
        db.check();
    });
}

#[test]
fn many_writers_of_one_parent_are_all_counted() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        declare(&db, "products", recent()).unwrap();
        db.insert("products", &[doc! {"_id": 1}]);
        thread::scope(|scope| {
            for writer in 0..8 {
                let db = &db;
                scope.spawn(move || {
                    for id in 0..50 {
                        let id = writer * 1000 + id;
                        db.insert("reviews", &[doc! {"_id": id, "product": 1, "rating": id % 5, "at": id}]);
                        if id % 3 == 0 {
                            db.delete("reviews", doc! {"_id": id}).unwrap();
                        } else if id % 3 == 1 {
                            db.update("reviews", doc! {"_id": id}, doc! {"$set": {"rating": 4}}).unwrap();
                        }
                    }
                });
            }
        });
        let reviews = db.find("reviews", doc! {});
        let product = one(&db, "products", doc! {});
        assert_eq!(number(&product, "count"), reviews.len() as i64);
        let sum: i64 = reviews.iter().map(|review| number(review, "rating")).sum();
        let average = match product.get("average") {
            Some(RawValue::Double(average)) => average,
            other => panic!("{other:?}"),
        };
        assert_eq!(average, sum as f64 / reviews.len() as f64);
        db.check();
    });
}

#[test]
fn a_restart_keeps_patterns_and_takes_up_filling() {
    let mut db = Db::disk();
    make(&db, &["products", "reviews"]);
    declare(&db, "products", stats()).unwrap();
    db.insert("products", &[doc! {"_id": 1}]);
    db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 5}]);
    db.reopen();
    db.insert("reviews", &[doc! {"_id": 2, "product": 1, "rating": 4}]);
    assert_eq!(number(&one(&db, "products", doc! {}), "count"), 2);
    db.insert("reviews", &crate::support::numbered(10..300, |id| doc! {"product": 1, "rating": 1, "at": id}));
    declare(&db, "products", recent()).unwrap();
    db.reopen();
    wait_until_active(&db, "products", "recent");
    let product = one(&db, "products", doc! {});
    assert_eq!(product.get("recent").and_then(RawValue::as_array).map(|list| list.len()), Some(2));
    db.check();
}

#[test]
fn the_date_that_maintenance_sets_is_found_by_its_index() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    let mut touching = card();
    touching.push("touch", "seen");
    declare(&db, "orders", touching).unwrap();
    db.build("orders", vec![crate::support::spec(doc! {"seen": 1})]).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &[doc! {"_id": 1, "customerId": 1}]);
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Anna"}}).unwrap();
    assert_eq!(db.find_by("orders", doc! {"seen": {"$type": "date"}}, "seen_1").len(), 1);
    db.check();
}
