//! Many threads at once: no lost update, no half batch, exact counters, one sync for many commits.

use kilim_error::Error;
use kilim_storage::{Counter, Direction, Durability, Options, Space, Store, Transaction, Wait};
use kilim_testkit::eventually;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn options() -> Options {
    Options { cache_bytes: 16 << 20, free_space_reserve_bytes: Some(0), ..Options::default() }
}

/// Runs a test on both backends.
fn on_both(test: impl Fn(&Store)) {
    test(&Store::in_memory(options()));
    let dir = tempfile::tempdir().unwrap();
    test(&Store::open(dir.path(), options()).unwrap());
}

fn patiently() -> Wait<'static> {
    Wait::Until { deadline: Some(Instant::now() + Duration::from_secs(60)), interrupt: &|| None }
}

fn record(number: u64) -> Vec<u8> {
    [[0; 8], number.to_le_bytes()].concat()
}

fn number(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[8..16].try_into().unwrap())
}

/// Adds one to a record as a single-document write does: intent, newest version, new version.
fn increment(store: &Store, key: &[u8]) -> Transaction {
    let mut transaction = store.begin();
    transaction.lock(Space::Records, key, patiently()).unwrap();
    let before = transaction.latest(Space::Records, key).unwrap().map_or(0, |record| number(&record));
    transaction.put(Space::Records, key, record(before + 1));
    transaction.add(b"increments", 1, 0);
    transaction
}

#[test]
fn sixteen_writers_of_one_key_lose_no_update_and_share_syncs() {
    on_both(|store| {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        increment(store, b"hot").commit(Durability::Durable).unwrap();
                    }
                });
            }
        });
        let snapshot = store.snapshot();
        assert_eq!(number(&snapshot.get(Space::Records, b"hot").unwrap().unwrap()), 800);
        assert_eq!(snapshot.counter(b"increments").unwrap(), Counter { count: 800, bytes: 0 });
        let stats = store.stats();
        assert_eq!(stats.commits, 800);
        assert!(stats.batches <= 800);
    });
}

#[test]
fn writers_that_wait_for_the_disk_share_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let tickets: Vec<_> =
        (0..100).map(|_| increment(&store, b"hot").enqueue(Durability::Durable).unwrap()).collect();
    let times: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert!(times.is_sorted());
    assert_eq!(store.stats().batches, 1);
    assert_eq!(number(&store.snapshot().get(Space::Records, b"hot").unwrap().unwrap()), 100);
}

#[test]
fn a_queued_write_is_seen_by_writers_and_not_by_readers() {
    on_both(|store| {
        let ticket = increment(store, b"k").enqueue(Durability::Durable).unwrap();
        assert_eq!(number(&store.latest(Space::Records, b"k").unwrap().unwrap()), 1);
        assert_eq!(store.snapshot().get(Space::Records, b"k").unwrap(), None);
        let later = store.begin();
        assert!(matches!(later.check_unchanged(Space::Records, b"k"), Err(Error::Conflict(_))));
        let time = ticket.wait().unwrap();
        assert_eq!(store.last_commit_time(), time);
        assert_eq!(number(&store.snapshot().get(Space::Records, b"k").unwrap().unwrap()), 1);
        assert_eq!(later.get(Space::Records, b"k").unwrap(), None);
        assert!(matches!(later.check_unchanged(Space::Records, b"k"), Err(Error::Conflict(_))));
        assert!(store.begin().check_unchanged(Space::Records, b"k").is_ok());
    });
}

#[test]
fn changes_to_other_spaces_are_noticed_too() {
    on_both(|store| {
        let before = store.begin();
        let mut writer = store.begin();
        writer.put(Space::Index, b"i".as_slice(), b"1".as_slice());
        writer.put(Space::Records, b"gone".as_slice(), record(1));
        writer.commit(Durability::Relaxed).unwrap();
        assert!(before.check_unchanged(Space::Index, b"i").is_err());
        assert!(before.check_unchanged(Space::Index, b"j").is_ok());
        let between = store.begin();
        let mut writer = store.begin();
        writer.delete(Space::Records, b"gone");
        writer.commit(Durability::Relaxed).unwrap();
        assert!(between.check_unchanged(Space::Records, b"gone").is_err());
        assert!(before.check_unchanged(Space::Records, b"gone").is_ok());
    });
}

#[test]
fn a_forgotten_ticket_is_committed_all_the_same() {
    on_both(|store| {
        drop(increment(store, b"k").enqueue(Durability::Durable).unwrap());
        eventually("the forgotten ticket is committed", || {
            store.snapshot().get(Space::Records, b"k").unwrap().is_some()
        });
    });
}

