//! Threads that wait for something to happen: the next commit, for instance.
//!
//! They sleep on condition variables, so that any number of them costs nothing until it happens. Whoever makes it happen
//! looks at a counter to know whether anybody waits. They are divided among shards, so that those who are woken and those who go to
//! sleep again meantime do not all queue for one lock.
//!
//! Those who wait for different things wait in groups. Waking a group wakes nobody else; waking what the groups belong to
//! wakes all of them, since every wait can be ended.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub struct Waiters {
    waiting: AtomicUsize,
    shards: [Shard; SHARDS],
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
}
