//! `validate` finds what is made wrong on purpose, through the store's own door.

use std::ops::Bound;

use kilim_bson::doc;
use kilim_engine::layout;
use kilim_storage::{Direction, Durability, Space, Transaction};

use crate::support::{Db, ns, numbered, spec, unique};

fn damaged(damage: impl FnOnce(&Db, &mut Transaction)) -> Vec<String> {
    let db = Db::memory();
    db.insert("c", &numbered(0..50, |id| doc! {"a": id, "u": id}));
    db.build("c", vec![spec(doc! {"a": 1}), unique(doc! {"u": 1})]).unwrap();
    db.check();
    let mut transaction = db.engine.store.begin();
    damage(&db, &mut transaction);
    transaction.commit(Durability::Durable).unwrap();
    db.faults()
}

/// The entries of an index, as stored.
fn entries(db: &Db, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let id = db.engine.collection(&ns("c")).unwrap().index_named(name).unwrap().id;
    let (lower, upper) = (id.0.to_be_bytes(), (id.0 + 1).to_be_bytes());
    let snapshot = db.engine.store.snapshot();
    snapshot
        .scan(Space::Index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward)
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

fn records(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let id = db.engine.collection(&ns("c")).unwrap().id.0;
    let (lower, upper) = (id.to_be_bytes(), (id + 1).to_be_bytes());
    let snapshot = db.engine.store.snapshot();
    snapshot
        .scan(Space::Records, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward)
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

#[test]
fn a_lost_entry_is_found() {
    for name in ["_id_", "a_1", "u_1"] {
        let faults = damaged(|db, transaction| transaction.delete(Space::Index, &entries(db, name)[7].0));
        assert_eq!(faults.len(), 2, "the entry and the number of them: {faults:?}");
        assert!(faults.iter().all(|fault| fault.contains(name)), "{faults:?}");
    }
}

#[test]
fn a_stray_entry_is_found() {
    for name in ["_id_", "a_1", "u_1"] {
        let faults = damaged(|db, transaction| {
            let (mut key, value) = entries(db, name).swap_remove(7);
            key.insert(5, 1);
            transaction.put(Space::Index, key, value);
        });
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains(name), "{faults:?}");
    }
}

#[test]
fn an_entry_of_another_record_is_found() {
    let faults = damaged(|db, transaction| {
        let mut all = entries(db, "u_1");
        let other = all[8].1.clone();
        transaction.put(Space::Index, all.swap_remove(7).0, other);
    });
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[test]
fn a_wrong_count_and_a_wrong_size_are_found() {
    for (count, bytes) in [(1, 0), (0, -3)] {
        let faults = damaged(|db, transaction| {
            let id = db.engine.collection(&ns("c")).unwrap().id;
            transaction.add(&layout::counter_key(id), count, bytes);
        });
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
}

#[test]
fn a_lost_record_is_found() {
    let faults = damaged(|db, transaction| transaction.delete(Space::Records, &records(db)[3].0));
    assert!(faults.iter().any(|fault| fault.contains("_id_")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("count")), "{faults:?}");
}

#[test]
fn a_record_that_is_no_document_is_found() {
    let faults = damaged(|db, transaction| {
        let (key, mut value) = records(db).swap_remove(3);
        let middle = layout::STAMP_BYTES + 4;
        value[middle] = 0x7e;
        transaction.put(Space::Records, key, value);
    });
    assert!(faults.iter().any(|fault| fault.contains("not valid BSON")), "{faults:?}");
}

#[test]
fn arrays_that_the_catalog_does_not_know_are_found() {
    let faults = damaged(|db, transaction| {
        let (key, _) = records(db).swap_remove(3);
        let mut value = vec![0; layout::STAMP_BYTES];
        value.extend_from_slice(doc! {"_id": 3, "a": [3], "u": 3}.as_bytes());
        transaction.put(Space::Records, key, value);
    });
    assert!(faults.iter().any(|fault| fault.contains("multikey")), "{faults:?}");
}

#[test]
fn a_record_that_an_index_cannot_hold_is_found() {
    let db = Db::memory();
    db.insert("c", &numbered(0..5, |id| doc! {"a": id, "b": id}));
    db.build("c", vec![spec(doc! {"a": 1, "b": 1})]).unwrap();
    let mut transaction = db.engine.store.begin();
    let (key, _) = records(&db).swap_remove(3);
    let mut value = vec![0; layout::STAMP_BYTES];
    value.extend_from_slice(doc! {"_id": 3, "a": [1, 2], "b": [1, 2]}.as_bytes());
    transaction.put(Space::Records, key, value);
    transaction.commit(Durability::Durable).unwrap();
    assert!(db.faults().iter().any(|fault| fault.contains("a_1_b_1")), "{:?}", db.faults());
}
