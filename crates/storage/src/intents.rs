//! Write intents: the first writer of a key holds it until its transaction enters the commit queue or ends.
//!
//! Waiters stand in line per key, and a release hands the key to the first of them, so nobody starves on a hot
//! document and nobody wakes in vain. The table is sharded by key hash; a shard's lock is held for a few map
//! operations only, never while waiting.
//!
//! Invariant: a key has at most one owner, and a key with waiters has an owner.

use crate::space::{Bytes, Space};
use kilim_error::{Error, ErrorCode, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Enough that 64 writers seldom meet in one shard.
const SHARDS: usize = 64;

/// How long a waiter sleeps before it polls its interrupt again.
const POLL: Duration = Duration::from_millis(10);

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
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

type Shard = [HashMap<Bytes, Intent>; Space::COUNT];

struct Intent {
    owner: TransactionId,
    waiters: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    transaction: TransactionId,
    granted: Mutex<bool>,
    wake: Condvar,
}

impl Intents {
    pub(crate) fn new() -> Intents {
        Intents { hasher: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// `None` if the transaction holds the key already.
    pub(crate) fn acquire(
        &self,
        owner: TransactionId,
        space: Space,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Locked>> {
        let shard = self.shard(key);
        let mut intents = shard.lock();
        let Some(intent) = intents[space.at()].get_mut(key) else {
            intents[space.at()].insert(Bytes::from(key), Intent { owner, waiters: VecDeque::new() });
            return Ok(Some(Locked { waited: false }));
        };
        if intent.owner == owner {
            return Ok(None);
        }
        let Wait::Until { deadline, interrupt } = wait else {
            return Err(Error::Conflict("another transaction holds the key"));
        };
        let waiter =
            Arc::new(Waiter { transaction: owner, granted: Mutex::new(false), wake: Condvar::new() });
        intent.waiters.push_back(waiter.clone());
        drop(intents);

        let refused = waiter.wait(deadline, interrupt);
        if let Some(error) = refused {
            let mut intents = shard.lock();
            if let Some(intent) = intents[space.at()].get_mut(key) {
                if intent.owner == owner {
                    // Granted between the last look and now: the wait was not in vain.
                    return Ok(Some(Locked { waited: true }));
                }
                intent.waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
            }
            return Err(error);
        }
        Ok(Some(Locked { waited: true }))
    }

    pub(crate) fn release(&self, owner: TransactionId, space: Space, key: &[u8]) {
        let mut intents = self.shard(key).lock();
        let Some(intent) = intents[space.at()].get_mut(key) else { return };
        debug_assert_eq!(intent.owner, owner, "an intent is released by its owner");
        match intent.waiters.pop_front() {
            Some(next) => {
                intent.owner = next.transaction;
                *next.granted.lock() = true;
                next.wake.notify_one();
            }
            None => {
                intents[space.at()].remove(key);
            }
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().iter().map(HashMap::len).sum::<usize>()).sum()
    }
}

impl Waiter {
    /// Why the wait ended without the key.
    fn wait(&self, deadline: Option<Instant>, interrupt: &dyn Fn() -> Option<Error>) -> Option<Error> {
        let mut granted = self.granted.lock();
        while !*granted {
            let mut until = Instant::now() + POLL;
            if let Some(deadline) = deadline {
                until = until.min(deadline);
            }
            let timed_out = self.wake.wait_until(&mut granted, until).timed_out();
            if *granted {
                break;
            }
            if timed_out {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
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
        let intents = Intents::new();
        assert!(intents.acquire(1, Space::Records, b"k", Wait::No).unwrap().is_some());
        assert!(intents.acquire(1, Space::Records, b"k", Wait::No).unwrap().is_none());
        assert!(matches!(intents.acquire(2, Space::Records, b"k", Wait::No), Err(Error::Conflict(_))));
        assert!(intents.acquire(2, Space::Index, b"k", Wait::No).unwrap().is_some());
        intents.release(1, Space::Records, b"k");
        assert!(intents.acquire(2, Space::Records, b"k", Wait::No).unwrap().is_some());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_by_its_interrupt() {
        let intents = Intents::new();
        intents.acquire(1, Space::Meta, b"k", Wait::No).unwrap();
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let error =
            intents.acquire(2, Space::Meta, b"k", Wait::Until { deadline, interrupt: NEVER }).unwrap_err();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
        let interrupt = &|| Some(Error::user(ErrorCode::Interrupted, "killed"));
        let error =
            intents.acquire(2, Space::Meta, b"k", Wait::Until { deadline: None, interrupt }).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Interrupted);
        intents.release(1, Space::Meta, b"k");
        assert_eq!(intents.held(), 0);
    }

    #[test]
    fn many_waiters_each_get_the_key_alone() {
        let intents = Intents::new();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for owner in 1..=16 {
                let (intents, inside) = (&intents, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let wait = Wait::Until { deadline: None, interrupt: NEVER };
                        intents.acquire(owner, Space::Records, b"hot", wait).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        intents.release(owner, Space::Records, b"hot");
                    }
                });
            }
        });
        assert_eq!(intents.held(), 0);
    }
}
