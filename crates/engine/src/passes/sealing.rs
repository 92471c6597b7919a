//! Whether measurements are being packed, and how many were.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::metrics::Counter;

/// One pass at a time packs what is due.
#[derive(Debug, Default)]
pub struct Sealing {
    running: AtomicBool,
    /// Measurements that were packed since the start.
    pub sealed: Counter,
}

impl Sealing {
    /// Takes up a pass, unless one runs. [`Sealing::end`] ends it.
    pub(crate) fn begin(&self) -> bool {
        !self.running.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::Release);
    }
}
