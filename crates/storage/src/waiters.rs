//! Threads that wait for the next commit.
//!
//! They sleep on one condition variable, so that any number of them costs nothing until somebody commits. A commit looks
//! at a counter to know whether anybody waits.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub struct Waiters {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Waiters {
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
    }

    /// Waits until a condition holds or a time has come. The condition is looked at once, and again whenever there is a
    /// commit or somebody calls [`Waiters::wake`].
    pub(crate) fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut lock = self.lock.lock();
        while !is_over() && !self.wake.wait_until(&mut lock, until).timed_out() {}
        drop(lock);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
