//! What becomes of patterns when their collections are dropped, renamed and replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{ErrorCode, Result};
use kilim_storage::MemoryDisk;

use crate::pattern::{card, declare, make, one, recent, stats, wait_until_active};
use crate::pattern_crash::{at_every_commit, wait_for_jobs};
use crate::pattern_lifecycle::{DEFINITIONS, shop, text, verify, with};
use crate::support::{Db, everywhere, ns, number, numbered};

fn holders(on_source_delete: &str) -> Document {
    doc! {"name": "card", "extendedReference": {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "onSourceDelete": on_source_delete,
    }}
}

#[test]
fn dropping_a_source_counts_as_deleting_its_documents() {
    everywhere(|db| {
        for (on_source_delete, left, with_copy) in
            [("keep", 50, 50), ("unset", 50, 0), ("null", 50, 0), ("cascade", 0, 0)]
        {
            shop(&db);
            declare(&db, "orders", holders(on_source_delete)).unwrap();
            wait_until_active(&db, "orders", "card");
            db.drop_collection("customers").unwrap();
            assert_eq!(db.count("orders", doc! {}), left, "{on_source_delete}");
            assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), with_copy);
            // The pattern stays, for a source that comes back.
            db.insert("orders", &[doc! {"_id": 1000, "customerId": 1}]);
            db.insert("customers", &[doc! {"_id": 1, "name": "back"}]);
            assert!(db.count("orders", doc! {"customer.name": "back"}) >= 1);
            assert_eq!(verify(&db, "orders", "card").wrong, 0);
            db.drop_collection("orders").unwrap();
            assert!(db.engine.patterns().of("test").is_empty());
            assert!(db.find(DEFINITIONS, doc! {}).is_empty());
            db.drop_collection("customers").unwrap();
            db.check();
        }
    });
}

#[test]
fn a_source_that_is_referred_to_is_not_dropped() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", holders("restrict")).unwrap();
    wait_until_active(&db, "orders", "card");
    assert_eq!(db.drop_collection("customers").unwrap_err().code(), ErrorCode::PatternRestrict);
    assert_eq!(db.count("customers", doc! {}), 5);
    db.delete("orders", doc! {}).unwrap();
    db.drop_collection("customers").unwrap();
    assert_eq!(db.engine.patterns().of("test").len(), 1);
    db.check();
}

#[test]
fn groups_are_empty_once_their_source_is_dropped() {
    everywhere(|db| {
        make(&db, &["products", "reviews", "totals"]);
        db.insert("products", &numbered(0..3, |_| doc! {}));
        declare(&db, "products", stats()).unwrap();
        declare(&db, "products", recent()).unwrap();
        let rollup = doc! {"name": "totals", "computed": {
            "from": "reviews", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": "$product", "n": {"$count": {}}}}],
        }};
        declare(&db, "totals", rollup).unwrap();
        for name in ["stats", "recent"] {
            wait_until_active(&db, "products", name);
        }
        db.insert("reviews", &numbered(0..30, |id| doc! {"product": id % 3, "rating": 4, "at": id}));
        assert_eq!(db.count("totals", doc! {}), 3);
        db.drop_collection("reviews").unwrap();
        assert_eq!(db.count("totals", doc! {}), 0);
        for product in db.find("products", doc! {}) {
            assert_eq!(number(&product, "count"), 0);
            assert!(
                matches!(product.get("recent"), Some(RawValue::Array(list)) if list.iter().next().is_none())
            );
        }
        db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 2, "at": 1}]);
        assert_eq!(number(&one(&db, "products", doc! {"_id": 1}), "count"), 1);
        // With the index that it needs.
        let reviews = db.engine.collection(&ns("reviews")).unwrap();
        assert!(reviews.indexes.len() > 1);
        for (target, name) in [("products", "stats"), ("products", "recent"), ("totals", "totals")] {
            assert_eq!(verify(&db, target, name).wrong, 0);
        }
        db.check();
    });
}

