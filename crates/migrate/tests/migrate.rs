//! Old directories, made with fjall as the Kilim of their time made them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use kilim_migrate::migrate;
use kilim_storage::check::check;
use kilim_storage::{Direction, Durability, Options, Space, Store};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const CLOCK: u64 = (4_000_000_000 << 32) | 7;

/// Rows of three spaces; records and index entries of several trees.
fn rows() -> [Rows; 3] {
    let mut meta = Rows::new();
    meta.insert(b"\0c".iter().chain(b"n\0\0\0\x01").copied().collect(), vec![1; 16]);
    meta.insert(b"c\0\0\0\x01".to_vec(), vec![5; 40]);
    let (mut records, mut index) = (Rows::new(), Rows::new());
    for tree in 1..=3u32 {
        for row in 0..2000u64 {
            let mut key = tree.to_be_bytes().to_vec();
            key.extend(row.to_be_bytes());
            let mut value = (CLOCK - row).to_le_bytes().to_vec();
            value.extend(vec![row as u8; if row % 500 == 0 { 100_000 } else { 50 }]);
            index.insert([&tree.to_be_bytes()[..], &row.to_le_bytes()].concat(), vec![]);
            records.insert(key, value);
        }
    }
    [meta, records, index]
}

fn make_old(dir: &Path, version: u32) {
    let database = Database::builder(dir).open().unwrap();
    let all = rows();
    for (rows, name) in all.iter().zip(["meta", "records", "index"]) {
        let keyspace = database.keyspace(name, KeyspaceCreateOptions::default).unwrap();
        for (at, (key, value)) in rows.iter().enumerate() {
            keyspace.insert(key, value).unwrap();
            // Some rows lie in tables, others in the journal only.
            if at == rows.len() / 2 {
                keyspace.rotate_memtable_and_wait().unwrap();
            }
        }
        if name == "meta" {
            keyspace.insert(b"\0v", [b"kilim\0db".as_slice(), &version.to_le_bytes()].concat()).unwrap();
            keyspace.insert(b"\0t", CLOCK.to_le_bytes()).unwrap();
        }
    }
    database.keyspace("changes", KeyspaceCreateOptions::default).unwrap().insert("a", "b").unwrap();
    database.persist(PersistMode::SyncAll).unwrap();
}

fn read(store: &Store, space: Space) -> Rows {
    let snapshot = store.snapshot();
    let scan = snapshot.scan(space, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    scan.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

#[test]
fn an_old_directory_becomes_a_new_one_with_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    make_old(&old, 1);
    let refusal = Store::open(&old, Options::default()).err().unwrap().to_string();
    assert!(refusal.contains("kilim migrate"), "{refusal}");

    let migrated = migrate(&old, &new).unwrap();
    assert_eq!((migrated.rows, migrated.commit_time), ([2, 6000, 6000], CLOCK));
    assert!(!dir.path().join("new.unfinished").exists());
    let report = check(&new).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");

    let store = Store::open(&new, Options::default()).unwrap();
    assert_eq!(store.snapshot().counter(b"n\0\0\0\x01").unwrap().count, 0x0101_0101_0101_0101);
    for (space, mut expected) in Space::ALL.into_iter().zip(rows()) {
        // Scans of `meta` do not show the store's own keys, such as counters.
        expected.retain(|key, _| space != Space::Meta || key[0] != 0);
        assert!(read(&store, space) == expected, "{space:?}");
    }
    // The clock goes on from where it was, although the wall's is behind.
    assert_eq!(store.last_commit_time(), CLOCK);
    let mut transaction = store.begin();
    transaction.put(Space::Meta, b"x".to_vec(), vec![]);
    assert!(transaction.commit(Durability::Durable).unwrap() > CLOCK);
    // The old one is still there, and can be read again.
    assert_eq!(migrate(&old, &dir.path().join("again")).unwrap(), migrated);
}

#[test]
fn a_torn_end_of_the_old_journal_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    make_old(&old, 1);
    let names = std::fs::read_dir(&old).unwrap().map(|entry| entry.unwrap().path());
    let mut journals: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|end| end == "jnl")).collect();
    journals.sort();
    let path = journals.last().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end);
    // The beginning of a batch that says it has three items.
    bytes.extend([1, 3, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 2, 0]);
    std::fs::write(path, bytes).unwrap();
    assert_eq!(migrate(&old, &new).unwrap().rows, [2, 6000, 6000]);
}

#[test]
fn what_cannot_be_migrated_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    make_old(&path("newer"), 9);
    make_old(&path("old"), 1);
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full/file"), "").unwrap();
    for (old, out, why) in [
        ("missing", "new", "no directory of an earlier Kilim"),
        ("newer", "new", "unknown format version 9"),
        ("old", "full", "not empty"),
    ] {
        let error = migrate(&path(old), &path(out)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!path("new").exists() && !path("new.unfinished").exists());
    }
    let _open = Database::builder(path("old")).open().unwrap();
    let error = migrate(&path("old"), &path("new")).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}
