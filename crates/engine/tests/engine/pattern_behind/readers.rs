//! What readers see while maintenance is behind: the truth, by whichever way they ask.

use kilim_bson::doc;

use super::{
    expect_seen, expect_true, few, finish, lag, name_in, rename, shop, slow, sorted_ids, stored_names, with,
};
use crate::pattern::{card, declare, make, one};
use crate::support::{Db, numbered, spec};

#[test]
fn what_is_pending_is_seen_by_every_reader() {
    for index in [
        None,
        Some(doc! {"customer.name": 1}),
        Some(doc! {"customer": 1}),
        Some(doc! {"customer.name": 1, "n": 1}),
    ] {
        let db = Db::memory();
        shop(&db, slow(few()));
        if let Some(key) = index {
            db.build("orders", vec![spec(key), spec(doc! {"n": 1})]).unwrap();
        }
        expect_seen(&db, "Ann", "Zoe");
        rename(&db, 1, "Zoe");
        assert_eq!(lag(&db, "orders", "card"), 1);
        assert!(stored_names(&db).iter().filter(|name| *name == "Ann").count() >= 8);
        expect_seen(&db, "Zoe", "Ann");
        expect_true(&db, "orders", "card");
        // Once more, while it is pending; and a customer of few orders at once.
        rename(&db, 1, "Cleo");
        assert_eq!(lag(&db, "orders", "card"), 1);
        expect_seen(&db, "Cleo", "Zoe");
        rename(&db, 2, "Bert");
        assert_eq!(lag(&db, "orders", "card"), 1);
        assert_eq!(db.count("orders", doc! {"customer.name": "Bert"}), 2);
        rename(&db, 2, "Bob");
        expect_seen(&db, "Cleo", "Ann");
        db.check();
    }
}

#[test]
fn served_readers_see_what_is_stored() {
    let db = Db::memory();
    shop(&db, with(slow(few()), "whenBehind", "serve"));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let seen = db.count("orders", doc! {"customer.name": "Ann"});
    assert!(seen >= 8, "{seen}");
    // One question, so that no order moves from one name to the other between two.
    assert_eq!(db.count("orders", doc! {"customer.name": {"$in": ["Ann", "Zoe"]}}), 10);
    // A check says what is wrong, not what is late.
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn an_old_snapshot_sees_what_was_true_then() {
    let db = Db::memory();
    shop(&db, slow(few()));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    let mut before = db.transaction(1, 1);
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    rename(&db, 1, "Zoe");
    let mut between = db.transaction(2, 1);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    rename(&db, 1, "Cleo");
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Cleo"}).unwrap(), 0);
    assert_eq!(db.count("orders", doc! {"customer.name": "Cleo"}), 10);
    // Through to the end, and the old ones still see what they saw.
    finish(&db, "orders", "card");
    assert_eq!(before.count("orders", doc! {"customer.name": "Ann"}).unwrap(), 10);
    assert_eq!(between.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    assert_eq!(between.find("orders", doc! {"customer.name": "Zoe", "n": 4}).unwrap().len(), 1);
    before.abort().unwrap();
    between.abort().unwrap();
    expect_true(&db, "orders", "card");
}

#[test]
fn a_large_fan_out_with_reads_and_filters_during_it() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", with(card(), "backfill", doc! {"batch": 500})).unwrap();
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}, doc! {"_id": 2, "name": "Bob"}]);
    db.insert("orders", &numbered(0..20_000, |id| doc! {"customerId": 1 + id % 2, "n": id}));
    db.build("orders", vec![spec(doc! {"customer.name": 1}), spec(doc! {"n": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let mut looks = 0;
    while looks < 3 || lag(&db, "orders", "card") > 0 {
        looks += 1;
        assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 10_000);
        assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 0);
        let few = db.find("orders", doc! {"customer.name": "Zoe", "n": {"$gte": 500, "$lt": 510}});
        assert_eq!(few.len(), 5);
        let id = looks * 2;
        assert_eq!(name_in(&one(&db, "orders", doc! {"_id": id})), "Zoe");
        let set = doc! {"$set": {"seen": true}};
        assert_eq!(
            db.update("orders", doc! {"customer.name": "Zoe", "n": 600 + id}, set).unwrap().modified,
            1
        );
    }
    assert_eq!(stored_names(&db).iter().filter(|name| *name == "Zoe").count(), 10_000);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn references_in_arrays_and_within_copies_are_seen_through() {
    let db = Db::memory();
    make(&db, &["products", "orders", "notes"]);
    declare(
        &db,
        "orders",
        slow(doc! {"name": "items", "maxSync": 1, "extendedReference": {
            "from": "products", "localField": "items.product", "as": "items.copy", "fields": {"title": 1},
        }}),
    )
    .unwrap();
    declare(
        &db,
        "notes",
        slow(doc! {"name": "about", "maxSync": 1, "extendedReference": {
            "from": "products", "localField": "product._id", "as": "product", "fields": {"title": 1},
        }}),
    )
    .unwrap();
    db.insert("products", &[doc! {"_id": 1, "title": "pen"}, doc! {"_id": 2, "title": "ink"}]);
    db.insert("orders", &numbered(0..4, |_| doc! {"items": [{"product": 1}, {"product": 2}]}));
    db.insert("notes", &numbered(0..4, |id| doc! {"product": {"_id": 1 + id % 2}}));
    db.build("orders", vec![spec(doc! {"items.copy.title": 1})]).unwrap();
    db.build("notes", vec![spec(doc! {"product.title": 1})]).unwrap();
    db.update("products", doc! {"_id": 1}, doc! {"$set": {"title": "quill"}}).unwrap();
    assert_eq!(lag(&db, "orders", "items"), 1);
    assert_eq!(lag(&db, "notes", "about"), 1);
    for field in ["items.copy.title", "items.0.copy.title"] {
        assert_eq!(db.find("orders", doc! {field: "quill"}).len(), 4, "{field}");
        assert_eq!(db.find("orders", doc! {field: "pen"}).len(), 0, "{field}");
    }
    assert_eq!(db.find("orders", doc! {"items.copy.title": "ink"}).len(), 4);
    assert_eq!(sorted_ids(&db.find("notes", doc! {"product.title": "quill"})), [0, 2]);
    assert_eq!(sorted_ids(&db.find("notes", doc! {"product._id": 1})), [0, 2]);
    db.update("products", doc! {"_id": 2}, doc! {"$set": {"title": "ash"}}).unwrap();
    assert_eq!(db.find("orders", doc! {"items.copy.title": "ash", "items.1.copy.title": "ash"}).len(), 4);
    expect_true(&db, "orders", "items");
    expect_true(&db, "notes", "about");
    db.check();
}
