//! Counters that serverStatus and monitoring show.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    pub documents_examined: Counter,
    /// Keys of indexes and documents that commands looked at.
    pub keys_examined: Counter,
    pub documents_read: Counter,
    /// Commands that sorted by themselves, no index having the order.
    pub sorted: Counter,
    pub write_conflicts: Counter,
    pub connections_current: Counter,
    pub connections_total: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub requests: Counter,
    pub transactions_started: Counter,
    pub transactions_committed: Counter,
    pub transactions_aborted: Counter,
    pub reads: Latency,
    pub writes: Latency,
    pub other_commands: Latency,
    /// Where a server listens, and for how many; nothing in a program that has the database within itself.
    pub server: OnceLock<Listening>,
    by_command: OnceLock<Box<[CommandCount]>>,
    slow: SlowLimit,
}

/// What a server knows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    pub port: u16,
    pub connections_max: usize,
}

/// How many operations of a kind, and how long they took together.
#[derive(Debug, Default)]
pub struct Latency {
    pub operations: Counter,
    pub micros: Counter,
}

impl Latency {
    pub fn add(&self, time: Duration) {
        self.operations.add(1);
        self.micros.add(time.as_micros() as u64);
    }
}

/// The same, and how many of them took about how long.
#[derive(Debug)]
pub struct Histogram {
    pub latency: Latency,
    /// By the bounds of [`BOUNDS`].
    counts: [Counter; BOUNDS.len()],
}

/// From how many microseconds on an operation belongs to a bucket: mongod's, so that what reads its histograms
/// reads ours. Powers of two, between 2 ms and 2 s also what lies in the middle of two.
const BOUNDS: [u64; 51] = {
    let mut bounds = [0; 51];
    let (mut at, mut power) = (1, 2);
    while at < bounds.len() {
        bounds[at] = power;
        at += 1;
        if power >= 1 << 11 && power < 1 << 21 {
            bounds[at] = power / 2 * 3;
            at += 1;
        }
        power *= 2;
    }
    bounds
};

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { latency: Latency::default(), counts: std::array::from_fn(|_| Counter::default()) }
    }
}

impl Histogram {
    pub fn add(&self, time: Duration) {
        self.latency.add(time);
        let micros = time.as_micros() as u64;
        self.counts[BOUNDS.partition_point(|bound| *bound <= micros) - 1].add(1);
    }

    /// The buckets that hold something: their lower bounds in microseconds, and how many operations.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = BOUNDS.iter().zip(&self.counts).map(|(bound, count)| (*bound, count.get()));
        filled.filter(|(_, count)| *count > 0)
    }
}

/// How often a command ran.
#[derive(Debug, Default)]
pub struct CommandCount {
    pub total: Counter,
    pub failed: Counter,
}

/// From how many milliseconds on an operation is slow.
#[derive(Debug)]
struct SlowLimit(AtomicU64);

impl Default for SlowLimit {
    fn default() -> SlowLimit {
        // As mongod's.
        SlowLimit(AtomicU64::new(100))
    }
}

impl Metrics {
    /// The counters of all commands, by their places among `known`.
    pub fn by_command(&self, known: usize) -> &[CommandCount] {
        self.by_command.get_or_init(|| (0..known).map(|_| CommandCount::default()).collect())
    }

    /// From how long on an operation is slow, and told in the log.
    pub fn slow_limit(&self) -> Duration {
        Duration::from_millis(self.slow.0.load(Ordering::Relaxed))
    }

    pub fn set_slow_limit(&self, limit: Duration) {
        self.slow.0.store(limit.as_millis() as u64, Ordering::Relaxed);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_mongods() {
        let known = [0, 2, 4, 1024, 2048, 3072, 4096, 6144, 1_572_864, 2_097_152, 4_194_304, 1 << 40];
        assert!(known.iter().all(|bound| BOUNDS.contains(bound)));
        assert!(BOUNDS.is_sorted());
        let histogram = Histogram::default();
        [0, 1, 2, 6386, 1 << 50].map(Duration::from_micros).into_iter().for_each(|time| histogram.add(time));
        assert!(histogram.buckets().eq([(0, 2), (2, 1), (6144, 1), (1 << 40, 1)]));
    }
}
