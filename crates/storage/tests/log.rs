//! The change log: in the order of commits, as durable as they are, and bounded.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kilim_storage::salvage::Remains;
use kilim_storage::{
    Durability, Environment, LogOptions, LogPosition, Options, Space, Store, Ticket, World, rebuild,
};

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

/// Documents of these lengths: those of the second half share the bytes of their records.
const LENGTHS: [u32; 6] = [0, 100, 511, 512, 3_000, 20_000];

fn record_key(number: u32) -> Vec<u8> {
    [&[0, 0, 0, 7][..], &number.to_be_bytes(), &[0; 4]].concat()
}

fn document(number: u32, round: u8) -> Vec<u8> {
    (0..LENGTHS[number as usize % LENGTHS.len()]).map(|at| (at as u8).wrapping_mul(round)).collect()
}

/// Stores a document and tells of it.
fn put_told(transaction: &mut kilim_storage::Transaction, number: u32, round: u8) {
    let (key, document) = (record_key(number), document(number, round));
    transaction.put(Space::Records, &key[..], [&[0; 8][..], &document].concat());
    transaction.log_with_document(&[&[0; 8][..], &[round]].concat(), &document, &key);
}

/// What the log says of documents behind the time of day.
fn told(store: &Store) -> Vec<Vec<u8>> {
    let rows = store.log_from(&store.snapshot(), LogPosition { time: 1, index: 0 });
    rows.map(|row| row.unwrap().1[8..].to_vec()).collect()
}

#[test]
fn an_event_ends_with_the_document_that_its_commit_stored() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let mut expected = Vec::new();
    let mut expect = |number, round| expected.push([&[round][..], &document(number, round)].concat());
    // Downwards, so that events do not have the order of records.
    let mut transaction = store.begin();
    for number in (0..6).rev() {
        put_told(&mut transaction, number, 1);
        expect(number, 1);
    }
    transaction.commit(Durability::Durable).unwrap();
    // Written twice by one transaction, taken back to a savepoint, and deleted in the end.
    let mut transaction = store.begin();
    for round in [2, 3] {
        put_told(&mut transaction, 4, round);
        expect(4, round);
    }
    let saved = transaction.savepoint();
    put_told(&mut transaction, 5, 4);
    transaction.restore(saved);
    put_told(&mut transaction, 5, 5);
    expect(5, 5);
    transaction.delete(Space::Records, &record_key(5));
    transaction.commit(Durability::Durable).unwrap();
    // A record that does not hold what its event says, and one that is not there.
    let mut transaction = store.begin();
    transaction.put(Space::Records, record_key(4), vec![9; 3_008]);
    for number in [4, 5] {
        let head = [&[0; 8][..], &[6]].concat();
        transaction.log_with_document(&head, &document(number, 6), &record_key(number));
        expect(number, 6);
    }
    transaction.commit(Durability::Durable).unwrap();
    assert_eq!(told(&store), expected);
    // As after a crash, then out of trees.
    drop(store);
    for _ in 0..2 {
        let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
        assert_eq!(told(&store), expected);
        store.close().unwrap();
    }
}

#[test]
fn events_of_commits_that_meet_on_a_record_keep_their_own_documents() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let tickets: Vec<Ticket> = (1..=4)
        .map(|round| {
            let mut transaction = store.begin();
            put_told(&mut transaction, 4, round);
            put_told(&mut transaction, 10 + 6 * u32::from(round), round);
            transaction.enqueue(Durability::Durable).unwrap()
        })
        .collect();
    // Commits that wait together go into one batch, which has the newest version of a record only.
    for ticket in tickets.into_iter().rev() {
        ticket.wait().unwrap();
    }
    let expected: Vec<Vec<u8>> =
        (1..=4).flat_map(|round| vec![[&[round][..], &document(4, round)].concat(); 2]).collect();
    assert_eq!(told(&store), expected);
    drop(store);
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    assert_eq!(told(&store), expected);
    assert_eq!(store.snapshot().get(Space::Records, &record_key(4)).unwrap().unwrap()[8..], document(4, 4));
}

