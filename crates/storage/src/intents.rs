//! Intents: the first writer of a key holds it until its transaction enters the commit queue or ends.
//!
//! Who only relies on what a key holds shares it: many may, and no writer meanwhile. Waiters stand in line per
//! key. A release calls the first of them if it is to write, and whoever comes first then has the key: a thread that runs
//! may take it and give it back before one that sleeps has woken up. Handed from sleeper to sleeper, a hot key would
//! lie idle most of the time. A writer that has stood in line for [`FAIR_AFTER`] is handed the key all the same, so nobody
//! starves; those who share it are handed it together. The table is sharded by key hash; a shard's lock is held for a
//! few map operations only, never while waiting.
//!
//! Invariant: a key has one writer or some who share it; if it has waiters, it is held or the first of them was called.

use crate::environment::Environment;
use crate::space::{Bytes, KeyMap, Space};
use crate::sync::{Condvar, Mutex};
use foldhash::fast::RandomState;
use kilim_error::{Error, ErrorCode, Result};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Enough that 64 writers seldom meet in one shard.
const SHARDS: usize = 64;

/// How long a waiter sleeps before it polls its interrupt again.
const POLL: Duration = Duration::from_millis(10);

/// After so long a writer in line need not be quicker than others.
const FAIR_AFTER: Duration = Duration::from_millis(10);

pub(crate) type TransactionId = u64;

/// What to do when another transaction holds the key.
pub enum Wait<'a> {
    /// Give up with a conflict.
    No,
    /// Stand in line until the deadline, or until the interrupt gives an error.
    Until { deadline: Option<Instant>, interrupt: &'a dyn Fn() -> Option<Error> },
}

/// How a lock was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locked {
    /// Another transaction held the key in the meantime: what was read before may be old.
    pub waited: bool,
}

pub(crate) struct Intents {
    environment: Environment,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

type Shard = [KeyMap<Intent>; Space::COUNT];

/// How a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// To write it.
    Alone,
    /// To rely on what it holds.
    Shared,
}

struct Intent {
    holders: Holders,
    waiters: VecDeque<Arc<Waiter>>,
}

enum Holders {
    One(TransactionId),
    Sharing(Vec<TransactionId>),
}

struct Waiter {
    transaction: TransactionId,
    hold: Hold,
    since: Instant,
    turn: Mutex<Turn>,
    wake: Condvar,
}

/// How far a waiter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    InLine,
    /// The key was free. It is to look whether it still is.
    Called,
    /// It has the key.
    Granted,
}

impl Intents {
    pub(crate) fn new(environment: Environment) -> Intents {
        Intents {
            environment,
            hasher: RandomState::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// `None` if the transaction holds the key already. One who shares it and wants it alone never waits: two
    /// of them would wait for each other.
    pub(crate) fn acquire(
        &self,
        owner: TransactionId,
        space: Space,
        key: &[u8],
        hold: Hold,
        wait: Wait,
    ) -> Result<Option<Locked>> {
        const HELD: Error = Error::Conflict("another transaction holds the key");
        let shard = self.shard(key);
        let mut intents = shard.lock();
        let intent = match intents[space.at()].entry(Bytes::from(key)) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(free) => {
                free.insert(Intent { holders: Holders::new(owner, hold), waiters: VecDeque::new() });
                return Ok(Some(Locked { waited: false }));
            }
        };
        match (&mut intent.holders, hold) {
            (holders, hold) if holders.is_empty() => {
                *holders = Holders::new(owner, hold);
                return Ok(Some(Locked { waited: false }));
            }
            (Holders::One(holder), _) if *holder == owner => return Ok(None),
            (Holders::Sharing(holders), Hold::Shared) if holders.contains(&owner) => return Ok(None),
            (Holders::Sharing(holders), Hold::Alone) if holders.contains(&owner) => {
                if holders.len() > 1 {
                    return Err(HELD);
                }
                intent.holders = Holders::One(owner);
                return Ok(None);
            }
            // Behind whoever waits to write.
            (Holders::Sharing(holders), Hold::Shared) if intent.waiters.is_empty() => {
                holders.push(owner);
                return Ok(Some(Locked { waited: false }));
            }
            _ => {}
        }
        let Wait::Until { deadline, interrupt } = wait else { return Err(HELD) };
        let (since, turn) = (self.environment.now(), Mutex::new(Turn::InLine));
        let waiter = Arc::new(Waiter { transaction: owner, hold, since, turn, wake: Condvar::new() });
        intent.waiters.push_back(waiter.clone());
        drop(intents);

        loop {
            let refused = waiter.wait(&self.environment, deadline, interrupt);
            let mut intents = shard.lock();
            // Gone only with its last holder and its last waiter.
            let Some(intent) = intents[space.at()].get_mut(key) else { return Err(HELD) };
            if intent.holders.contain(owner) {
                // Perhaps between the last look and now: the wait was not in vain.
                return Ok(Some(Locked { waited: true }));
            }
            if refused.is_none() && !intent.holders.is_empty() {
                *waiter.turn.lock() = Turn::InLine;
                continue;
            }
            intent.waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
            if refused.is_none() {
                intent.holders = Holders::new(owner, hold);
            }
            // Those behind may share with those who do, or be called in its place.
            intent.admit(self.environment.now());
            if intent.is_over() {
                intents[space.at()].remove(key);
            }
            return match refused {
                Some(error) => Err(error),
                None => Ok(Some(Locked { waited: true })),
            };
        }
    }

    pub(crate) fn release(&self, owner: TransactionId, space: Space, key: Bytes) {
        let mut intents = self.shard(&key).lock();
        let Entry::Occupied(mut held) = intents[space.at()].entry(key) else { return };
        let intent = held.get_mut();
        debug_assert!(intent.holders.contain(owner), "an intent is released by its holder");
        intent.holders.remove(owner);
        if !intent.waiters.is_empty() {
            intent.admit(self.environment.now());
        }
        if intent.is_over() {
            held.remove();
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().iter().map(KeyMap::len).sum::<usize>()).sum()
    }
}

impl Holders {
    fn new(owner: TransactionId, hold: Hold) -> Holders {
        match hold {
            Hold::Alone => Holders::One(owner),
            Hold::Shared => Holders::Sharing(vec![owner]),
        }
    }

