//! The change log: in the order of commits, as durable as they are, and bounded.

use std::path::Path;
use std::time::Duration;

use kilim_storage::salvage::Remains;
use kilim_storage::{Durability, LogOptions, LogPosition, Options, Space, Store, Ticket, rebuild};

fn options(log: Option<LogOptions>) -> Options {
    Options { cache_bytes: 16 << 20, log, ..Options::default() }
}

fn event(number: u32) -> Vec<u8> {
    [&[0; 8][..], &number.to_be_bytes()].concat()
}

fn commit(store: &Store, numbers: &[u32], one_time: bool, durability: Durability) -> u64 {
    let mut transaction = store.begin();
    for number in numbers {
        transaction.put(Space::Index, [&[0, 0, 0, 1][..], &number.to_be_bytes()].concat(), Vec::new());
        transaction.log(event(*number));
    }
    if one_time {
        transaction.log_at_one_time();
    }
    transaction.commit(durability).unwrap()
}

fn events(store: &Store) -> Vec<(LogPosition, u32)> {
    let from = LogPosition { time: 1, index: 0 };
    let rows = store.log_from(&store.snapshot(), from);
    rows.map(|row| row.unwrap())
        .map(|(at, value)| (at, u32::from_be_bytes(value[8..].try_into().unwrap())))
        .collect()
}

#[test]
fn events_have_consecutive_times_and_those_of_a_transaction_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let first = commit(&store, &[1, 2, 3], false, Durability::Durable);
    let second = commit(&store, &[4, 5], true, Durability::Relaxed);
    let expected: Vec<(LogPosition, u32)> =
        [(first - 2, 0, 1), (first - 1, 0, 2), (first, 0, 3), (second, 0, 4), (second, 1, 5)]
            .map(|(time, index, number)| (LogPosition { time, index }, number))
            .to_vec();
    assert_eq!(events(&store), expected);
    store.sync().unwrap();
    assert_eq!(store.durable_time(), second);
    // As after a crash: what was committed is in the log, and new commits go on behind it.
    drop(store);
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    assert_eq!(events(&store), expected);
    let third = commit(&store, &[6], false, Durability::Durable);
    assert!(third > second);
    assert_eq!(events(&store).len(), 6);
    store.close().unwrap();
}

#[test]
fn the_oldest_segments_go_and_the_log_says_where_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let small = LogOptions { age_max: Duration::from_secs(3600), bytes_max: Some(1 << 20) };
    let store = Store::open(directory.path(), options(Some(small.clone()))).unwrap();
    for round in 0..400 {
        let mut transaction = store.begin();
        transaction.log([event(round), vec![7; 16 << 10]].concat());
        transaction.commit(Durability::Relaxed).unwrap();
        store.trim_log().unwrap();
    }
    let stats = store.log_stats().unwrap();
    assert!(stats.bytes <= 2 << 20, "{stats:?}");
    let kept = store.log_from(&store.snapshot(), LogPosition { time: 1, index: 0 });
    let kept: Vec<LogPosition> = kept.map(|row| row.unwrap().0).filter(|at| at.time > stats.begins).collect();
    assert!(!kept.is_empty() && kept.len() < 200, "{}", kept.len());
    assert!(kept.is_sorted());
    let begins = store.log_begins();
    store.close().unwrap();
    let store = Store::open(directory.path(), options(Some(small))).unwrap();
    assert_eq!(store.log_begins(), begins);
    store.close().unwrap();
    // Turned off, it goes as a whole.
    let store = Store::open(directory.path(), options(None)).unwrap();
    assert!(!store.logs());
    store.close().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    assert!(store.log_begins() > begins);
    store.close().unwrap();
}

#[test]
fn the_disk_that_the_log_takes_is_bounded() {
    const MB: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let small = LogOptions { bytes_max: Some(MB), ..LogOptions::default() };
    let store = Store::open(directory.path(), options(Some(small))).unwrap();
    let mut random = 1u64;
    for round in 0..2000u32 {
        // Nothing that compresses.
        let noise = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        });
        let mut transaction = store.begin();
        transaction.log(event(round).into_iter().chain(noise.take(16 << 10)).collect::<Vec<u8>>());
        transaction.commit(Durability::Relaxed).unwrap();
        store.trim_log().unwrap();
        if round % 100 == 0 {
            store.checkpoint().unwrap();
        }
    }
    store.checkpoint().unwrap();
    let bytes = std::fs::metadata(directory.path().join("kilim.db")).unwrap().len();
    assert!(bytes < 8 * MB, "{bytes} bytes, where 32 MB were logged and one is to be kept");
    store.close().unwrap();
}

