//! Threads that wait for something to happen: the next commit, for instance.
//!
//! They sleep on condition variables, so that any number of them costs nothing until it happens. Whoever makes it happen
//! looks at a counter to know whether anybody waits. They are divided among shards, so that those who are woken and those who go to
//! sleep again meantime do not all queue for one lock.
//!
//! Who waits without a thread leaves a [`Waker`] instead, which is called once.
//!
//! Those who wait for different things wait in groups. Waking a group wakes nobody else; waking what the groups belong to
//! wakes all of them, since every wait can be ended.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub struct Waiters {
    waiting: AtomicUsize,
    shards: [Shard; SHARDS],
    /// Those without a thread, by a number that each has for itself.
    wakers: Mutex<HashMap<u64, Waker>>,
    groups: Mutex<Vec<Weak<Waiters>>>,
}

/// Where some of them sleep.
#[derive(Debug, Default)]
struct Shard {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

/// The shard of this thread. Threads take turns.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS));
    OWN.get()
}

impl Waiters {
    /// A group that is woken with these, and by itself. It ends with its last owner.
    pub fn group(&self) -> Arc<Waiters> {
        let group = Arc::<Waiters>::default();
        let mut groups = self.groups.lock();
        // Those that have ended are looked for as often as their number doubles.
        if groups.len() == groups.capacity() {
            groups.retain(|group| group.strong_count() > 0);
        }
        groups.push(Arc::downgrade(&group));
        group
    }

    /// Has everybody who waits look again whether that is over: after a commit, or where something else ends a wait. The
    /// caller holds no lock that [`Waiters::wait`]'s condition takes.
    pub fn wake(&self) {
        // What the caller changed comes before the look at the counter. A waiter counts itself before it looks at what
        // it waits for, so one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            for shard in self.shards.iter().filter(|shard| shard.waiting.load(Ordering::Relaxed) > 0) {
                // A waiter that has just looked sleeps by the time that the lock is free.
                drop(shard.lock.lock());
                shard.wake.notify_all();
            }
            let wakers: Vec<Waker> = {
                let mut wakers = self.wakers.lock();
                self.waiting.fetch_sub(wakers.len(), Ordering::Relaxed);
                wakers.drain().map(|(_, waker)| waker).collect()
            };
            wakers.into_iter().for_each(Waker::wake);
        }
        // With no lock held: a waiter may hold others while it looks whether its wait is over.
        let groups: Vec<Arc<Waiters>> = self.groups.lock().iter().filter_map(Weak::upgrade).collect();
        groups.iter().for_each(|group| group.wake());
    }

    /// Waits until a condition holds or a time has come. The condition is looked at once, and again whenever somebody calls
    /// [`Waiters::wake`], as a commit does for those who wait for one.
    pub fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool) {
        let shard = &self.shards[own_shard()];
        shard.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut lock = shard.lock.lock();
        while !is_over() && !shard.wake.wait_until(&mut lock, until).timed_out() {}
        drop(lock);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        shard.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has a waker called by the next [`Waiters::wake`], unless it is taken back before. Whoever leaves it looks afterwards
    /// whether the wait is over already.
    pub fn leave(&self, number: u64, waker: &Waker) {
        let mut wakers = self.wakers.lock();
        if wakers.insert(number, waker.clone()).is_none() {
            // Counted while nobody can take it out again.
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        drop(wakers);
        fence(Ordering::SeqCst);
    }

    pub fn take_back(&self, number: u64) {
        let mut wakers = self.wakers.lock();
        if wakers.remove(&number).is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waker_is_called_once_for_its_own_group_and_for_all() {
        let all = Waiters::default();
        let (one, other) = (all.group(), all.group());
        let counted = Arc::<Counted>::default();
        let waker = Waker::from(counted.clone());
        let called = || counted.0.load(Ordering::Relaxed);
        one.leave(1, &waker);
        one.leave(1, &waker);
        other.wake();
        assert_eq!(called(), 0);
        one.wake();
        one.wake();
        assert_eq!(called(), 1);
        one.leave(1, &waker);
        all.wake();
        assert_eq!(called(), 2);
        one.leave(1, &waker);
        one.take_back(1);
        one.take_back(1);
        all.wake();
        assert_eq!(called(), 2);
        assert_eq!(one.waiting.load(Ordering::Relaxed), 0);
    }
}
