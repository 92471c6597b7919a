//! Whether patterns are scrubbed, and what came of it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::metrics::Counter;

/// When patterns were looked at, and what came of it.
#[derive(Debug)]
pub struct Scrubbing {
    enabled: AtomicBool,
    running: AtomicBool,
    /// Checks made, and documents found wrong.
    pub checks: Counter,
    pub wrong: Counter,
}

impl Default for Scrubbing {
    fn default() -> Scrubbing {
        Scrubbing {
            enabled: AtomicBool::new(true),
            running: AtomicBool::new(false),
            checks: Counter::default(),
            wrong: Counter::default(),
        }
    }
}

impl Scrubbing {
    /// Takes up a pass, unless one runs. [`Scrubbing::end`] ends it.
    pub(crate) fn begin(&self) -> bool {
        !self.running.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::Release);
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }
}
