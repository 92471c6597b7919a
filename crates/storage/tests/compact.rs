//! Compaction: space comes back, rows stay, readers and writers go on.

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

/// Bytes that do not compress.
fn value(row: u64, bytes: usize) -> Vec<u8> {
    let mut state = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = vec![0; 8];
    value.extend((0..bytes).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    }));
    value
}

fn rows(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let scan = snapshot.scan(Space::Records, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    scan.map(|row| row.map(|(key, value)| (key.to_vec(), value[8..].to_vec())).unwrap()).collect()
}

fn fill(store: &Store, trees: u32, count: u64, bytes: usize) {
    for from in (0..count).step_by(500) {
        let mut transaction = store.begin();
        for tree in 1..=trees {
            for row in from..(from + 500).min(count) {
                let bytes = if row % 97 == 0 { 20_000 } else { bytes };
                transaction.put(Space::Records, key(tree, row), value(row + u64::from(tree), bytes));
            }
        }
        transaction.commit(Durability::Relaxed).unwrap();
        // Rows of all trees lie between each other in the file.
        if from % 2000 == 0 {
            store.checkpoint().unwrap();
        }
    }
    store.checkpoint().unwrap();
}

const ONE: [(Space, [u8; 4]); 1] = [(Space::Records, [0, 0, 0, 1])];

#[test]
fn what_deletions_left_scattered_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    fill(&store, 2, 10_000, 1000);
    let mut transaction = store.begin();
    for row in (0..10_000).filter(|row| row % 10 != 0) {
        transaction.delete(Space::Records, &key(1, row));
    }
    transaction.commit(Durability::Durable).unwrap();
    store.checkpoint().unwrap();
    let (before, expected) = (store.disk_bytes(), rows(&store.snapshot()));

    let mut told = Vec::new();
    let compacted = store.compact(&ONE, &mut |done, total| {
        told.push((done, total));
        Ok(())
    });
    let compacted = compacted.unwrap();
    assert_eq!((compacted.bytes_before, compacted.bytes_after), (before, store.disk_bytes()));
    assert!(compacted.freed_bytes() > 2 << 20, "{compacted:?}");
    assert!(told.is_sorted() && told.last().is_some_and(|(done, total)| done == total && *total > 0));
    assert!(rows(&store.snapshot()) == expected);
    // Once more changes little.
    let again = store.compact(&ONE, &mut |_, _| Ok(())).unwrap();
    assert!(again.bytes_after <= compacted.bytes_after + (1 << 20), "{again:?} {compacted:?}");
    store.close().unwrap();

    let report = check(dir.path()).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    let store = Store::open(dir.path(), options()).unwrap();
    assert!(rows(&store.snapshot()) == expected);
}

#[test]
fn readers_and_writers_go_on_beside_several_portions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    fill(&store, 1, 30_000, 1500);
    let mut expected = rows(&store.snapshot());
    let (before, mut portions) = (store.snapshot(), 0u64);
    let compacted = store.compact(&ONE, &mut |_, _| {
        portions += 1;
        let mut transaction = store.begin();
        let (changed, deleted, added) =
            (key(1, portions * 7), key(1, portions * 11), key(1, 100_000 + portions));
        let new = value(portions, 500);
        for key in [&changed, &added] {
            transaction.put(Space::Records, key.clone(), new.clone());
            expected.insert(key.clone(), new[8..].to_vec());
        }
        transaction.delete(Space::Records, &deleted);
        expected.remove(&deleted);
        transaction.commit(Durability::Durable)?;
        store.checkpoint()
    });
    compacted.unwrap();
    assert!(portions > 3, "{portions}");
    assert!(rows(&store.snapshot()) == expected);
    assert_eq!(rows(&before).len(), 30_000);
    drop(before);
    store.close().unwrap();
    let report = check(dir.path()).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
}

#[test]
fn a_compaction_that_is_ended_leaves_a_whole_tree() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    fill(&store, 1, 30_000, 1500);
    let expected = rows(&store.snapshot());
    let mut left = 2;
    let ended = store.compact(&ONE, &mut |_, _| {
        left -= 1;
        match left {
            0 => Err(kilim_error::Error::bug("ended by the test")),
            _ => Ok(()),
        }
    });
    assert!(ended.is_err());
    assert!(rows(&store.snapshot()) == expected);
    // And without the store being closed.
    drop(store);
    let report = check(dir.path()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn pages_of_an_open_store_can_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    fill(&store, 2, 1000, 1000);
    let mut bytes = 0;
    let mut problems = Vec::new();
    let mut pace = |read| {
        bytes += read;
        Ok(())
    };
    for (space, prefix) in store.trees() {
        problems.extend(store.check_tree(space, prefix, &mut pace).unwrap());
    }
    assert!(problems.is_empty(), "{problems:?}");
    assert!(bytes > 2_000_000, "{bytes}");
}