#[test]
fn a_chain_follows_a_drop_to_its_end() {
    let db = Db::memory();
    make(&db, &["a", "b", "c"]);
    let copy = |name: &str, from: &str, fields: Document| {
        doc! {"name": name, "extendedReference": {
            "from": from, "localField": "ref", "as": "copy", "fields": fields, "onSourceDelete": "null",
        }}
    };
    declare(&db, "b", copy("ab", "a", doc! {"v": 1})).unwrap();
    declare(&db, "c", copy("bc", "b", doc! {"v": "$copy.v"})).unwrap();
    db.insert("a", &[doc! {"_id": 1, "v": "x"}]);
    db.insert("b", &[doc! {"_id": 1, "ref": 1}]);
    db.insert("c", &[doc! {"_id": 1, "ref": 1}]);
    assert_eq!(db.count("c", doc! {"copy.v": "x"}), 1);
    db.drop_collection("a").unwrap();
    assert_eq!(db.count("c", doc! {"copy.v": "x"}), 0);
    assert_eq!(verify(&db, "c", "bc").wrong, 0);
    // The middle: its own pattern goes, the other follows.
    db.drop_collection("b").unwrap();
    assert_eq!(db.engine.patterns().of("test").len(), 1);
    assert_eq!(db.count("c", doc! {"copy": null}), 1);
    db.check();
}

#[test]
fn patterns_follow_a_rename() {
    everywhere(|mut db| {
        shop(&db);
        make(&db, &["products", "reviews"]);
        declare(&db, "orders", card()).unwrap();
        declare(&db, "products", stats()).unwrap();
        wait_until_active(&db, "orders", "card");
        db.insert("products", &[doc! {"_id": 1}]);
        db.insert("reviews", &[doc! {"_id": 1, "product": 1, "rating": 3}]);
        db.rename("customers", "clients", false).unwrap();
        db.rename("orders", "purchases", false).unwrap();
        db.rename("reviews", "opinions", false).unwrap();
        if db.is_durable() {
            db.reopen();
        }
        let stored = one(&db, DEFINITIONS, doc! {"_id": "purchases.card"});
        assert_eq!(text(&stored, "target"), "purchases");
        db.update("clients", doc! {"_id": 1}, doc! {"$set": {"name": "new"}}).unwrap();
        assert_eq!(db.count("purchases", doc! {"customer.name": "new"}), 10);
        db.insert("opinions", &[doc! {"_id": 2, "product": 1, "rating": 5}]);
        assert_eq!(number(&one(&db, "products", doc! {}), "count"), 2);
        assert_eq!(verify(&db, "purchases", "card").wrong, 0);
        assert_eq!(verify(&db, "products", "stats").wrong, 0);
        // The names are free again.
        db.insert("customers", &[doc! {"_id": 1, "name": "other"}]);
        db.insert("orders", &[doc! {"_id": 1, "customerId": 1}]);
        assert!(one(&db, "orders", doc! {}).get("customer").is_none());
        db.check();
    });
}

#[test]
fn a_collection_that_takes_a_source_s_name_becomes_the_source() {
    everywhere(|db| {
        shop(&db);
        make(&db, &["products", "reviews"]);
        db.insert("products", &numbered(0..2, |_| doc! {}));
        db.insert("reviews", &numbered(0..10, |_| doc! {"product": 0, "rating": 1}));
        declare(&db, "orders", holders("null")).unwrap();
        declare(&db, "products", stats()).unwrap();
        wait_until_active(&db, "orders", "card");
        wait_until_active(&db, "products", "stats");
        db.insert("others", &[doc! {"_id": 1, "name": "one"}]);
        db.rename("others", "customers", true).unwrap();
        db.insert("more", &numbered(0..3, |_| doc! {"product": 1, "rating": 2}));
        db.rename("more", "reviews", true).unwrap();
        wait_until_active(&db, "orders", "card");
        wait_until_active(&db, "products", "stats");
        assert_eq!(db.count("orders", doc! {"customer.name": "one"}), 10);
        assert_eq!(db.count("orders", doc! {"customer": null}), 40);
        let counts: Vec<i64> = db.find("products", doc! {}).iter().map(|one| number(one, "count")).collect();
        assert_eq!(counts, [0, 3]);
        // A target that is displaced takes its patterns along.
        db.insert("blank", &[doc! {"_id": 1}]);
        db.rename("blank", "products", true).unwrap();
        assert_eq!(db.engine.patterns().of("test").len(), 1);
        db.insert("reviews", &[doc! {"_id": 100, "product": 1, "rating": 2}]);
        assert!(one(&db, "products", doc! {}).get("count").is_none());
        assert_eq!(verify(&db, "orders", "card").wrong, 0);
        db.check();
    });
}

#[test]
fn a_rename_meets_writers_of_the_other_collection() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", card()).unwrap();
    wait_until_active(&db, "orders", "card");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                let name = format!("t{turn}");
                db.update("customers", doc! {"_id": turn % 5}, doc! {"$set": {"name": name}}).unwrap();
            }
        });
        for _ in 0..20 {
            db.rename("orders", "purchases", false).unwrap();
            db.rename("purchases", "orders", false).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(verify(&db, "orders", "card").wrong, 0);
    db.check();
}

