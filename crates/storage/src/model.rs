//! The commit queue and the intents under shuttle, which runs a few threads through many schedules.
//!
//! shuttle decides at every lock, wait and wake-up which thread goes on, and reports a schedule in which all threads
//! wait. The backend yields in the middle of a batch, so that everything may happen while a sync is under way; it
//! can be told to fail a batch. There are no background threads: a dropped ticket is committed by whoever dropped it,
//! and a thread of the model takes the syncer's part where one is wanted.
//!
//! What must hold in every schedule: a commit that was acknowledged is published, one that was refused is not, no
//! update is lost, and no intent stays behind. `KILIM_MODEL_SCHEDULES` sets how many schedules each model has.

use crate::backend::memory::MemoryBackend;
use crate::backend::{Backend, Exclusively, Sorted, View};
use crate::clock::CommitTime;
use crate::free_space::FreeSpace;
use crate::intents::Wait;
use crate::space::{Space, Write};
use crate::store::{Options, Store};
use crate::transaction::Durability;
use kilim_error::{Error, Result, StorageError};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NEVER: &dyn Fn() -> Option<Error> = &|| None;
const PATIENT: Wait<'static> = Wait::Until { deadline: None, interrupt: NEVER };

/// Runs a model through random schedules, and through schedules with few switches at unlikely places.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let given = std::env::var("KILIM_MODEL_SCHEDULES").ok().and_then(|count| count.parse().ok());
    let schedules: usize = given.unwrap_or(1_000);
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    let model = Arc::new(model);
    let run = model.clone();
    Runner::new(RandomScheduler::new(schedules / 2), config.clone()).run(move || run());
    Runner::new(PctScheduler::new(4, schedules / 2), config).run(move || model());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// A failed sync: nothing is written from then on.
    Sync,
    /// No room: nothing was written, later batches may be.
    Space,
}

/// Memory that yields while it writes, and fails one batch.
struct Disk {
    inner: MemoryBackend,
    batches: AtomicU64,
    fails: Option<(u64, Failure)>,
}

impl Backend for Disk {
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
        thread::yield_now();
        let number = self.batches.fetch_add(1, Ordering::SeqCst);
        match self.fails {
            Some((at, Failure::Sync)) if number == at => {
                return Err(StorageError::Io("the disk is gone".into()).into());
            }
            Some((at, Failure::Space)) if number == at => {
                return Err(StorageError::OutOfSpace { free_bytes: 0, reserve_bytes: 1 }.into());
            }
            _ => {}
        }
        self.inner.apply(batch, commit_time, sync)?;
        thread::yield_now();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        self.inner.ingest(space, rows, exclusively)
    }

    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()> {
        self.inner.drop_trees(prefixes, exclusively)
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

fn store(fails: Option<(u64, Failure)>) -> Store {
    let disk = Disk { inner: MemoryBackend::default(), batches: AtomicU64::new(0), fails };
    let unattended = Store::unattended(Box::new(disk), FreeSpace::unbounded(), None, Options::default());
    let store = unattended.expect("an empty log can be read");
    // As if the threads had ended: errands are run by those who have them.
    store.shared().background.stop();
    store
}

fn number(value: Option<crate::Bytes>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().expect("a number has 8 bytes")))
}

fn published(store: &Store, key: &[u8]) -> u64 {
    number(store.snapshot().get(Space::Meta, key).expect("memory can be read"))
}

/// Adds one under the key's intent.
fn increment(store: &Store, key: &[u8], wait: Wait) -> Result<crate::Transaction> {
    let mut transaction = store.begin();
    transaction.lock(Space::Meta, key, wait)?;
    let before = number(transaction.latest(Space::Meta, key)?);
    transaction.put(Space::Meta, key.to_vec(), (before + 1).to_le_bytes().to_vec());
    Ok(transaction)
}

fn some_durability() -> Durability {
    match shuttle::rand::thread_rng().gen_bool(0.5) {
        true => Durability::Durable,
        false => Durability::Relaxed,
    }
}

/// Runs threads of a model to their end.
fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a thread of a model does not panic");
    }
}

#[test]
fn no_increment_is_lost_however_it_is_committed() {
    explore(|| {
        let store = store(None);
        let writer = |way: usize| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    let transaction = increment(&store, b"k", PATIENT).unwrap();
                    match (way + round) % 3 {
                        // Acknowledged, so every later snapshot has it.
                        0 => {
                            let written = number(transaction.latest(Space::Meta, b"k").unwrap());
                            transaction.commit(some_durability()).unwrap();
                            assert!(published(&store, b"k") >= written);
                        }
                        1 => drop(transaction.enqueue(some_durability()).unwrap().wait().unwrap()),
                        // Nobody waits for it; it is committed all the same.
                        _ => drop(transaction.enqueue(some_durability()).unwrap()),
                    }
                }
            })
        };
        join((0..3).map(writer).collect());
        // Also those that nobody waited for, without anybody's asking.
        assert_eq!(published(&store, b"k"), 6);
        store.settle(Durability::Durable).unwrap();
        assert_eq!(published(&store, b"k"), 6);
        assert_eq!(store.shared().intents.held(), 0);
    });
}

