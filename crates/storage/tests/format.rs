//! Directories of the formats that were ever released open with all that they hold.
//!
//! `fixtures/format-2` was left by a process that ended without closing: some rows are in the trees, among them a long
//! value and a tree of several levels, and some only in the journal. `make` wrote it and says what is in it. `format-3` is
//! the same with a change log, whose events are in the tree of one segment and in the journal, too. In `format-4` some events end
//! with documents of their own rows.

use kilim_storage::{Counter, Direction, Durability, LogPosition, Options, Space, Store};
use std::ops::Bound;
use std::path::{Path, PathBuf};

const ROWS: u32 = 2_000;

fn options() -> Options {
    Options { cache_bytes: 8 << 20, free_space_reserve_bytes: Some(0), ..Options::default() }
}

/// The newest format, the one in which every event was one row, and the one before there was a change log.
const NEWEST: &str = "format-4";
const WHOLE_EVENTS: &str = "format-3";
const WITHOUT_LOG: &str = "format-2";

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format)
}

/// An event of the change log, which begins with a place for the time of day.
fn event(row: u32) -> Vec<u8> {
    [&[0; 8][..], &row.to_be_bytes(), &value(row)].concat()
}

/// What a record of the third tree holds, in which there are some large ones.
fn document(row: u32) -> Vec<u8> {
    (0..800).map(|at| (row + at) as u8).collect()
}

/// The rows whose events the log has, in order.
fn logged(store: &Store) -> Vec<u32> {
    let rows = store.log_from(&store.snapshot(), LogPosition { time: 1, index: 0 });
    let rows: Vec<(LogPosition, u32)> = rows
        .map(|found| {
            let (at, stored) = found.unwrap();
            let row = u32::from_be_bytes(stored[8..12].try_into().unwrap());
            let expected = event(row);
            let document = if stored.len() > expected.len() { document(row) } else { Vec::new() };
            assert_eq!(stored[8..], [&expected[8..], &document].concat());
            (at, row)
        })
        .collect();
    assert!(rows.iter().all(|(at, _)| at.time > store.log_begins()));
    assert!(rows.is_sorted_by_key(|(at, _)| *at));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn key(tree: u32, row: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&tree.to_be_bytes());
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

fn value(row: u32) -> Vec<u8> {
    let len = if row == 7 { 40_000 } else { 60 };
    // The first eight bytes of a record are its commit time.
    (0..len).map(|at| if at < 8 { 0 } else { (row + at) as u8 }).collect()
}

fn make(store: &Store) {
    for rows in [0..ROWS / 2, ROWS / 2..ROWS] {
        let mut transaction = store.begin();
        for row in rows.clone() {
            transaction.put(Space::Records, key(1, row), value(row));
            transaction.put(Space::Index, key(2, ROWS - row), b"".as_slice());
            transaction.log(event(row));
        }
        for row in rows.clone().take(30) {
            transaction.put(Space::Records, key(3, row), [&[0; 8][..], &document(row)].concat());
            transaction.log_with_document(&event(row), &document(row), &key(3, row));
        }
        transaction.put(Space::Meta, b"cat".as_slice(), b"first".as_slice());
        transaction.add(b"rows", i64::from(ROWS / 2), 0);
        transaction.commit(Durability::Durable).unwrap();
        if rows.start == 0 {
            store.checkpoint().unwrap();
        }
    }
    let mut transaction = store.begin();
    transaction.delete(Space::Records, &key(1, 3));
    transaction.put(Space::Meta, b"cat".as_slice(), b"second".as_slice());
    transaction.add(b"rows", -1, 0);
    transaction.log(event(3));
    transaction.log(event(4));
    transaction.log_at_one_time();
    transaction.commit(Durability::Durable).unwrap();
}

#[test]
#[ignore = "writes the fixture anew, for a new format"]
fn make_fixture() {
    std::fs::remove_dir_all(fixture(NEWEST)).ok();
    let store = Store::open(&fixture(NEWEST), options()).unwrap();
    make(&store);
    drop(store);
}

#[test]
fn a_store_of_format_2_opens_with_all_that_it_holds() {
    opens_with_all_that_it_holds(WITHOUT_LOG, &[]);
}

#[test]
fn a_store_of_format_3_opens_with_all_that_it_holds() {
    let events: Vec<u32> = (0..ROWS).chain([3, 4]).collect();
    opens_with_all_that_it_holds(WHOLE_EVENTS, &events);
}

#[test]
fn a_store_of_format_4_opens_with_all_that_it_holds() {
    let halves = [0..ROWS / 2, ROWS / 2..ROWS];
    let events = halves.into_iter().flat_map(|rows| rows.clone().chain(rows.take(30)));
    opens_with_all_that_it_holds(NEWEST, &events.chain([3, 4]).collect::<Vec<u32>>());
}

fn opens_with_all_that_it_holds(format: &str, events: &[u32]) {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(format)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    for round in ["as it was left", "after a clean stop"] {
        let store = Store::open(dir.path(), options()).unwrap();
        let snapshot = store.snapshot();
        let behind = 2u32.to_be_bytes();
        let rows: Vec<u32> = snapshot
            .scan(Space::Records, Bound::Unbounded, Bound::Excluded(&behind), Direction::Forward)
            .map(|row| {
                let (found, stored) = row.unwrap();
                let row = u32::from_be_bytes(found[8..].try_into().unwrap());
                assert_eq!(found[..], key(1, row));
                assert_eq!(stored[8..], value(row)[8..], "{round}: {row}");
                row
            })
            .collect();
        let expected: Vec<u32> = (0..ROWS).filter(|row| *row != 3).collect();
        assert_eq!(rows, expected, "{round}");
        let entries = snapshot.scan(Space::Index, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        assert_eq!(entries.filter(|row| row.is_ok()).count(), ROWS as usize, "{round}");
        assert_eq!(snapshot.get(Space::Meta, b"cat").unwrap().as_deref(), Some(b"second".as_slice()));
        assert_eq!(snapshot.counter(b"rows").unwrap(), Counter { count: i64::from(ROWS) - 1, bytes: 0 });
        drop(snapshot);
        assert_eq!(logged(&store), events, "{round}");
        store.close().unwrap();
    }
}
