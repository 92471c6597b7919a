//! The offline check: finds nothing in a whole store, and names what is damaged in another.

use kilim_storage::check::{check, open_to_look};
use kilim_storage::{Durability, Options, Space, Store};
use std::collections::BTreeMap;
use std::path::Path;

fn options() -> Options {
    Options { cache_bytes: 32 << 20, ..Options::default() }
}

fn key(tree: u32, row: u64) -> Vec<u8> {
    [&tree.to_be_bytes()[..], &row.to_be_bytes()].concat()
}

fn value(row: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; 8];
    value.extend((0..bytes).map(|at| (at as u64 * 31 + row) as u8 ^ (row >> 3) as u8));
    value
}

/// Three trees of records, one with long values, some rows of each only in the journal.
fn fill(dir: &Path) {
    let store = Store::open(dir, options()).unwrap();
    for round in 0..2u64 {
        for tree in 1..=3u32 {
            let mut transaction = store.begin();
            for row in 0..300u64 {
                let bytes = if tree == 3 && row % 10 == 0 { 40_000 } else { 300 };
                transaction.put(Space::Records, key(tree, round * 300 + row), value(row, bytes));
            }
            transaction.put(Space::Meta, format!("m{tree}-{round}").into_bytes(), vec![1]);
            transaction.commit(Durability::Durable).unwrap();
        }
        if round == 0 {
            store.checkpoint().unwrap();
        }
    }
}

/// Every file with its bytes.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

#[test]
fn a_whole_store_is_clean_and_the_check_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let before = contents(dir.path());
    let report = check(dir.path()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.leaked_bytes, 0, "{report:?}");
    assert!(report.notes.is_empty(), "{report:?}");
    assert!(report.journal_batches > 0, "{report:?}");
    let records: Vec<_> =
        report.trees.iter().filter(|tree| tree.space == Space::Records).map(|tree| tree.rows).collect();
    assert_eq!(records, [300, 300, 300]);
    assert!(before == contents(dir.path()));
}

#[test]
fn what_is_written_to_a_store_that_is_looked_at_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let before = contents(dir.path());
    let store = open_to_look(dir.path(), options()).unwrap();
    assert!(store.snapshot().get(Space::Records, &key(1, 599)).unwrap().is_some());
    let mut transaction = store.begin();
    transaction.put(Space::Records, key(1, 10_000), value(1, 100));
    transaction.commit(Durability::Durable).unwrap();
    store.checkpoint().unwrap();
    assert!(store.snapshot().get(Space::Records, &key(1, 10_000)).unwrap().is_some());
    store.close().unwrap();
    assert!(before == contents(dir.path()));
}

#[test]
fn a_flipped_bit_in_any_page_is_found() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("kilim.db");
    let good = std::fs::read(&path).unwrap();
    let mut found = 0;
    // The two superblocks and what is free may be damaged without harm.
    for block in (2..good.len() / 4096).step_by(3) {
        let mut bad = good.clone();
        bad[block * 4096 + 60] ^= 16;
        std::fs::write(&path, &bad).unwrap();
        let report = check(dir.path()).unwrap();
        if !report.is_clean() {
            found += 1;
            let told = format!("{report:?}");
            assert!(told.contains("block") && told.contains("damaged"), "{told}");
        }
    }
    assert!(found * 3 * 2 > good.len() / 4096, "{found} of {}", good.len() / 4096 / 3);
}

#[test]
fn a_damaged_tree_is_named_and_the_others_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page says "KPag" behind its checksum, is a leaf and belongs to records 2.
    let page = (2..bytes.len() / 4096)
        .map(|block| block * 4096)
        .find(|&at| bytes[at + 8..at + 13] == *b"KPag\0" && bytes[at + 14..at + 20] == [1, 0, 2, 0, 0, 0])
        .unwrap();
    bytes[page + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let report = check(dir.path()).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let damaged: Vec<_> = report.trees.iter().filter(|tree| !tree.problems.is_empty()).collect();
    assert_eq!(damaged.len(), 1, "{report:?}");
    assert_eq!((damaged[0].space, damaged[0].prefix), (Space::Records, 2));
    assert!(damaged[0].problems[0].contains(&format!("at block {}", page / 4096)), "{report:?}");
    assert!(report.trees.len() >= 4);
}

#[test]
fn a_damaged_journal_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let damaged = contents(dir.path()).into_iter().filter(|(name, _)| name.starts_with("journal.")).any(
        |(name, bytes)| {
            let mut bad = bytes.clone();
            bad[4096 + 80] ^= 1;
            std::fs::write(dir.path().join(&name), bad).unwrap();
            let is_clean = check(dir.path()).unwrap().is_clean();
            std::fs::write(dir.path().join(&name), bytes).unwrap();
            !is_clean
        },
    );
    assert!(damaged);
    assert!(check(dir.path()).unwrap().is_clean());
}

#[test]
fn what_is_no_store_or_in_use_cannot_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(check(&missing).is_err());
    assert!(!missing.exists());
    assert!(check(dir.path()).unwrap_err().to_string().contains("no kilim.db"));
    let used = dir.path().join("used");
    let _store = Store::open(&used, options()).unwrap();
    assert!(check(&used).unwrap_err().to_string().contains("in use"));
}
