//! A copy of a store that is written to meanwhile.

use kilim_storage::backup::Receiver;
use kilim_storage::check::check;
use kilim_storage::{Direction, Durability, Options, Snapshot, Space, Store};
use std::collections::BTreeMap;
use std::ops::Bound;

fn options() -> Options {
    Options { cache_bytes: 32 << 20, ..Options::default() }
}

fn key(tree: u32, row: u64) -> Vec<u8> {
    [&tree.to_be_bytes()[..], &row.to_be_bytes()].concat()
}

fn rows(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let scan = snapshot.scan(Space::Records, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    scan.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn write(store: &Store, round: u64) {
    let mut transaction = store.begin();
    for row in 0..400u64 {
        let bytes = if row % 50 == 0 { 30_000 } else { 200 };
        let value = [vec![0; 8], vec![(row ^ round) as u8; bytes]].concat();
        transaction.put(Space::Records, key(1 + (row % 3) as u32, row * 7 % 2000 + round % 11), value);
        if row % 4 == 0 {
            transaction.delete(Space::Records, &key(1, row + round));
        }
    }
    transaction.commit(Durability::Durable).unwrap();
}

#[test]
fn a_copy_has_the_state_that_was_held_whatever_is_written_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), options()).unwrap();
    for round in 0..10 {
        write(&store, round);
        store.checkpoint().unwrap();
    }
    let expected = rows(&store.snapshot());
    let (held, time) = (store.hold().unwrap(), store.last_commit_time());
    let out = dir.path().join("copy");
    let receiver = Receiver::begin(&out, &held.superblock()).unwrap();
    let (mut offset, mut received, mut round) = (0, 0, 100);
    while let Some((at, bytes)) = held.read(offset, 20_000).unwrap() {
        receiver.write(at, &bytes).unwrap();
        offset = at + bytes.len() as u64;
        received += bytes.len() as u64;
        // Checkpoints that free pages of the state that is copied.
        if round < 120 {
            write(&store, round);
            store.checkpoint().unwrap();
            round += 1;
        }
    }
    assert!(round > 110);
    assert_eq!(received, held.bytes());
    drop(held);
    assert!(receiver.write(0, &[0; 4096]).is_err());
    receiver.finish().unwrap();
    assert!(rows(&store.snapshot()) != expected);

    let report = check(&out).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    let copy = Store::open(&out, options()).unwrap();
    assert!(rows(&copy.snapshot()) == expected);
    assert_eq!(copy.last_commit_time(), time);
    // Both go on for themselves.
    write(&copy, 7);
    copy.close().unwrap();
    store.close().unwrap();
    assert!(check(&dir.path().join("data")).unwrap().is_clean());
}

#[test]
fn a_copy_that_was_not_finished_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), options()).unwrap();
    write(&store, 1);
    let held = store.hold().unwrap();
    let out = dir.path().join("copy");
    let receiver = Receiver::begin(&out, &held.superblock()).unwrap();
    let (at, bytes) = held.read(0, 4096).unwrap().unwrap();
    receiver.write(at, &bytes).unwrap();
    let unfinished = dir.path().join("copy.unfinished");
    let error = Receiver::begin(&out, &held.superblock()).err().unwrap().to_string();
    assert!(error.contains("in use"), "{error}");
    drop(receiver);
    assert!(!out.exists() && unfinished.exists());
    // The next run replaces what was left, and nothing that somebody else may have put there.
    Receiver::begin(&out, &held.superblock()).unwrap().give_up().unwrap();
    assert!(!unfinished.exists());
    drop(Store::open(&unfinished, options()).unwrap());
    let error = Receiver::begin(&out, &held.superblock()).err().unwrap().to_string();
    assert!(error.contains("copy.unfinished: it is in the way"), "{error}");
    assert!(unfinished.join("kilim.db").exists());
    let receiver = Receiver::begin(&dir.path().join("third"), &held.superblock()).unwrap();
    receiver.give_up().unwrap();
    assert!(!dir.path().join("third.unfinished").exists());
    assert!(Receiver::begin(&dir.path().join("other"), &[0; 4096]).is_err());
}
