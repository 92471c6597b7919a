//! Mistakes that others have made with copies: what `pattern_regression` leaves.

use std::sync::Barrier;
use std::thread;

use kilim_bson::doc;
use kilim_error::ErrorCode;

use crate::pattern::{card, declare, make, one};
use crate::pattern_regression::expect_true;
use crate::support::{Db, everywhere};

#[test]
fn r18_a_circle_is_refused_and_printed() {
    let db = Db::memory();
    make(&db, &["a", "b", "c"]);
    let copies = |name: &str, from: &str, field: &str, to: &str| {
        doc! {"name": name, "extendedReference": {
            "from": from, "localField": format!("{from}Id"), "as": to, "fields": {"v": field},
        }}
    };
    declare(&db, "b", copies("first", "a", "$fromC.v", "fromA")).unwrap();
    declare(&db, "c", copies("second", "b", "$fromA.v", "fromB")).unwrap();
    let error = declare(&db, "a", copies("third", "c", "$fromB.v", "fromC")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternCycle);
    let said = error.to_string();
    for part in
        ["b.first reads 'fromC' of a.third", "c.second reads 'fromA' of b.first", "a.third reads 'fromB' of"]
    {
        assert!(said.contains(part), "{said}");
    }
    // Nothing of it is left, and what is no circle goes.
    assert_eq!(db.engine.patterns().of("test").len(), 2);
    declare(&db, "a", copies("third", "c", "$other", "fromC")).unwrap();
    // A circle of one.
    let own = declare(&db, "a", copies("own", "a", "$up.v", "up")).unwrap_err();
    assert_eq!(own.code(), ErrorCode::PatternCycle);
    // Within the document.
    let set = doc! {"name": "set", "computed": {"set": {"x": "$y", "y": "$x"}}};
    assert_eq!(declare(&db, "a", set).unwrap_err().code(), ErrorCode::PatternCycle);
}

#[test]
fn r29_a_rename_and_an_insert_that_copies_at_the_same_instant() {
    everywhere(|db| {
        make(&db, &["customers", "orders"]);
        declare(&db, "orders", card()).unwrap();
        db.insert("customers", &[doc! {"_id": 1, "name": "n"}]);
        let rounds = 60;
        let start = Barrier::new(4);
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..rounds {
                    start.wait();
                    let rename = doc! {"$set": {"name": format!("n{turn}")}};
                    db.update("customers", doc! {"_id": 1}, rename).unwrap();
                    start.wait();
                    let stale = db.find("orders", doc! {"customer.name": {"$ne": format!("n{turn}")}});
                    assert!(stale.is_empty(), "turn {turn}: {stale:?}");
                    start.wait();
                }
            });
            for writer in 0..3u8 {
                let (db, start) = (&db, &start);
                scope.spawn(move || {
                    for turn in 0..rounds {
                        let order = doc! {"_id": turn * 10 + i32::from(writer), "customerId": 1};
                        start.wait();
                        match writer {
                            0 => db.insert("orders", &[order]),
                            1 => {
                                // It began before the rename, perhaps, and ends behind it.
                                let mut transaction = db.transaction(9, i64::from(turn) + 1);
                                let done = transaction.insert("orders", order);
                                drop(done.and_then(|()| transaction.commit()));
                            }
                            _ => drop(db.upsert(
                                "orders",
                                doc! {"_id": turn * 10 + 2},
                                doc! {"$set": {"customerId": 1}},
                            )),
                        }
                        start.wait();
                        start.wait();
                    }
                });
            }
        });
        expect_true(&db, "orders", "card");
        let last = format!("n{}", rounds - 1);
        assert_eq!(one(&db, "customers", doc! {}), doc! {"_id": 1, "name": last.as_str()});
        assert!(db.count("orders", doc! {"customer.name": last.as_str()}) >= 120);
    });
}

#[test]
fn what_a_write_changes_is_copied_as_it_leaves_it() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        let count = doc! {"name": "count", "computed": {
            "from": "reviews", "pipeline": [{"$group": {"_id": "$product", "count": {"$count": {}}}}],
        }};
        declare(&db, "products", count).unwrap();
        let rank = doc! {"name": "rank", "extendedReference": {
            "from": "products", "localField": "product", "as": "of", "fields": {"count": 1},
        }};
        declare(&db, "reviews", rank).unwrap();
        db.insert("products", &[doc! {"_id": 1}]);
        for id in 0..5 {
            // It counts itself.
            db.insert("reviews", &[doc! {"_id": id, "product": 1}]);
            assert_eq!(db.count("reviews", doc! {"of.count": id + 1}), id as u64 + 1);
        }
        db.delete("reviews", doc! {"_id": 0}).unwrap();
        assert_eq!(db.count("reviews", doc! {"of.count": 4}), 4);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("reviews", doc! {"_id": 9, "product": 1}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(db.count("reviews", doc! {"of.count": 5}), 5);
        expect_true(&db, "products", "count");
        expect_true(&db, "reviews", "rank");
    });
}