#[test]
fn an_event_whose_document_is_damaged_is_an_error_and_not_an_event_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    // Long enough for a page of its own, and nothing that compresses.
    let mut noise = 1u64;
    let document: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 56) as u8
    })
    .take(20_000)
    .collect();
    let mut transaction = store.begin();
    transaction.put(Space::Records, record_key(1), [&[0; 8][..], &document].concat());
    transaction.log_with_document(&[0; 9], &document, &record_key(1));
    transaction.commit(Durability::Durable).unwrap();
    store.close().unwrap();
    let path = directory.path().join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - 64).filter(|at| bytes[*at..*at + 64] == document[..64]).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let mut rows = store.log_from(&store.snapshot(), LogPosition { time: 1, index: 0 });
    assert!(rows.next().unwrap().is_err());
}

#[test]
fn the_journal_has_the_document_of_an_event_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let needle: Vec<u8> = (0..2_000u32).map(|at| ((at * at) >> 3) as u8).collect();
    let mut transaction = store.begin();
    transaction.put(Space::Records, record_key(1), [&[0; 8][..], &needle].concat());
    transaction.log_with_document(&[0; 9], &needle, &record_key(1));
    transaction.commit(Durability::Durable).unwrap();
    let journal = std::fs::read(directory.path().join("journal.0")).unwrap();
    let found = journal.windows(needle.len()).filter(|window| *window == needle).count();
    assert_eq!(found, 1);
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

/// The system's world with a clock that is set.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn at(seconds: u64) -> Clock {
        Clock(Arc::new(AtomicU64::new(seconds)))
    }

    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl World for Clock {
    fn since_epoch(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    fn random(&self) -> u64 {
        4
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}

#[test]
fn events_go_when_they_are_too_old() {
    const HOUR: u64 = 3600;
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::at(1_700_000_000);
    let open = || {
        let log = LogOptions { age_max: Duration::from_secs(HOUR), bytes_max: None };
        let environment = Environment::new(clock.clone());
        Store::open(directory.path(), Options { environment, ..options(Some(log)) }).unwrap()
    };
    let mut store = open();
    for number in 0..60 {
        let now = clock.0.fetch_add(300, Ordering::Relaxed) + 300;
        commit(&store, &[number], false, Durability::Durable);
        store.trim_log().unwrap();
        let ages: Vec<u64> = events(&store).iter().map(|(at, _)| now - (at.time >> 32)).collect();
        assert!(ages.contains(&0) && ages.len() >= 12.min(number as usize + 1), "{number}: {ages:?}");
        // A segment is a sixteenth of the age, or what came in one go.
        assert!(ages.iter().all(|age| *age <= HOUR + 2 * 300), "{number}: {ages:?}");
        let begins = store.log_begins() >> 32;
        assert!(number < 16 || now - begins <= HOUR + 3 * 300, "{number}: {}", now - begins);
        if number == 30 {
            store.close().unwrap();
            store = open();
        }
    }
    // Without writes the last segments stay, of which one takes the next event.
    clock.0.fetch_add(100 * HOUR, Ordering::Relaxed);
    store.trim_log().unwrap();
    assert!(events(&store).len() <= 2, "{:?}", events(&store));
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
    assert_eq!(version(data), 4, "before anything is logged");
    commit(&store, &[2], false, Durability::Durable);
    store.close().unwrap();
    let store = Store::open(data, options(None)).unwrap();
    commit(&store, &[3], false, Durability::Durable);
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert_eq!(version(data), 4, "it may have been one");
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

#[test]
fn the_log_of_a_new_store_begins_before_its_first_commit_whether_that_has_events_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    let silent = commit(&store, &[], false, Durability::Durable);
    commit(&store, &[1], false, Durability::Durable);
    assert_eq!(store.log_begins(), 0);
    store.close().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    assert_eq!(store.log_begins(), 0, "also for the next start");
    store.close().unwrap();
    // Where it was off, it has nothing of what was committed meanwhile.
    Store::open(directory.path(), options(None)).unwrap().close().unwrap();
    let store = Store::open(directory.path(), options(Some(LogOptions::default()))).unwrap();
    assert!(store.log_begins() > silent);
    store.close().unwrap();
}

#[test]
fn every_commit_is_younger_than_the_start_although_the_clock_steps_back() {
    let clock = Clock::at(1_000_000);
    let environment = Environment::new(clock.clone());
    let directory = tempfile::tempdir().unwrap();
    let options = Options { environment, ..options(Some(LogOptions::default())) };
    let store = Store::open(directory.path(), options).unwrap();
    let next = store.next_commit_time();
    assert_eq!(next, 1_000_000 << 32 | 1);
    clock.set(999_000);
    assert!(commit(&store, &[1], false, Durability::Durable) >= next);
    assert!(store.next_commit_time() > next);
    store.close().unwrap();
}
