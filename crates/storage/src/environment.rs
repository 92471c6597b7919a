//! The world outside as an argument: time, chance and threads.
//!
//! A store asks its [`Disk`](crate::disk::Disk) for files and an [`Environment`] for everything else that a run depends on.
//! Both are handed in when it is opened. In a program they are the system's; in a simulation they may be others, so that a
//! seed replays a run. A database over a store uses the store's environment.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where time, chance and threads come from.
pub trait World: Send + Sync {
    /// The time of day, since 1970.
    fn since_epoch(&self) -> Duration;

    /// A clock that never goes back, for durations.
    fn now(&self) -> Instant;

    fn sleep(&self, time: Duration);

    /// Bits that nobody can foretell.
    fn random(&self) -> u64;

    /// Runs something in a thread of its own.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;
}

/// A handle to a [`World`], the system's by default.
#[derive(Clone)]
pub struct Environment(Arc<dyn World>);

impl Environment {
    pub fn new(world: impl World + 'static) -> Environment {
        Environment(Arc::new(world))
    }

    /// The time of day, since 1970.
    pub fn since_epoch(&self) -> Duration {
        self.0.since_epoch()
    }

    /// A clock that never goes back, for durations.
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// How long ago a moment was.
    pub fn since(&self, moment: Instant) -> Duration {
        self.now().saturating_duration_since(moment)
    }

    pub fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }

    /// Bits that nobody can foretell.
    pub fn random(&self) -> u64 {
        self.0.random()
    }

    /// A number from 0 up to, and without, 1.
    pub fn random_share(&self) -> f64 {
        // The 53 bits that a double holds exactly.
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Runs something in a thread of its own.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        self.0.spawn(name, Box::new(work))
    }
}

impl Default for Environment {
    fn default() -> Environment {
        Environment::new(System)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// The operating system's.
struct System;

impl World for System {
    fn since_epoch(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Each state has keys from the system's source of randomness.
    fn random(&self) -> u64 {
        RandomState::new().hash_one((Instant::now(), thread::current().id()))
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}
