//! Chains of groups in one transaction: a parent of one group is a child of the next, and both change before the commit.

use kilim_bson::{Document, doc};

use crate::pattern::{declare, make, one};
use crate::pattern_history::world::Dice;
use crate::pattern_regression::expect_true;
use crate::support::{Db, Transaction, delete, everywhere, ids, number, numbered};

const PATTERNS: [(&str, &str); 4] =
    [("orders", "total"), ("customers", "spent"), ("spending", "byCustomer"), ("levels", "bySpending")];

/// Lines are summed in their order, orders in their customer and in a document of their own for each customer, and those
/// documents once more.
fn shop(db: &Db) {
    make(db, &["lines", "orders", "customers", "spending", "levels"]);
    let sum = |name: &str, from: &str, key: &str, field: &str, of: &str| {
        doc! {"name": name, "computed": {"from": from, "pipeline": [
            {"$group": {"_id": format!("${key}"), field: {"$sum": format!("${of}")}}},
        ]}}
    };
    let rollup = |name: &str, from: &str, key: Document| {
        doc! {"name": name, "computed": {"from": from, "whenNotMatched": "insert", "pipeline": [
            {"$group": {"_id": key, "total": {"$sum": "$total"}, "count": {"$count": {}}}},
        ]}}
    };
    // Not in the order of the chain: what is read is declared last.
    declare(db, "levels", rollup("bySpending", "spending", doc! {"many": {"$gt": ["$count", 1]}})).unwrap();
    declare(db, "spending", rollup("byCustomer", "orders", doc! {"of": "$customer"})).unwrap();
    declare(db, "customers", sum("spent", "orders", "customer", "spent", "total")).unwrap();
    declare(db, "orders", sum("total", "lines", "order", "total", "amt")).unwrap();
    db.insert("customers", &numbered(1..5, |_| doc! {}));
}

fn spent(db: &Db, customer: i32) -> i64 {
    number(&one(db, "customers", doc! {"_id": customer}), "spent")
}

#[track_caller]
fn expect_all_true(db: &Db) {
    for (target, name) in PATTERNS {
        expect_true(db, target, name);
    }
}