#[test]
fn filling_goes_on_after_a_rename() {
    let db = Db::memory();
    shop(&db);
    declare(&db, "orders", with(card(), "backfill", doc! {"batch": 1, "throttleMs": 1})).unwrap();
    for turn in 0..10 {
        let (from, to) = if turn % 2 == 0 { ("orders", "purchases") } else { ("purchases", "orders") };
        db.rename(from, to, false).unwrap();
    }
    wait_until_active(&db, "orders", "card");
    assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), 50);
    assert_eq!(verify(&db, "orders", "card").wrong, 0);
}

#[test]
fn a_dropped_source_is_gone_or_partly_deleted_after_any_commit() {
    for on_source_delete in ["null", "unset", "cascade"] {
        at_every_commit(
            |db| {
                shop(db);
                declare(db, "orders", holders(on_source_delete)).unwrap();
            },
            |db| db.drop_collection("customers"),
            |db| {
                let left = db.find("customers", doc! {}).len() as u64;
                assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), left * 10);
                if db.engine.collection(&ns("customers")).is_some() {
                    db.drop_collection("customers").unwrap();
                }
                assert_eq!(db.engine.patterns().of("test").len(), 1);
            },
        );
    }
}

#[test]
fn a_rename_and_its_patterns_are_whole_or_not_at_all() {
    at_every_commit(
        |db| {
            shop(db);
            declare(db, "orders", card()).unwrap();
        },
        |db| {
            db.rename("customers", "clients", false)?;
            db.rename("orders", "purchases", false)
        },
        |db| {
            let existing = |names: [&'static str; 2]| {
                let is = |name: &&str| db.engine.collection(&ns(name)).is_some();
                names.into_iter().filter(is).collect::<Vec<_>>().concat()
            };
            let (source, target) = (existing(["customers", "clients"]), existing(["orders", "purchases"]));
            db.update(&source, doc! {"_id": 1}, doc! {"$set": {"name": "new"}}).unwrap();
            assert_eq!(db.count(&target, doc! {"customer.name": "new"}), 10);
            assert_eq!(db.find(DEFINITIONS, doc! {}).len(), 1);
        },
    );
}

#[test]
fn another_source_is_taken_up_after_any_commit() {
    at_every_commit(
        |db| {
            make(db, &["products", "reviews"]);
            db.insert("products", &numbered(0..2, |_| doc! {}));
            db.insert("reviews", &numbered(0..4, |_| doc! {"product": 0, "rating": 1}));
            db.insert("more", &numbered(0..6, |_| doc! {"product": 1, "rating": 2}));
            declare(db, "products", stats()).unwrap();
        },
        |db| db.rename("more", "reviews", true),
        |db| {
            let counted: i64 = db.find("products", doc! {}).iter().map(|one| number(one, "count")).sum();
            assert_eq!(counted, db.count("reviews", doc! {}) as i64);
        },
    );
}

#[test]
fn definitions_go_together_after_any_commit() {
    at_every_commit(
        |db| {
            shop(db);
            declare(db, "orders", card()).unwrap();
            declare(
                db,
                "orders",
                doc! {"name": "twice", "computed": {"set": {"twice": {"$add": ["$n", "$n"]}}}},
            )
            .unwrap();
        },
        |db| db.drop_collection(DEFINITIONS),
        |db| {
            let left = db.engine.patterns().of("test").len();
            assert!(left == 0 || left == 2);
            if let Some(definitions) = db.engine.collection(&ns(DEFINITIONS)) {
                assert_eq!(db.find(&definitions.namespace.collection, doc! {}).len(), left);
            }
        },
    );
}

#[test]
fn a_source_collection_made_while_a_transaction_inserts_a_holder_reaches_it() {
    everywhere(|db| {
        shop(&db);
        declare(&db, "orders", holders("null")).unwrap();
        wait_until_active(&db, "orders", "card");
        db.drop_collection("customers").unwrap();
        let mut transaction = db.transaction(1, 1);
        transaction.insert("orders", doc! {"_id": 1000, "customerId": 1}).unwrap();
        thread::scope(|scope| {
            let source = scope.spawn(|| db.insert("customers", &[doc! {"_id": 1, "name": "new"}]));
            // The source waits for the holder, which did not find it.
            thread::sleep(Duration::from_millis(50));
            assert!(!source.is_finished());
            transaction.commit().unwrap();
            source.join().unwrap();
        });
        assert_eq!(db.count("orders", doc! {"_id": 1000, "customer.name": "new"}), 1);
        db.check();
    });
}

