//! The locks of the commit queue and of the intents.
//!
//! In a program they are parking_lot's. With the feature `model` they are shuttle's, under which `model.rs` runs the
//! same queue and intents through many schedules. Only `queue.rs` and `intents.rs` use this: every other lock of the
//! crate is released before anything here is waited for, so that a schedule cannot depend on it.

#[cfg(feature = "model")]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "model"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

/// shuttle's locks with parking_lot's methods.
#[cfg(feature = "model")]
mod modelled {
    use shuttle::rand::Rng;
    use shuttle::sync;
    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    #[derive(Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    /// Empty only while a condition variable waits with it.
    pub(crate) struct MutexGuard<'a, T> {
        of: &'a sync::Mutex<T>,
        held: Option<sync::MutexGuard<'a, T>>,
    }

    #[derive(Default)]
    pub(crate) struct Condvar(sync::Condvar);

    pub(crate) struct WaitTimeoutResult(bool);

    const HELD: &str = "the lock is held while nothing waits";
    const SOUND: &str = "a model ends with its first panic";

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { of: &self.0, held: Some(self.0.lock().expect(SOUND)) }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.held.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect(HELD)
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar::default()
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect(HELD);
            guard.held = Some(self.0.wait(held).expect(SOUND));
        }

        /// Schedules have no clock: a wait until now is over before anybody wakes it, and so are half of the others.
        pub(crate) fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            until: Instant,
        ) -> WaitTimeoutResult {
            let held = guard.held.take().expect(HELD);
            let times_out = until <= Instant::now() || shuttle::rand::thread_rng().gen_bool(0.5);
            if times_out {
                drop(held);
                shuttle::thread::yield_now();
                guard.held = Some(guard.of.lock().expect(SOUND));
            } else {
                guard.held = Some(self.0.wait(held).expect(SOUND));
            }
            WaitTimeoutResult(times_out)
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    impl WaitTimeoutResult {
        pub(crate) fn timed_out(&self) -> bool {
            self.0
        }
    }
}
