//! A backend whose disk fails on command, for tests: writes and syncs fail, or the batch hangs until let go.

use super::memory::MemoryBackend;
use super::{Backend, Exclusively, Sorted, View};
use crate::clock::CommitTime;
use crate::free_space::FreeSpace;
use crate::space::{Space, Write};
use crate::store::{Options, Store};
use crate::transaction::{Durability, Transaction};
use kilim_error::{Error, Result, StorageError};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
struct Disk {
    broken: AtomicBool,
    /// A batch ends in a panic.
    panics: AtomicBool,
    syncs: AtomicUsize,
    /// Held by a test to keep a batch from ending.
    gate: Mutex<()>,
    at_gate: AtomicUsize,
}

impl Disk {
    fn check(&self) -> Result<()> {
        self.at_gate.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock());
        assert!(!self.panics.load(Ordering::SeqCst), "as the test wants it");
        if self.broken.load(Ordering::SeqCst) {
            return Err(StorageError::Io("the disk is gone".into()).into());
        }
        Ok(())
    }
}

struct FaultyBackend {
    disk: Arc<Disk>,
    inner: MemoryBackend,
}

impl Backend for FaultyBackend {
    fn view(&self) -> View {
        self.inner.view()
    }

    fn commit_time(&self) -> CommitTime {
        self.inner.commit_time()
    }

    fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        sync: bool,
    ) -> Result<()> {
        self.disk.check()?;
        if sync {
            self.disk.syncs.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.apply(batch, commit_time, sync)
    }

    fn sync(&self) -> Result<()> {
        self.disk.syncs.fetch_add(1, Ordering::SeqCst);
        self.disk.check()
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        self.disk.check()?;
        self.inner.ingest(space, rows, exclusively)
    }

    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()> {
        self.inner.drop_trees(prefixes, exclusively)
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

fn store() -> (Arc<Disk>, Store) {
    let disk = Arc::new(Disk::default());
    let backend = FaultyBackend { disk: disk.clone(), inner: MemoryBackend::default() };
    (disk, Store::over(Box::new(backend), FreeSpace::unbounded(), None, Options::default()).unwrap())
}

fn put(store: &Store, key: u8) -> Transaction {
    let mut transaction = store.begin();
    transaction.put(Space::Index, [key], [key]);
    transaction
}

/// Waits until a batch stands at the gate.
fn hold<'a>(disk: &'a Disk, lead: impl FnOnce()) -> MutexGuard<'a, ()> {
    let gate = disk.gate.lock();
    let before = disk.at_gate.load(Ordering::SeqCst);
    lead();
    while disk.at_gate.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    gate
}

fn is_poisoned<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Storage(StorageError::Poisoned(_))))
}

#[test]
fn a_panic_in_a_batch_refuses_writes_and_holds_nobody_up() {
    let (disk, store) = store();
    put(&store, 1).commit(Durability::Durable).unwrap();
    disk.panics.store(true, Ordering::SeqCst);
    let followers: Vec<_> =
        (2..5).map(|key| put(&store, key).enqueue(Durability::Durable).unwrap()).collect();
    for follower in followers {
        assert!(follower.wait().is_err());
    }
    assert!(is_poisoned(&put(&store, 5).commit(Durability::Durable)));
    assert_eq!(store.latest(Space::Index, &[1]).unwrap().as_deref(), Some(&[1][..]));
}

#[test]
fn a_failed_sync_refuses_writes_and_leaves_reads() {
    let (disk, store) = store();
    put(&store, 1).commit(Durability::Durable).unwrap();
    disk.broken.store(true, Ordering::SeqCst);
    assert!(put(&store, 2).commit(Durability::Durable).is_err());
    disk.broken.store(false, Ordering::SeqCst);
    assert!(is_poisoned(&put(&store, 3).commit(Durability::Durable)));
    assert!(is_poisoned(&store.ingest(Space::Index, [(vec![9], vec![])].into_iter())));
    assert!(is_poisoned(&store.sync()));
    let snapshot = store.snapshot();
    assert!(snapshot.get(Space::Index, &[1]).unwrap().is_some());
    assert!(snapshot.get(Space::Index, &[2]).unwrap().is_none());
    assert!(store.latest(Space::Index, &[2]).unwrap().is_none());
}

