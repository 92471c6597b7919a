//! What writers do while maintenance is behind: they find and write what is true, say what they leave, and wait
//! where too much is left.

use std::time::Duration;

use kilim_bson::doc;
use kilim_engine::patterns::JobKind;
use kilim_error::ErrorCode;

use super::{
    expect_seen, expect_true, few, finish, kill_jobs, lag, name_in, rename, shop, slow, stored_names,
    wait_until_even, with,
};
use crate::pattern::{card, declare, make};
use crate::support::{Db, Updating, find_and_modify, numbered, spec, update_with};

#[test]
fn a_write_tells_what_it_left() {
    let db = Db::memory();
    shop(&db, slow(few()));
    let set = |name: &str| doc! {"$set": {"name": name}};
    let caused = db
        .run(|unit| {
            update_with(unit, "customers", doc! {"_id": 1}, set("Zoe"), Updating::One)?;
            Ok(unit.caused.clone())
        })
        .unwrap();
    assert_eq!(caused.maintained, 0);
    let pending = caused.pending.unwrap();
    assert_eq!(pending.documents, 10);
    let jobs = db.engine.jobs.lock().clone();
    let job = jobs.iter().find(|job| job.kind == JobKind::FanOut).unwrap();
    assert_eq!(job.id, pending.job);
    assert_eq!(job.state(), "running");
    let caused = db
        .run(|unit| {
            update_with(unit, "customers", doc! {"_id": 2}, set("Bert"), Updating::One)?;
            Ok(unit.caused.clone())
        })
        .unwrap();
    assert_eq!(caused.maintained, 2);
    assert_eq!(caused.pending, None);
}

#[test]
fn writers_find_and_write_what_is_true() {
    let db = Db::memory();
    shop(&db, slow(few()));
    db.build("orders", vec![spec(doc! {"customer.name": 1})]).unwrap();
    rename(&db, 1, "Zoe");
    let set = |value: i32| doc! {"$set": {"x": value}};
    assert_eq!(db.update_many("orders", doc! {"customer.name": "Ann"}, set(1)).unwrap().matched, 0);
    assert_eq!(
        db.update_many("orders", doc! {"customer.name": "Zoe", "n": {"$lt": 5}}, set(2)).unwrap().matched,
        5
    );
    assert!(stored_names(&db).iter().filter(|name| *name == "Zoe").count() >= 5);
    let modified = db
        .run(|unit| find_and_modify(unit, "orders", doc! {"customer.name": "Zoe", "n": 7}, set(3), None))
        .unwrap();
    assert_eq!(name_in(&modified.value.unwrap()), "Zoe");
    assert_eq!(db.delete("orders", doc! {"customer.name": "Ann"}).unwrap(), 0);
    assert_eq!(db.delete("orders", doc! {"customer.name": "Zoe", "n": 9}).unwrap(), 1);
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 9);
    // A new one, and one that comes over, have the newest.
    db.insert("orders", &[doc! {"_id": 20, "customerId": 1}]);
    db.update("orders", doc! {"_id": 10}, doc! {"$set": {"customerId": 1}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 11);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_transaction_sees_what_it_left_itself() {
    let db = Db::memory();
    shop(&db, few());
    let mut transaction = db.transaction(1, 1);
    transaction.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Zoe"}}).unwrap();
    assert_eq!(transaction.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    transaction.update("orders", doc! {"customer.name": "Zoe", "n": 3}, doc! {"$set": {"x": 1}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Ann"}), 10);
    transaction.commit().unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 10);
    wait_until_even(&db, "orders", "card");
    expect_seen(&db, "Zoe", "Ann");
    // One that is given up leaves nothing.
    let mut transaction = db.transaction(1, 2);
    transaction.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Nobody"}}).unwrap();
    transaction.abort().unwrap();
    expect_seen(&db, "Zoe", "Nobody");
    wait_until_even(&db, "orders", "card");
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn who_writes_what_he_saw_is_not_overtaken() {
    let db = Db::memory();
    shop(&db, slow(few()));
    rename(&db, 1, "Zoe");
    // Order 9 is stored with the first name, and will have it again.
    let mut late = db.transaction(1, 1);
    assert_eq!(late.count("orders", doc! {"customer.name": "Zoe"}).unwrap(), 10);
    let mut early = db.transaction(2, 1);
    early.update("orders", doc! {"_id": 9}, doc! {"$set": {"x": 1}}).unwrap();
    let back = db.run_limited(Some(Duration::from_millis(200)), |unit| {
        update_with(unit, "customers", doc! {"_id": 1}, doc! {"$set": {"name": "Ann"}}, Updating::One)
    });
    assert_eq!(back.unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    early.commit().unwrap();
    rename(&db, 1, "Ann");
    late.update("orders", doc! {"_id": 8}, doc! {"$set": {"x": 1}}).unwrap_err();
    finish(&db, "orders", "card");
    assert_eq!(stored_names(&db)[..10], vec!["Ann"; 10]);
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn the_sixty_fifth_source_waits() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", slow(with(card(), "maxSync", 0))).unwrap();
    db.insert("customers", &numbered(0..70, |_| doc! {"name": "Ann"}));
    db.insert("orders", &numbered(0..70, |id| doc! {"customerId": id}));
    for id in 0..64 {
        rename(&db, id, "Zoe");
    }
    let rename_quickly = |id: i32| {
        db.run_limited(Some(Duration::from_millis(300)), |unit| {
            let set = doc! {"$set": {"name": "Zoe"}};
            update_with(unit, "customers", doc! {"_id": id}, set, Updating::One)
        })
    };
    assert!((63..=64).contains(&lag(&db, "orders", "card")));
    // The job may have come to the end of one.
    let second = rename_quickly(64).and_then(|_| rename_quickly(65));
    assert_eq!(second.unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    // One that is pending already needs no room.
    rename_quickly(63).unwrap();
    // Where nobody makes room, the write does all of it.
    kill_jobs(&db);
    rename_quickly(66).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe", "customerId": 66}), 1);
    expect_true(&db, "orders", "card");
    finish(&db, "orders", "card");
    expect_true(&db, "orders", "card");
    db.check();
}

#[test]
fn a_statement_of_many_sources_waits_its_way_through() {
    let db = Db::memory();
    make(&db, &["customers", "orders"]);
    declare(&db, "orders", with(card(), "maxSync", 0)).unwrap();
    db.insert("customers", &numbered(0..200, |_| doc! {"name": "Ann"}));
    db.insert("orders", &numbered(0..200, |id| doc! {"customerId": id}));
    db.update_many("customers", doc! {}, doc! {"$set": {"name": "Zoe"}}).unwrap();
    assert_eq!(db.count("orders", doc! {"customer.name": "Zoe"}), 200);
    wait_until_even(&db, "orders", "card");
    assert_eq!(stored_names(&db), vec!["Zoe"; 200]);
    db.check();
}