    fn contain(&self, owner: TransactionId) -> bool {
        match self {
            Holders::One(holder) => *holder == owner,
            Holders::Sharing(holders) => holders.contains(&owner),
        }
    }

    fn remove(&mut self, owner: TransactionId) {
        match self {
            Holders::One(_) => *self = Holders::Sharing(Vec::new()),
            Holders::Sharing(holders) => holders.retain(|holder| *holder != owner),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Holders::Sharing(holders) if holders.is_empty())
    }
}

impl Intent {
    /// Nobody has it, and nobody wants it.
    fn is_over(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Lets in from the line whoever can be let in.
    fn admit(&mut self, now: Instant) {
        while let Some(next) = self.waiters.front() {
            match (&mut self.holders, next.hold) {
                (holders, Hold::Alone) if holders.is_empty() && now < next.since + FAIR_AFTER => {
                    next.tell(Turn::Called);
                    return;
                }
                (holders, _) if holders.is_empty() => *holders = Holders::new(next.transaction, next.hold),
                (Holders::Sharing(holders), Hold::Shared) => holders.push(next.transaction),
                _ => return,
            }
            next.tell(Turn::Granted);
            self.waiters.pop_front();
        }
    }
}

impl Waiter {
    fn tell(&self, news: Turn) {
        let before = std::mem::replace(&mut *self.turn.lock(), news);
        if before == Turn::InLine {
            self.wake.notify_one();
        }
    }

