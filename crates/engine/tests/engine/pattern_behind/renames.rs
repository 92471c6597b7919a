//! A target renamed while something is pending for it: readers see the truth under the new name, and the job goes on.

use kilim_bson::{Document, doc};

use super::{expect_true, few, lag, name_in, slow, wait_until_even};
use crate::pattern::{card, declare, make, one};
use crate::pattern_lifecycle::with;
use crate::support::{Db, everywhere, number, numbered};

/// A pattern whose job takes its time, and ends within a test all the same.
fn leisurely(mut fields: Document) -> Document {
    fields.push("backfill", doc! {"batch": 20, "throttleMs": 5});
    fields
}

fn orders(db: &Db, pattern: Document) {
    make(db, &["customers", "orders"]);
    declare(db, "orders", pattern).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.insert("orders", &numbered(0..200, |_| doc! {"customerId": 1}));
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Bea"}}).unwrap();
}

#[test]
fn a_fan_out_goes_on_after_its_target_is_renamed() {
    everywhere(|mut db| {
        orders(&db, leisurely(with(card(), "maxSync", 5)));
        assert_eq!(lag(&db, "orders", "card"), 1);
        db.rename("orders", "purchases", false).unwrap();
        assert_eq!(db.count("purchases", doc! {"customer.name": "Bea"}), 200);
        expect_true(&db, "purchases", "card");
        wait_until_even(&db, "purchases", "card");
        assert_eq!(db.count("purchases", doc! {"customer.name": "Bea"}), 200);
        expect_true(&db, "purchases", "card");
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.count("purchases", doc! {"customer.name": "Bea"}), 200);
        }
        db.check();
    });
}

#[test]
fn a_fan_out_of_a_renamed_target_survives_a_restart() {
    let mut db = Db::disk();
    orders(&db, slow(few()));
    db.rename("orders", "purchases", false).unwrap();
    db.reopen();
    assert_eq!(lag(&db, "purchases", "card"), 1);
    assert_eq!(db.count("purchases", doc! {"customer.name": "Bea"}), 200);
    assert_eq!(name_in(&one(&db, "purchases", doc! {"_id": 199})), "Bea");
    expect_true(&db, "purchases", "card");
}

#[test]
fn groups_of_a_renamed_target_are_seen_and_shown() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        let stats = doc! {"name": "stats", "mode": "async", "computed": {"from": "reviews", "pipeline": [
            {"$group": {"_id": "$product", "count": {"$count": {}}}},
        ]}};
        let recent = doc! {"name": "recent", "mode": "async", "subset": {
            "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"_id": -1}, "limit": 1,
            "fields": {"rating": 1},
        }};
        for mut pattern in [stats, recent] {
            pattern.push("backfill", doc! {"batch": 1, "throttleMs": 5});
            declare(&db, "products", pattern).unwrap();
        }
        db.insert("products", &numbered(0..40, |_| doc! {}));
        db.insert("reviews", &numbered(0..40, |id| doc! {"product": id, "rating": 4}));
        let mut names = ["products", "goods"];
        for turn in 2..5 {
            let new = |id| doc! {"product": id, "rating": turn};
            db.insert("reviews", &numbered(turn * 100..turn * 100 + 40, |id| new(id % 100)));
            db.rename(names[0], names[1], false).unwrap();
            names.reverse();
            assert_eq!(db.count(names[0], doc! {"count": i64::from(turn)}), 40);
            assert_eq!(db.count(names[0], doc! {"recent.rating": turn}), 40);
        }
        for name in ["stats", "recent"] {
            wait_until_even(&db, names[0], name);
            expect_true(&db, names[0], name);
        }
        assert_eq!(number(&one(&db, names[0], doc! {"_id": 39}), "count"), 4);
        db.check();
    });
}

#[test]
fn readers_under_either_name_see_no_old_copies_during_a_rename() {
    let db = Db::memory();
    orders(&db, slow(few()));
    std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            for _ in 0..50 {
                db.rename("orders", "purchases", false).unwrap();
                db.rename("purchases", "orders", false).unwrap();
            }
        });
        while !renamer.is_finished() {
            for name in ["orders", "purchases"] {
                assert_eq!(db.count(name, doc! {"customer.name": "Ann"}), 0, "{name}");
            }
        }
    });
    expect_true(&db, "orders", "card");
}