#[test]
fn segments_that_are_not_published_yet_are_not_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let small = LogOptions { bytes_max: Some(1 << 20), ..LogOptions::default() };
    let store = Store::open(directory.path(), options(Some(small))).unwrap();
    let queued: Vec<Ticket> = (0..200)
        .map(|round| {
            let mut transaction = store.begin();
            transaction.log([event(round), vec![7; 16 << 10]].concat());
            transaction.enqueue(Durability::Relaxed).unwrap()
        })
        .collect();
    // In the same batch as the commits that began them, if it dropped some.
    store.trim_log().unwrap();
    for ticket in queued {
        ticket.wait().unwrap();
    }
    let rows = || store.log_from(&store.snapshot(), LogPosition { time: 1, index: 0 });
    assert_eq!(rows().count(), 200);
    store.trim_log().unwrap();
    assert!(store.log_stats().unwrap().bytes <= 2 << 20);
    store.close().unwrap();
}

#[test]
fn on_a_full_disk_the_log_gives_way_to_data() {
    let directory = tempfile::tempdir().unwrap();
    let log = Some(LogOptions { bytes_max: Some(1 << 20), ..LogOptions::default() });
    let store = Store::open(directory.path(), options(log.clone())).unwrap();
    for round in 0..40 {
        let mut transaction = store.begin();
        transaction.log([event(round), vec![7; 16 << 10]].concat());
        transaction.commit(Durability::Relaxed).unwrap();
    }
    assert!(store.log_stats().unwrap().segments > 5);
    store.close().unwrap();
    let full = Options { free_space_reserve_bytes: Some(u64::MAX), ..options(log) };
    let store = Store::open(directory.path(), full).unwrap();
    let begins = store.log_begins();
    store.trim_log().unwrap();
    assert_eq!(store.log_stats().unwrap().segments, 2);
    assert!(store.log_begins() > begins, "the log says that it begins later");
    store.close().unwrap();
}

/// The format's version, as the newest superblock has it.
fn version(directory: &Path) -> u32 {
    let file = std::fs::read(directory.join("kilim.db")).unwrap();
    u32::from_le_bytes(file[16..20].try_into().unwrap())
}

#[test]
fn only_a_store_with_a_log_has_the_format_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    for _ in 0..2 {
        let store = Store::open(data, options(None)).unwrap();
        commit(&store, &[1], false, Durability::Durable);
        store.checkpoint().unwrap();
        assert!(events(&store).is_empty(), "what is not to be logged is not");
        store.close().unwrap();
        assert_eq!(version(data), 2);
    }
    let store = Store::open(data, options(Some(LogOptions::default()))).unwrap();
    assert_eq!(version(data), 3, "before anything is logged");
    commit(&store, &[2], false, Durability::Durable);
    store.close().unwrap();
    let store = Store::open(data, options(None)).unwrap();
    commit(&store, &[3], false, Durability::Durable);
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert_eq!(version(data), 3, "it may have been one");
}

#[test]
fn a_rebuilt_store_does_not_say_that_its_log_reaches_back() {
    let directory = tempfile::tempdir().unwrap();
    let (data, out) = (directory.path().join("data"), directory.path().join("out"));
    let store = Store::open(&data, options(Some(LogOptions::default()))).unwrap();
    let time = commit(&store, &[1, 2], false, Durability::Durable);
    store.close().unwrap();
    let remains = Remains::open(&data).unwrap();
    rebuild::rebuild(&out, options(None), remains.commit_time(), |filling| {
        filling.load(Space::Meta, remains.rows(Space::Meta, 0).map(Ok))
    })
    .unwrap();
    let store = Store::open(&out, options(Some(LogOptions::default()))).unwrap();
    assert!(events(&store).is_empty());
    assert!(store.log_begins() >= time);
    store.close().unwrap();
}