    /// Why the wait ended without its turn.
    fn wait(
        &self,
        environment: &Environment,
        deadline: Option<Instant>,
        interrupt: &dyn Fn() -> Option<Error>,
    ) -> Option<Error> {
        let mut turn = self.turn.lock();
        while *turn == Turn::InLine {
            let mut until = environment.now() + POLL;
            if let Some(deadline) = deadline {
                until = until.min(deadline);
            }
            let timed_out = self.wake.wait_until(&mut turn, until).timed_out();
            if *turn != Turn::InLine {
                break;
            }
            if timed_out {
                if deadline.is_some_and(|deadline| environment.now() >= deadline) {
                    return Some(Error::user(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
                }
                if let Some(error) = interrupt() {
                    return Some(error);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NEVER: &dyn Fn() -> Option<Error> = &|| None;

    #[test]
    fn the_first_writer_wins_and_may_lock_again() {
        let intents = Intents::new(Environment::default());
        assert!(intents.acquire(1, Space::Records, b"k", Hold::Alone, Wait::No).unwrap().is_some());
        assert!(intents.acquire(1, Space::Records, b"k", Hold::Alone, Wait::No).unwrap().is_none());
        assert!(matches!(
            intents.acquire(2, Space::Records, b"k", Hold::Alone, Wait::No),
            Err(Error::Conflict(_))
        ));
        assert!(intents.acquire(2, Space::Index, b"k", Hold::Alone, Wait::No).unwrap().is_some());
        intents.release(1, Space::Records, b"k".into());
        assert!(intents.acquire(2, Space::Records, b"k", Hold::Alone, Wait::No).unwrap().is_some());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_by_its_interrupt() {
        let intents = Intents::new(Environment::default());
        intents.acquire(1, Space::Meta, b"k", Hold::Alone, Wait::No).unwrap();
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let error = intents
            .acquire(2, Space::Meta, b"k", Hold::Alone, Wait::Until { deadline, interrupt: NEVER })
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
        let interrupt = &|| Some(Error::user(ErrorCode::Interrupted, "killed"));
        let error = intents
            .acquire(2, Space::Meta, b"k", Hold::Alone, Wait::Until { deadline: None, interrupt })
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::Interrupted);
        intents.release(1, Space::Meta, b"k".into());
        assert_eq!(intents.held(), 0);
    }

    #[test]
    fn many_waiters_each_get_the_key_alone() {
        let intents = Intents::new(Environment::default());
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for owner in 1..=16 {
                let (intents, inside) = (&intents, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let wait = Wait::Until { deadline: None, interrupt: NEVER };
                        intents.acquire(owner, Space::Records, b"hot", Hold::Alone, wait).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        intents.release(owner, Space::Records, b"hot".into());
                    }
                });
            }
        });
        assert_eq!(intents.held(), 0);
    }

    #[test]
    fn many_share_a_key_and_no_writer_meanwhile() {
        let intents = Intents::new(Environment::default());
        let acquire = |owner, hold| intents.acquire(owner, Space::Records, b"k", hold, Wait::No);
        assert!(acquire(1, Hold::Shared).unwrap().is_some());
        assert!(acquire(2, Hold::Shared).unwrap().is_some());
        assert!(acquire(2, Hold::Shared).unwrap().is_none());
        assert!(matches!(acquire(3, Hold::Alone), Err(Error::Conflict(_))));
        assert!(matches!(acquire(1, Hold::Alone), Err(Error::Conflict(_))), "another shares it");
        intents.release(2, Space::Records, b"k".into());
        assert!(acquire(1, Hold::Alone).unwrap().is_none(), "alone, it may write");
        assert!(matches!(acquire(2, Hold::Shared), Err(Error::Conflict(_))));
        assert!(acquire(1, Hold::Shared).unwrap().is_none());
        intents.release(1, Space::Records, b"k".into());
        assert_eq!(intents.held(), 0);
    }

    #[test]
    fn readers_and_writers_in_line_each_have_their_turn() {
        let intents = Intents::new(Environment::default());
        let (writing, reading) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for owner in 1..=12 {
                let (intents, writing, reading) = (&intents, &writing, &reading);
                scope.spawn(move || {
                    for turn in 0..300 {
                        let wait = Wait::Until { deadline: None, interrupt: NEVER };
                        let writes = (turn + owner) % 4 == 0;
                        let hold = if writes { Hold::Alone } else { Hold::Shared };
                        intents.acquire(owner, Space::Records, b"hot", hold, wait).unwrap();
                        if writes {
                            assert_eq!(writing.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(reading.load(Ordering::SeqCst), 0);
                            writing.fetch_sub(1, Ordering::SeqCst);
                        } else {
                            reading.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(writing.load(Ordering::SeqCst), 0);
                            reading.fetch_sub(1, Ordering::SeqCst);
                        }
                        intents.release(owner, Space::Records, b"hot".into());
                    }
                });
            }
        });
        assert_eq!(intents.held(), 0);
    }

    #[test]
    fn a_writer_who_gives_up_lets_those_behind_him_share() {
        let intents = Intents::new(Environment::default());
        intents.acquire(1, Space::Meta, b"k", Hold::Shared, Wait::No).unwrap();
        std::thread::scope(|scope| {
            let intents = &intents;
            scope.spawn(move || {
                let deadline = Some(Instant::now() + Duration::from_millis(60));
                let wait = Wait::Until { deadline, interrupt: NEVER };
                assert!(intents.acquire(2, Space::Meta, b"k", Hold::Alone, wait).is_err());
            });
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                let wait = Wait::Until { deadline: None, interrupt: NEVER };
                intents.acquire(3, Space::Meta, b"k", Hold::Shared, wait).unwrap();
                intents.release(3, Space::Meta, b"k".into());
            });
        });
        intents.release(1, Space::Meta, b"k".into());
        assert_eq!(intents.held(), 0);
    }
}