#[test]
fn those_queued_behind_a_failed_batch_fail_with_it() {
    let (disk, store) = store();
    std::thread::scope(|scope| {
        let mut first = None;
        let gate = hold(&disk, || {
            first = Some(scope.spawn(|| put(&store, 1).commit(Durability::Durable)));
        });
        let queued: Vec<_> = (2..10)
            .map(|key| put(&store, key).enqueue(Durability::Durable).unwrap())
            .map(|ticket| scope.spawn(move || ticket.wait()))
            .collect();
        disk.broken.store(true, Ordering::SeqCst);
        drop(gate);
        assert!(first.unwrap().join().unwrap().is_err());
        for ticket in queued {
            assert!(is_poisoned(&ticket.join().unwrap()));
        }
    });
}

#[test]
fn a_failed_background_sync_refuses_writes_too() {
    let (disk, store) = store();
    put(&store, 1).commit(Durability::Relaxed).unwrap();
    disk.broken.store(true, Ordering::SeqCst);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !is_poisoned(&put(&store, 2).enqueue(Durability::Relaxed)) {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_relaxed_commit_is_synced_within_a_tenth_of_a_second() {
    let (disk, store) = store();
    let before = disk.syncs.load(Ordering::SeqCst);
    put(&store, 1).commit(Durability::Relaxed).unwrap();
    let committed = std::time::Instant::now();
    while disk.syncs.load(Ordering::SeqCst) == before {
        assert!(committed.elapsed() < std::time::Duration::from_secs(2));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(store);
}

#[test]
fn what_is_queued_while_a_batch_is_under_way_shares_the_next_sync() {
    let (disk, store) = store();
    std::thread::scope(|scope| {
        let gate = hold(&disk, || {
            scope.spawn(|| put(&store, 0).commit(Durability::Durable).unwrap());
        });
        let before = disk.syncs.load(Ordering::SeqCst);
        let tickets: Vec<_> =
            (1..=63).map(|key| put(&store, key).enqueue(Durability::Durable).unwrap()).collect();
        for ticket in tickets {
            scope.spawn(move || ticket.wait().unwrap());
        }
        drop(gate);
        while store.snapshot().get(Space::Index, &[63]).unwrap().is_none() {
            std::thread::yield_now();
        }
        // The batch at the gate counts its sync after it; all others share one.
        assert_eq!(disk.syncs.load(Ordering::SeqCst) - before, 2);
    });
    assert_eq!(store.stats().commits, 64);
}

#[test]
fn a_bulk_load_waits_for_the_batch_under_way_and_lets_the_next_pass() {
    let (disk, store) = store();
    std::thread::scope(|scope| {
        let gate = hold(&disk, || {
            scope.spawn(|| put(&store, 1).commit(Durability::Durable).unwrap());
        });
        drop(gate);
        for round in 0..50u8 {
            let store = &store;
            scope.spawn(move || put(store, round).commit(Durability::Durable).unwrap());
            scope.spawn(move || {
                store.ingest(Space::Meta, [(vec![round + 1], vec![])].into_iter()).unwrap();
                assert!(store.snapshot().get(Space::Meta, &[round + 1]).unwrap().is_some());
            });
        }
    });
    assert!((0..50u8).all(|key| store.snapshot().get(Space::Index, &[key]).unwrap().is_some()));
}

#[test]
fn a_sync_waits_for_the_batch_under_way() {
    let (disk, store) = store();
    std::thread::scope(|scope| {
        let gate = hold(&disk, || {
            scope.spawn(|| put(&store, 1).commit(Durability::Relaxed).unwrap());
        });
        let synced = scope.spawn(|| {
            store.sync().unwrap();
            store.snapshot().get(Space::Index, &[1]).unwrap().is_some()
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(gate);
        assert!(synced.join().unwrap());
    });
}

#[test]
fn who_has_seen_a_commit_can_wait_until_it_is_published_and_on_disk() {
    let (disk, store) = store();
    let ticket = put(&store, 1).enqueue(Durability::Durable).unwrap();
    assert!(store.latest(Space::Index, &[1]).unwrap().is_some());
    assert!(store.snapshot().get(Space::Index, &[1]).unwrap().is_none());
    store.settle(Durability::Durable).unwrap();
    assert!(store.snapshot().get(Space::Index, &[1]).unwrap().is_some());
    ticket.wait().unwrap();

    let syncs = || disk.syncs.load(Ordering::SeqCst);
    put(&store, 2).commit(Durability::Relaxed).unwrap();
    let before = syncs();
    store.settle(Durability::Durable).unwrap();
    assert_eq!(syncs() - before, 1);
    // Nothing is left to wait for.
    store.settle(Durability::Durable).unwrap();
    assert_eq!(syncs() - before, 1);

    let ticket = put(&store, 3).enqueue(Durability::Durable).unwrap();
    disk.broken.store(true, Ordering::SeqCst);
    assert!(store.settle(Durability::Durable).is_err());
    assert!(ticket.wait().is_err());
}
