//! When the pages on disk are checked, and what was found.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metrics::Counter;

/// From the start to the first pass: a server that is often restarted is not slowed down by it.
const FIRST_AFTER: Duration = Duration::from_secs(3600);

/// From one pass to the next. Disks are commonly scrubbed weekly or monthly.
const EVERY: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a pass reads in a second: little beside what a disk gives, and still a terabyte in three days.
pub(crate) const BYTES_PER_SECOND: u64 = 4 << 20;

/// What the passes found, since the start.
#[derive(Debug, Default)]
pub struct PageScrub {
    running: AtomicBool,
    last: Mutex<Option<Instant>>,
    /// When the last pass ended, in milliseconds since 1970; zero before the first.
    pub ended_millis: AtomicI64,
    pub passes: Counter,
    pub bytes: Counter,
    pub damaged_pages: Counter,
}

impl PageScrub {
    /// Takes up a pass, if it is time for one and none runs. [`PageScrub::end`] ends it.
    pub(crate) fn begin_if_due(&self, started: Instant, now: Instant) -> bool {
        let is_due = match *self.last.lock() {
            Some(last) => now.saturating_duration_since(last) >= EVERY,
            None => now.saturating_duration_since(started) >= FIRST_AFTER,
        };
        if !is_due || self.running.swap(true, Ordering::AcqRel) {
            return false;
        }
        *self.last.lock() = Some(now);
        true
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::Release);
    }
}
