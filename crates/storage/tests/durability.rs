//! What survives: reopening without closing, dropped collections, full disks, foreign directories.

use kilim_error::{Error, StorageError};
use kilim_storage::{Counter, Direction, Durability, Options, Space, Store};
use kilim_testkit::eventually;
use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, Instant};

fn options() -> Options {
    Options { cache_bytes: 16 << 20, free_space_reserve_bytes: Some(0), ..Options::default() }
}

fn open(dir: &Path) -> Store {
    Store::open(dir, options()).unwrap()
}

fn rows_under(store: &Store, space: Space, prefix: &[u8]) -> usize {
    store
        .snapshot()
        .scan(space, Bound::Included(prefix), Bound::Unbounded, Direction::Forward)
        .take_while(|row| row.as_ref().unwrap().0.starts_with(prefix))
        .count()
}

#[test]
fn a_store_dropped_without_closing_comes_back_with_its_commits_and_clock() {
    let dir = tempfile::tempdir().unwrap();
    let mut times = Vec::new();
    for round in 0..3u8 {
        let store = open(dir.path());
        assert_eq!(store.last_commit_time(), times.last().copied().unwrap_or(0));
        assert_eq!(store.snapshot().counter(b"c").unwrap().count, i64::from(round));
        assert!(store.now() >= store.last_commit_time());
        let mut transaction = store.begin();
        transaction.put(Space::Index, vec![round], vec![round; 3]);
        transaction.add(b"c", 1, 3);
        let time = transaction.commit(Durability::Durable).unwrap();
        assert!(times.last().is_none_or(|last| time > *last));
        times.push(time);
    }
    let store = open(dir.path());
    assert_eq!(store.snapshot().counter(b"c").unwrap(), Counter { count: 3, bytes: 9 });
    assert_eq!(rows_under(&store, Space::Index, b""), 3);
    store.close().unwrap();
}

/// The newest commit in the trees, as the newer superblock says (docs/format.md).
fn commit_time_of_trees(dir: &Path) -> u64 {
    let bytes = std::fs::read(dir.join("kilim.db")).unwrap();
    let number = |block: usize, at: usize| {
        u64::from_le_bytes(bytes[4096 * block + at..][..8].try_into().expect("eight bytes"))
    };
    (0..2).map(|block| (number(block, 40), number(block, 128))).max().unwrap().1
}

#[test]
fn a_stop_with_time_leaves_nothing_to_replay_and_one_without_leaves_the_journal() {
    for (close_within, is_replayed) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options { close_within, ..options() }).unwrap();
        let mut transaction = store.begin();
        transaction.put(Space::Index, b"keys".as_slice(), b"v".as_slice());
        // It waits for no sync of its own.
        let time = transaction.commit(Durability::Relaxed).unwrap();
        store.close().unwrap();
        let in_trees = commit_time_of_trees(dir.path());
        assert_eq!(in_trees < time, is_replayed, "{in_trees} of {time}");
        let store = open(dir.path());
        assert_eq!(store.last_commit_time(), time);
        assert_eq!(rows_under(&store, Space::Index, b""), 1);
        store.close().unwrap();
    }
}

#[test]
fn a_directory_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let Err(error) = Store::open(dir.path(), options()) else { panic!("opened twice") };
    assert!(error.to_string().contains("in use"), "{error}");
    store.close().unwrap();
    open(dir.path()).close().unwrap();
}

#[test]
fn below_the_reserve_writes_are_refused_and_reads_and_drops_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut transaction = store.begin();
    transaction.put(Space::Index, b"k".as_slice(), b"v".as_slice());
    transaction.commit(Durability::Durable).unwrap();
    store.close().unwrap();

    let full = Options { free_space_reserve_bytes: Some(u64::MAX), ..options() };
    let store = Store::open(dir.path(), full).unwrap();
    let mut transaction = store.begin();
    transaction.put(Space::Index, b"l".as_slice(), b"v".as_slice());
    let error = transaction.commit(Durability::Relaxed).unwrap_err();
    assert!(matches!(error, Error::Storage(StorageError::OutOfSpace { .. })), "{error}");
    let error = store.ingest(Space::Index, [(vec![1], vec![2])].into_iter()).unwrap_err();
    assert!(matches!(error, Error::Storage(StorageError::OutOfSpace { .. })), "{error}");
    assert!(store.snapshot().get(Space::Index, b"k").unwrap().is_some());
    assert!(store.latest(Space::Index, b"l").unwrap().is_none());
    store.reclaim(Space::Index, b"k").unwrap();
}

#[test]
fn what_makes_less_of_the_data_goes_on_below_the_reserve() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut transaction = store.begin();
    transaction.put(Space::Meta, b"view".as_slice(), b"v".as_slice());
    transaction.commit(Durability::Durable).unwrap();
    store.close().unwrap();
    let with_reserve = |bytes: u64| {
        let options = Options { free_space_reserve_bytes: Some(bytes), ..options() };
        Store::open(dir.path(), options).unwrap()
    };
    let put = |store: &Store, shrinks: bool| {
        let mut transaction = store.begin();
        transaction.put(Space::Records, b"\0\0\0\x01k".as_slice(), vec![0; 9]);
        if shrinks {
            transaction.shrinks();
        }
        transaction.commit(Durability::Relaxed)
    };
    let store = with_reserve(u64::MAX);
    let Err(Error::Storage(StorageError::OutOfSpace { free_bytes, .. })) = put(&store, false) else {
        panic!("it was written")
    };
    // A commit that only deletes needs no room, whatever it deletes.
    let mut transaction = store.begin();
    transaction.delete(Space::Meta, b"view");
    transaction.commit(Durability::Relaxed).unwrap();
    store.close().unwrap();
    let store = with_reserve(2 * free_bytes);
    assert!(put(&store, false).is_err());
    put(&store, true).unwrap();
}