#[test]
fn an_aborted_transaction_leaves_nothing_and_frees_its_intents() {
    on_both(|store| {
        let transaction = increment(store, b"k");
        let mut second = store.begin();
        assert!(matches!(second.lock(Space::Records, b"k", Wait::No), Err(Error::Conflict(_))));
        drop(transaction);
        assert!(!second.lock(Space::Records, b"k", Wait::No).unwrap().waited);
        assert_eq!(second.latest(Space::Records, b"k").unwrap(), None);
    });
}

#[test]
fn one_of_many_inserters_of_a_unique_key_wins() {
    on_both(|store| {
        for round in 0..20u32 {
            let key = round.to_be_bytes();
            let winners = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let mut transaction = store.begin();
                        transaction.lock(Space::Index, &key, patiently()).unwrap();
                        if transaction.latest(Space::Index, &key).unwrap().is_none() {
                            transaction.put(Space::Index, key, b"taken".as_slice());
                            transaction.commit(Durability::Relaxed).unwrap();
                            winners.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(winners.into_inner(), 1);
        }
    });
}

#[test]
fn a_snapshot_never_shows_half_a_transfer() {
    const ACCOUNTS: u64 = 12;
    const TOTAL: u64 = ACCOUNTS * 100;
    on_both(|store| {
        let mut setup = store.begin();
        for account in 0..ACCOUNTS {
            setup.put(Space::Records, account.to_be_bytes(), record(100));
        }
        setup.commit(Durability::Relaxed).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6u64)
                .map(|seed| {
                    scope.spawn(move || {
                        let mut random = seed;
                        for round in 0..150 {
                            random =
                                random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                            let from = (random >> 33) % ACCOUNTS;
                            let to = (from + 1 + (random >> 50) % (ACCOUNTS - 1)) % ACCOUNTS;
                            let mut transaction = store.begin();
                            for account in [from.min(to), from.max(to)] {
                                transaction
                                    .lock(Space::Records, &account.to_be_bytes(), patiently())
                                    .unwrap();
                            }
                            let read = |account: u64| {
                                let record = transaction.latest(Space::Records, &account.to_be_bytes());
                                number(&record.unwrap().unwrap())
                            };
                            let (had, has) = (read(from), read(to));
                            let amount = had.min(random % 10);
                            transaction.put(Space::Records, from.to_be_bytes(), record(had - amount));
                            transaction.put(Space::Records, to.to_be_bytes(), record(has + amount));
                            let durability =
                                if round % 3 == 0 { Durability::Durable } else { Durability::Relaxed };
                            transaction.commit(durability).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let snapshot = store.snapshot();
                    for direction in [Direction::Forward, Direction::Backward] {
                        let rows =
                            snapshot.scan(Space::Records, Bound::Unbounded, Bound::Unbounded, direction);
                        let mut newest = 0;
                        let mut total = 0;
                        for row in rows {
                            let (_, record) = row.unwrap();
                            newest = newest.max(u64::from_le_bytes(record[..8].try_into().unwrap()));
                            total += number(&record);
                        }
                        assert_eq!(total, TOTAL);
                        assert_eq!(newest, snapshot.commit_time());
                    }
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_multi_statement_transaction_conflicts_when_its_snapshot_is_old() {
    on_both(|store| {
        increment(store, b"k").commit(Durability::Relaxed).unwrap();
        let mut first = store.begin();
        let mut second = store.begin();
        first.lock(Space::Records, b"k", Wait::No).unwrap();
        first.check_unchanged(Space::Records, b"k").unwrap();
        first.put(Space::Records, b"k".as_slice(), record(7));
        assert!(second.lock(Space::Records, b"k", Wait::No).is_err());
        first.commit(Durability::Relaxed).unwrap();
        second.lock(Space::Records, b"k", Wait::No).unwrap();
        assert!(matches!(second.check_unchanged(Space::Records, b"k"), Err(Error::Conflict(_))));
    });
}

#[test]
fn bulk_loads_and_commits_do_not_disturb_each_other() {
    on_both(|store| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for load in 0..5u8 {
                    let rows = (0..500u32)
                        .map(|at| ([&[9, load], at.to_be_bytes().as_slice()].concat(), vec![load]));
                    store.ingest(Space::Index, rows).unwrap();
                    let seen = store
                        .snapshot()
                        .scan(
                            Space::Index,
                            Bound::Included(&[9, load]),
                            Bound::Excluded(&[9, load + 1]),
                            Direction::Forward,
                        )
                        .count();
                    assert_eq!(seen, 500);
                }
            });
            for writer in 0..4u8 {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let mut transaction = increment(store, &[writer]);
                        transaction.put(Space::Index, vec![1, writer], vec![0; 40]);
                        transaction.commit(Durability::Durable).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.snapshot().counter(b"increments").unwrap().count, 400);
    });
}