#[test]
fn a_line_and_the_move_of_its_order_in_one_transaction_count_once() {
    everywhere(|db| {
        shop(&db);
        db.insert("orders", &[doc! {"_id": 10, "customer": 1}]);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("lines", doc! {"_id": 1, "order": 10, "amt": 2}).unwrap();
        transaction.update("orders", doc! {"_id": 10}, doc! {"$set": {"customer": 2}}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(number(&one(&db, "orders", doc! {"_id": 10}), "total"), 2);
        assert_eq!((spent(&db, 1), spent(&db, 2)), (0, 2));
        expect_all_true(&db);
    });
}

#[test]
fn a_deleted_line_and_the_move_of_its_order_in_one_transaction_count_once() {
    everywhere(|db| {
        shop(&db);
        db.insert("orders", &[doc! {"_id": 10, "customer": 1}]);
        db.insert("lines", &[doc! {"_id": 1, "order": 10, "amt": 5}, doc! {"_id": 2, "order": 10, "amt": 7}]);
        let mut transaction = db.transaction(1, 1);
        transaction.run(|unit| delete(unit, "lines", doc! {"_id": 1}, true)).unwrap();
        transaction.update("orders", doc! {"_id": 10}, doc! {"$set": {"customer": 2}}).unwrap();
        transaction.commit().unwrap();
        assert_eq!((spent(&db, 1), spent(&db, 2)), (0, 7));
        expect_all_true(&db);
    });
}

#[test]
fn an_order_made_and_deleted_again_in_one_transaction_counts_nowhere() {
    everywhere(|db| {
        shop(&db);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("orders", doc! {"_id": 10, "customer": 3}).unwrap();
        transaction.insert("lines", doc! {"_id": 1, "order": 10, "amt": 5}).unwrap();
        transaction.update("orders", doc! {"_id": 10}, doc! {"$set": {"customer": 4}}).unwrap();
        transaction.run(|unit| delete(unit, "orders", doc! {"_id": 10}, true)).unwrap();
        transaction.insert("orders", doc! {"_id": 11, "customer": 4}).unwrap();
        transaction.update("lines", doc! {"_id": 1}, doc! {"$set": {"order": 11}}).unwrap();
        transaction.commit().unwrap();
        assert_eq!((spent(&db, 3), spent(&db, 4)), (0, 5));
        expect_all_true(&db);
    });
}

#[test]
fn a_rollup_document_of_a_group_that_is_new_to_the_next_counts_once() {
    everywhere(|db| {
        shop(&db);
        let mut transaction = db.transaction(1, 1);
        for (order, customer) in [(10, 1), (11, 1), (12, 2)] {
            transaction.insert("orders", doc! {"_id": order, "customer": customer}).unwrap();
            transaction.insert("lines", doc! {"_id": order, "order": order, "amt": order}).unwrap();
        }
        transaction.commit().unwrap();
        let level = |many: bool| number(&one(&db, "levels", doc! {"_id": {"many": many}}), "total");
        assert_eq!((level(true), level(false)), (21, 12));
        expect_all_true(&db);
    });
}

/// One step of a random transaction.
fn step(transaction: &mut Transaction<'_>, dice: &mut Dice, next: &mut i32) {
    *next += 1;
    let (line, order, customer) = (dice.roll(6), 10 + dice.roll(3), 1 + dice.roll(5));
    let moved = |field: &str, to: i32| doc! {"$set": {field: to}};
    match dice.roll(8) {
        0 | 1 => {
            transaction.insert("lines", doc! {"_id": *next, "order": order, "amt": dice.roll(9)}).unwrap()
        }
        2 => drop(transaction.update("lines", doc! {"n": line}, moved("order", order)).unwrap()),
        3 => drop(transaction.update("lines", doc! {"order": order}, doc! {"$inc": {"amt": 1}}).unwrap()),
        4 => drop(transaction.run(|unit| delete(unit, "lines", doc! {"order": order}, true)).unwrap()),
        5 => drop(transaction.run(|unit| delete(unit, "orders", doc! {"_id": order}, true)).unwrap()),
        6 => {
            if transaction.count("orders", doc! {"_id": order}).unwrap() == 0 {
                transaction.insert("orders", doc! {"_id": order, "customer": customer}).unwrap();
            }
        }
        _ => drop(transaction.update("orders", doc! {"_id": order}, moved("customer", customer)).unwrap()),
    }
}

#[test]
fn short_transactions_over_a_chain_count_everything_once() {
    for seed in 1..60 {
        let (db, mut dice, mut next) = (Db::memory(), Dice::new(seed), 0);
        shop(&db);
        db.insert("orders", &numbered(10..13, |id| doc! {"customer": id % 3 + 1}));
        for number in 1..4 {
            let mut transaction = db.transaction(1, number);
            for _ in 0..3 {
                step(&mut transaction, &mut dice, &mut next);
            }
            transaction.commit().unwrap();
            expect_all_true(&db);
        }
    }
}

#[test]
fn a_deletion_goes_on_through_a_collection_that_refers_to_itself() {
    everywhere(|db| {
        make(&db, &["people"]);
        let boss = doc! {"name": "boss", "extendedReference": {
            "from": "people", "localField": "bossId", "as": "boss", "fields": {"name": 1},
            "onSourceDelete": "cascade",
        }};
        declare(&db, "people", boss).unwrap();
        db.insert("people", &numbered(1..7, |id| doc! {"name": format!("p{id}"), "bossId": id / 2}));
        db.delete("people", doc! {"_id": 2}).unwrap();
        assert_eq!(ids(&db.find("people", doc! {})), [1, 3, 6]);
        db.delete("people", doc! {"_id": 1}).unwrap();
        assert_eq!(db.count("people", doc! {}), 0);
        db.check();
    });
}