#[test]
fn a_dead_prefix_goes_away_and_older_snapshots_keep_it() {
    for on_disk in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = if on_disk { open(dir.path()) } else { Store::in_memory(options()) };
        let prefix = |collection: u8| [0, 0, 0, collection];
        for collection in 1..=3u8 {
            let rows = (0..6_000u32).map(|at| ([prefix(collection), at.to_be_bytes()].concat(), vec![7; 50]));
            store.ingest(Space::Records, rows).unwrap();
        }
        let before = store.snapshot();
        let mut transaction = store.begin();
        transaction.reclaim(Space::Records, &prefix(2));
        transaction.reset_counter(b"second");
        transaction.commit(Durability::Durable).unwrap();
        eventually("the dead prefix goes", || rows_under(&store, Space::Records, &prefix(2)) == 0);
        assert_eq!(rows_under(&store, Space::Records, &prefix(1)), 6_000);
        assert_eq!(rows_under(&store, Space::Records, &prefix(3)), 6_000);
        let seen = before
            .scan(
                Space::Records,
                Bound::Included(&prefix(2)),
                Bound::Excluded(&prefix(3)),
                Direction::Forward,
            )
            .inspect(|row| assert!(row.is_ok()))
            .count();
        assert_eq!(seen, 6_000);
        assert_eq!(rows_under(&store, Space::Meta, b""), 0, "the storage crate's own keys are not shown");
    }
}

#[test]
fn a_prefix_declared_dead_before_a_restart_goes_away_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.ingest(Space::Index, (0..3_000u32).map(|at| (at.to_be_bytes().to_vec(), vec![1]))).unwrap();
    store.reclaim(Space::Index, &[0, 0]).unwrap();
    drop(store);
    let store = open(dir.path());
    eventually("the dead prefix goes", || rows_under(&store, Space::Index, &[0, 0]) == 0);
}

#[test]
fn a_bulk_load_is_there_after_reopening_without_closing() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        store.ingest(Space::Index, (0..1_000u32).map(|at| (at.to_be_bytes().to_vec(), vec![1]))).unwrap();
        let error =
            store.ingest(Space::Index, [(vec![9], vec![]), (vec![8], vec![])].into_iter()).unwrap_err();
        assert!(matches!(error, Error::Bug(_)), "{error}");
    }
    assert_eq!(rows_under(&open(dir.path()), Space::Index, b""), 1_000);
}

#[test]
fn a_key_that_the_backend_cannot_hold_is_refused() {
    for key in [vec![], vec![1; 70_000]] {
        let store = Store::in_memory(options());
        let mut transaction = store.begin();
        transaction.put(Space::Index, key, vec![]);
        assert!(matches!(transaction.commit(Durability::Durable), Err(Error::Bug(_))));
    }
}

#[test]
fn closing_with_a_live_transaction_keeps_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let pending = store.begin();
    let mut transaction = store.begin();
    transaction.put(Space::Meta, b"a".as_slice(), b"b".as_slice());
    let ticket = transaction.enqueue(Durability::Relaxed).unwrap();
    drop(store);
    drop(ticket);
    drop(pending);
    assert_eq!(rows_under(&open(dir.path()), Space::Meta, b"a"), 1);
}

/// Bytes that do not compress, different for each number.
fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; 8];
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[test]
fn heavy_writing_is_flushed_and_journals_stay_bounded() {
    const RECORDS: u64 = 800;
    const RECORD_BYTES: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in (writer..RECORDS).step_by(4) {
                    let mut transaction = store.begin();
                    transaction.put(Space::Records, number.to_be_bytes(), noise(number, RECORD_BYTES));
                    // A space that is written little must not keep the journals of the other alive.
                    transaction.put(Space::Index, number.to_be_bytes(), []);
                    transaction.add(b"c", 1, 0);
                    transaction.commit(Durability::Relaxed).unwrap();
                }
            });
        }
    });
    let journal_bytes = || -> u64 {
        let files = std::fs::read_dir(dir.path()).unwrap().flatten();
        let journals = files.filter(|file| file.file_name().to_string_lossy().starts_with("journal."));
        journals.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    };
    let end = Instant::now() + Duration::from_secs(60);
    while journal_bytes() > 128 << 20 {
        assert!(Instant::now() < end, "the journals hold {} bytes", journal_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(store);
    let store = open(dir.path());
    let snapshot = store.snapshot();
    assert_eq!(snapshot.counter(b"c").unwrap().count, RECORDS as i64);
    for number in 0..RECORDS {
        let record = snapshot.get(Space::Records, &number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(record[8..], noise(number, RECORD_BYTES)[8..], "record {number}");
    }
    assert_eq!(rows_under(&store, Space::Index, b""), RECORDS as usize);
}
