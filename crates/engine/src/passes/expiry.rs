//! When documents that have expired are looked for, and what came of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metrics::Counter;

/// When to look, and what came of it.
#[derive(Debug)]
pub struct Expiry {
    enabled: AtomicBool,
    pause_seconds: AtomicU64,
    last: Mutex<Instant>,
    running: AtomicBool,
    pub passes: Counter,
    pub removed: Counter,
}

/// As on MongoDB.
const PAUSE_SECONDS: u64 = 60;

impl Expiry {
    /// The first pass comes a pause after `now`.
    pub(crate) fn new(now: Instant) -> Expiry {
        Expiry {
            enabled: AtomicBool::new(true),
            pause_seconds: AtomicU64::new(PAUSE_SECONDS),
            last: Mutex::new(now),
            running: AtomicBool::new(false),
            passes: Counter::default(),
            removed: Counter::default(),
        }
    }
}

impl Expiry {
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.pause_seconds.load(Ordering::Relaxed))
    }

    pub fn set_pause_seconds(&self, seconds: u64) {
        self.pause_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Takes up a pass, if it is time for one and none runs. [`Expiry::end`] ends it.
    pub(crate) fn begin_if_due(&self, now: Instant) -> bool {
        let is_due = self.is_enabled() && now.saturating_duration_since(*self.last.lock()) >= self.pause();
        if !is_due || self.running.swap(true, Ordering::AcqRel) {
            return false;
        }
        *self.last.lock() = now;
        true
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::Release);
    }
}
