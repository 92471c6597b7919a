//! What is read of a store whose pages, directory, superblocks or journal are damaged.

use kilim_storage::salvage::Remains;
use kilim_storage::{Durability, Options, Space, Store};
use std::collections::BTreeMap;
use std::path::Path;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(tree: u32, row: u64) -> Vec<u8> {
    [&tree.to_be_bytes()[..], &row.to_be_bytes()].concat()
}

/// Bytes that do not compress.
fn value(row: u64, round: u64) -> Vec<u8> {
    let mut state = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round) | 1;
    let bytes = if row % 100 == 7 { 20_000 } else { 400 };
    let noise = (0..bytes).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    [0; 8].into_iter().chain(noise).collect()
}

/// Two trees of records in several checkpoints, with changes and deletions, and some rows in the journal only.
fn fill(dir: &Path) -> BTreeMap<u32, Rows> {
    let store = Store::open(dir, Options { cache_bytes: 32 << 20, ..Options::default() }).unwrap();
    let mut expected: BTreeMap<u32, Rows> = BTreeMap::new();
    for round in 0..6u64 {
        for tree in 1..=2u32 {
            let rows = expected.entry(tree).or_default();
            let mut transaction = store.begin();
            for row in (0..1500).filter(|row| round == 0 || row % 7 == round) {
                transaction.put(Space::Records, key(tree, row), value(row, round));
                rows.insert(key(tree, row), value(row, round)[8..].to_vec());
            }
            for row in (0..1500).filter(|row| round > 0 && row % 31 == round) {
                transaction.delete(Space::Records, &key(tree, row));
                rows.remove(&key(tree, row));
            }
            transaction.put(Space::Meta, format!("m{tree}").into_bytes(), vec![round as u8]);
            transaction.commit(Durability::Durable).unwrap();
        }
        if round < 5 {
            store.checkpoint().unwrap();
        }
    }
    expected
}

fn rows(remains: &Remains, tree: u32) -> Rows {
    let all: Vec<_> =
        remains.rows(Space::Records, tree).map(|(key, value)| (key, value[8..].to_vec())).collect();
    assert!(all.is_sorted_by(|a, b| a.0 < b.0), "rows come in order, once each");
    all.into_iter().collect()
}

/// Damages a byte of every page that is one of these.
fn damage(dir: &Path, which: impl Fn(u8, u8, u32) -> bool, most: usize) -> usize {
    let path = dir.join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut damaged = 0;
    for at in (2..bytes.len() / 4096).map(|block| block * 4096) {
        let prefix = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap());
        if bytes[at + 8..at + 12] == *b"KPag"
            && which(bytes[at + 12], bytes[at + 14], prefix)
            && damaged < most
        {
            bytes[at + 55] ^= 1;
            damaged += 1;
        }
    }
    std::fs::write(&path, bytes).unwrap();
    damaged
}

#[test]
fn a_whole_store_is_read_wholly() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path());
    let remains = Remains::open(dir.path()).unwrap();
    assert_eq!(remains.trees(Space::Records), [1, 2]);
    for (tree, expected) in expected {
        assert!(rows(&remains, tree) == expected);
    }
    assert_eq!(remains.rows(Space::Meta, 0).filter(|(key, _)| key[0] == b'm').count(), 2);
    assert!(remains.losses().is_empty() && remains.notes().is_empty());
}

#[test]
fn nothing_is_lost_with_the_inner_pages_and_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path());
    // Levels between leaves and long values, and every page of the directory but the free-space map.
    let inner = |level: u8, space: u8, _: u32| (1..200).contains(&level) || (space == u8::MAX && level == 0);
    assert!(damage(dir.path(), inner, usize::MAX) > 2);
    let remains = Remains::open(dir.path()).unwrap();
    assert_eq!(remains.trees(Space::Records), [1, 2]);
    for (tree, expected) in expected {
        assert!(rows(&remains, tree) == expected, "tree {tree}");
    }
    assert!(!remains.losses().is_empty());
}

#[test]
fn a_damaged_leaf_costs_its_rows_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path());
    damage(dir.path(), |level, space, tree| (level, space, tree) == (0, 1, 1), usize::MAX);
    let remains = Remains::open(dir.path()).unwrap();
    assert!(rows(&remains, 2) == expected[&2]);
    // What the journal has is there all the same.
    let found = rows(&remains, 1);
    assert!(found.len() > 100 && found.iter().all(|(key, value)| expected[&1].get(key) == Some(value)));
    let losses = remains.losses();
    assert!(
        losses.len() > 3 && losses.iter().all(|loss| loss.tree == Some((Space::Records, 1))),
        "{losses:?}"
    );
    assert!(losses[1].from < losses[1].to.clone().unwrap());
}

#[test]
fn without_superblocks_the_trees_are_put_together_from_their_pages() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path());
    let path = dir.path().join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..8192].fill(7);
    std::fs::write(&path, bytes).unwrap();
    let remains = Remains::open(dir.path()).unwrap();
    assert_eq!(remains.trees(Space::Records), [1, 2]);
    for (tree, expected) in expected {
        // Without the journal, and with what an earlier state may have left.
        let found = rows(&remains, tree);
        let known = found.keys().filter(|key| expected.contains_key(*key)).count();
        assert!(known * 10 > expected.len() * 8, "{known} of {}", expected.len());
    }
    assert!(remains.notes().iter().any(|note| note.contains("superblocks")), "{:?}", remains.notes());
}

#[test]
fn batches_behind_a_hole_in_the_journal_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let expected = fill(dir.path());
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut holes = 0;
    for path in names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal.")) {
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        // The first batch of the segment behind the note of an epoch, which is of the first tree if it is needed at all.
        bytes[4096 + 72 + 100] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let remains = Remains::open(dir.path()).unwrap();
        if remains.notes().iter().any(|note| note.contains("cannot be read; those behind them were taken")) {
            holes += 1;
            assert!(rows(&remains, 2) == expected[&2]);
            assert!(rows(&remains, 1) != expected[&1]);
        }
        drop(remains);
        std::fs::write(&path, whole).unwrap();
    }
    assert_eq!(holes, 1);
}