#[test]
fn collections_that_copy_from_each_other_are_dropped_renamed_and_declared_at_once() {
    drop_rename_and_declare_at_once(&Db::memory());
    drop_rename_and_declare_at_once(&Db::small_disk());
}

fn drop_rename_and_declare_at_once(db: &Db) {
    let copy = |from: &str, as_path: &str, field: &str| {
        let mut fields = Document::new();
        fields.push(field, 1);
        doc! {"name": as_path, "extendedReference": {
            "from": from, "localField": "ref", "as": as_path, "fields": fields, "onSourceDelete": "null",
        }}
    };
    let end = Instant::now() + Duration::from_secs(2);
    let work = |work: &(dyn Fn() -> Result<()> + Sync)| {
        while Instant::now() < end {
            if let Err(error) = work() {
                let expected = [
                    ErrorCode::NamespaceNotFound,
                    ErrorCode::NamespaceExists,
                    ErrorCode::PatternSourceMissing,
                    ErrorCode::PatternAlreadyExists,
                    ErrorCode::PatternNotFound,
                    ErrorCode::IndexBuildAborted,
                    ErrorCode::QueryPlanKilled,
                ];
                assert!(expected.contains(&error.code()), "{error}");
            }
        }
    };
    let insert = |name: &str| {
        let document = doc! {"ref": 1, "v": 1, "w": 1};
        db.try_insert(name, document).and_then(|()| {
            let filter = doc! {"_id": 1};
            db.upsert(name, filter, doc! {"$inc": {"v": 1, "w": 1}}).map(drop)
        })
    };
    thread::scope(|scope| {
        scope.spawn(|| work(&|| insert("a")));
        scope.spawn(|| work(&|| insert("b")));
        scope.spawn(|| work(&|| db.drop_collection("a")));
        scope.spawn(|| work(&|| db.drop_collection("b")));
        scope.spawn(|| work(&|| declare(db, "a", copy("b", "fromB", "v")).map(drop)));
        scope.spawn(|| work(&|| declare(db, "b", copy("a", "fromA", "w")).map(drop)));
        scope.spawn(|| work(&|| db.rename("a", "c", true).and_then(|()| db.rename("c", "a", true))));
    });
    wait_for_jobs(db, &MemoryDisk::default());
    let operation = Arc::clone(&db.engine.operations.start(1));
    for pattern in db.engine.patterns().iter() {
        let found = db.engine.verify_pattern(&operation, pattern, None, 3).unwrap();
        assert_eq!(found.wrong, 0, "{found:?}");
    }
    db.check();
}

#[test]
fn sources_with_more_holders_than_one_commit_takes_are_dropped_and_replaced() {
    everywhere(|db| {
        for on_source_delete in ["null", "unset", "cascade"] {
            shop(&db);
            declare(&db, "orders", with(holders(on_source_delete), "maxSync", 2)).unwrap();
            wait_until_active(&db, "orders", "card");
            db.drop_collection("customers").unwrap();
            wait_for_jobs(&db, &MemoryDisk::default());
            let left = if on_source_delete == "cascade" { 0 } else { 50 };
            assert_eq!(db.count("orders", doc! {}), left, "{on_source_delete}");
            assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), 0);
            assert_eq!(verify(&db, "orders", "card").wrong, 0);
            // Again, with others that come in their place.
            if left > 0 {
                db.insert("customers", &numbered(0..5, |id| doc! {"name": format!("d{id}")}));
                wait_for_jobs(&db, &MemoryDisk::default());
                db.insert("others", &numbered(0..3, |id| doc! {"name": format!("e{id}")}));
                db.rename("others", "customers", true).unwrap();
                wait_for_jobs(&db, &MemoryDisk::default());
                assert_eq!(verify(&db, "orders", "card").wrong, 0);
                assert_eq!(db.count("orders", doc! {"customer.name": "e1"}), 10);
                assert_eq!(db.count("orders", doc! {"customer.name": {"$exists": true}}), 30);
                db.drop_collection("customers").unwrap();
            }
            wait_for_jobs(&db, &MemoryDisk::default());
            db.drop_collection("orders").unwrap();
            db.check();
        }
    });
}