#[test]
fn those_who_do_not_wait_get_a_conflict_or_the_key() {
    explore(|| {
        let store = store(None);
        let done = Arc::new(AtomicU64::new(0));
        let writer = |first: &'static [u8], second: &'static [u8]| {
            let (store, done) = (store.clone(), done.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    // Two keys in either order: who cannot have the second gives the first back.
                    let mut transaction = store.begin();
                    let locked = transaction
                        .lock(Space::Meta, first, Wait::No)
                        .and_then(|_| transaction.lock(Space::Meta, second, Wait::No))
                        .and_then(|_| transaction.check_unchanged(Space::Meta, first))
                        .and_then(|()| transaction.check_unchanged(Space::Meta, second));
                    match locked {
                        Err(Error::Conflict(_)) => continue,
                        other => other.unwrap(),
                    }
                    for key in [first, second] {
                        let before = number(transaction.get(Space::Meta, key).unwrap());
                        transaction.put(Space::Meta, key.to_vec(), (before + 1).to_le_bytes().to_vec());
                    }
                    transaction.commit(some_durability()).unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        join(vec![writer(b"a", b"b"), writer(b"b", b"a"), writer(b"a", b"b")]);
        let expected = done.load(Ordering::SeqCst);
        assert_eq!((published(&store, b"a"), published(&store, b"b")), (expected, expected));
        assert_eq!(store.shared().intents.held(), 0);
    });
}

#[test]
fn sharers_writers_and_those_who_give_up_leave_no_intent() {
    explore(|| {
        let store = store(None);
        let written = Arc::new(AtomicU64::new(0));
        let reader = || {
            let store = store.clone();
            thread::spawn(move || {
                let mut transaction = store.begin();
                transaction.share(Space::Meta, b"k", PATIENT).unwrap();
                let first = transaction.latest(Space::Meta, b"k").unwrap();
                thread::yield_now();
                // Nobody writes what is shared.
                assert!(first == transaction.latest(Space::Meta, b"k").unwrap());
            })
        };
        let writer = |hurried: bool| {
            let (store, written) = (store.clone(), written.clone());
            thread::spawn(move || {
                let deadline = hurried.then(Instant::now);
                match increment(&store, b"k", Wait::Until { deadline, interrupt: NEVER }) {
                    Ok(transaction) => {
                        transaction.commit(some_durability()).unwrap();
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(error) => assert!(hurried, "{error}"),
                }
            })
        };
        join(vec![reader(), writer(false), reader(), writer(true)]);
        assert_eq!(published(&store, b"k"), written.load(Ordering::SeqCst));
        assert_eq!(store.shared().intents.held(), 0);
    });
}

/// Increments while one batch fails: what was acknowledged is there, and nothing else.
fn with_a_failing_batch(failure: Failure) {
    explore(move || {
        let at = shuttle::rand::thread_rng().gen_range(0..4);
        let store = store(Some((at, failure)));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writer = |key: &'static [u8]| {
            let (store, acknowledged) = (store.clone(), acknowledged.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let committed = increment(&store, key, PATIENT)
                        .and_then(|transaction| transaction.commit(Durability::Durable));
                    match committed {
                        Ok(_) => drop(acknowledged.fetch_add(1, Ordering::SeqCst)),
                        // Refused with the batch, or because it rests on what was refused.
                        Err(Error::Storage(_) | Error::Conflict(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        };
        join(vec![writer(b"k"), writer(b"k"), writer(b"l")]);
        let total = published(&store, b"k") + published(&store, b"l");
        assert_eq!(total, acknowledged.load(Ordering::SeqCst));
        assert_eq!(store.shared().intents.held(), 0);
        match failure {
            Failure::Sync => {}
            // There is room again.
            Failure::Space => {
                let before = published(&store, b"k");
                // The batch that fails may be this one.
                let again = || increment(&store, b"k", PATIENT)?.commit(Durability::Durable);
                again().or_else(|_| again()).unwrap();
                assert_eq!(published(&store, b"k"), before + 1);
            }
        }
    });
}

#[test]
fn a_failed_sync_refuses_its_batch_and_all_behind_it() {
    with_a_failing_batch(Failure::Sync);
}

#[test]
fn a_full_disk_refuses_its_batch_and_what_rests_on_it() {
    with_a_failing_batch(Failure::Space);
}

#[test]
fn loads_drains_and_commits_take_turns() {
    explore(|| {
        let store = store(None);
        let enqueued = Arc::new(AtomicU64::new(0));
        let spawn = |work: fn(&Store, &AtomicU64)| {
            let (store, enqueued) = (store.clone(), enqueued.clone());
            thread::spawn(move || work(&store, &enqueued))
        };
        fn enqueue(store: &Store, enqueued: &AtomicU64, durability: Durability) -> crate::Ticket {
            let ticket = increment(store, b"k", PATIENT).unwrap().enqueue(durability).unwrap();
            enqueued.fetch_add(1, Ordering::SeqCst);
            ticket
        }
        let commits: fn(&Store, &AtomicU64) = |store, enqueued| {
            for _ in 0..2 {
                enqueue(store, enqueued, Durability::Durable).wait().unwrap();
            }
        };
        let forgets: fn(&Store, &AtomicU64) =
            |store, enqueued| drop(enqueue(store, enqueued, Durability::Relaxed));
        let loads: fn(&Store, &AtomicU64) = |store, _| {
            store.ingest(Space::Index, [(vec![1], vec![7])].into_iter()).unwrap();
            assert!(store.snapshot().get(Space::Index, &[1]).unwrap().is_some());
        };
        // Whatever had entered the queue is published, also what a batch under way holds.
        let drains: fn(&Store, &AtomicU64) = |store, enqueued| {
            let before = enqueued.load(Ordering::SeqCst);
            store.settle(Durability::Durable).unwrap();
            assert!(published(store, b"k") >= before);
        };
        join(vec![spawn(commits), spawn(loads), spawn(forgets), spawn(drains)]);
        store.settle(Durability::Durable).unwrap();
        assert_eq!(published(&store, b"k"), 3);
        assert_eq!(store.shared().intents.held(), 0);
    });
}

/// The lead may have been given to a thread that has not taken it when everything is refused.
#[test]
fn after_a_failed_sync_beside_the_queue_nobody_waits_for_a_lead() {
    explore(|| {
        let store = store(None);
        let commits = || {
            let store = store.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let committed = increment(&store, b"k", PATIENT)
                        .and_then(|transaction| transaction.commit(Durability::Durable));
                    assert!(matches!(committed, Ok(_) | Err(Error::Storage(_))));
                }
            })
        };
        let fails = {
            let store = store.clone();
            thread::spawn(move || {
                // Not at once: somebody has to be in the queue.
                for _ in 0..shuttle::rand::thread_rng().gen_range(0..40) {
                    thread::yield_now();
                }
                store.shared().queue.poison(&StorageError::Io("the disk is gone".into()));
                // A step of a checkpoint asks for the lead whatever has happened.
                let kept = store.shared().exclusively(&mut || Ok(()));
                assert!(matches!(kept, Err(Error::Storage(_))));
            })
        };
        join(vec![commits(), commits(), commits(), fails]);
        assert_eq!(store.shared().intents.held(), 0);
    });
}

#[test]
fn of_those_who_share_a_key_one_at_most_comes_to_write_it() {
    explore(|| {
        let store = store(None);
        let written = Arc::new(AtomicU64::new(0));
        let writer = || {
            let (store, written) = (store.clone(), written.clone());
            thread::spawn(move || {
                let mut transaction = store.begin();
                transaction.share(Space::Meta, b"k", PATIENT).unwrap();
                let before = number(transaction.latest(Space::Meta, b"k").unwrap());
                thread::yield_now();
                match transaction.lock(Space::Meta, b"k", PATIENT) {
                    Ok(_) => {}
                    // Another shares it too: both would wait for each other.
                    Err(Error::Conflict(_)) => return,
                    Err(other) => panic!("{other}"),
                }
                transaction.put(Space::Meta, b"k".to_vec(), (before + 1).to_le_bytes().to_vec());
                transaction.commit(some_durability()).unwrap();
                written.fetch_add(1, Ordering::SeqCst);
            })
        };
        join(vec![writer(), writer(), writer()]);
        assert_eq!(published(&store, b"k"), written.load(Ordering::SeqCst));
        assert_eq!(store.shared().intents.held(), 0);
    });
}

#[test]
fn a_writer_who_gives_up_keeps_nobody_from_sharing() {
    explore(|| {
        let store = store(None);
        let both_share = Arc::new(shuttle::sync::Barrier::new(2));
        let reader = || {
            let (store, both_share) = (store.clone(), both_share.clone());
            thread::spawn(move || {
                let mut transaction = store.begin();
                transaction.share(Space::Meta, b"k", PATIENT).unwrap();
                both_share.wait();
            })
        };
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let wait = Wait::Until { deadline: Some(Instant::now()), interrupt: NEVER };
                drop(increment(&store, b"k", wait));
            })
        };
        join(vec![reader(), writer, reader()]);
        assert_eq!(store.shared().intents.held(), 0);
    });
}
