//! Counters that serverStatus shows.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Metrics {
    pub inserted: Counter,
    pub queried: Counter,
    pub updated: Counter,
    pub deleted: Counter,
    pub got_more: Counter,
    pub commands: Counter,
    pub documents_returned: Counter,
    pub documents_inserted: Counter,
    pub documents_updated: Counter,
    pub documents_deleted: Counter,
    pub keys_examined: Counter,
    pub documents_examined: Counter,
    pub write_conflicts: Counter,
    pub connections_current: Counter,
    pub connections_total: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub requests: Counter,
    pub transactions_started: Counter,
    pub transactions_committed: Counter,
    pub transactions_aborted: Counter,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
