//! Threads that wait for something to happen: the next commit, for instance.
//!
//! They sleep on one condition variable, so that any number of them costs nothing until it happens. Whoever makes it happen
//! looks at a counter to know whether anybody waits.
//!
//! Those who wait for different things wait in groups. Waking a group wakes nobody else; waking what the groups belong to
//! wakes all of them, since every wait can be ended.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub struct Waiters {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    groups: Mutex<Vec<Weak<Waiters>>>,
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
            // A waiter that has just looked sleeps by the time that the lock is free.
            drop(self.lock.lock());
            self.wake.notify_all();
        }
        // With no lock held: a waiter may hold others while it looks whether its wait is over.
        let groups: Vec<Arc<Waiters>> = self.groups.lock().iter().filter_map(Weak::upgrade).collect();
        groups.iter().for_each(|group| group.wake());
    }

    /// Waits until a condition holds or a time has come. The condition is looked at once, and again whenever somebody calls
    /// [`Waiters::wake`], as a commit does for those who wait for one.
    pub fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut lock = self.lock.lock();
        while !is_over() && !self.wake.wait_until(&mut lock, until).timed_out() {}
        drop(lock);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
