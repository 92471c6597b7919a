//! Snapshots that readers may come back to: `readConcern: "snapshot"` outside a transaction.
//!
//! The first read of a snapshot session is told the time it read at; later ones ask for that time.
//! Each kept snapshot holds back the space of what was overwritten since, so they are few and short-lived.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{CommitTime, Environment, Snapshot};
use parking_lot::Mutex;

/// As long as MongoDB keeps its history by default.
const KEPT: Duration = Duration::from_secs(300);

/// Beyond this, the oldest goes.
const SNAPSHOTS_MAX: usize = 1000;

#[derive(Default)]
pub struct History {
    environment: Environment,
    kept: Mutex<BTreeMap<CommitTime, (Snapshot, Instant)>>,
}

impl History {
    pub(crate) fn new(environment: Environment) -> History {
        History { environment, ..History::default() }
    }

    /// Keeps a snapshot for readers who will name its time.
    pub fn keep(&self, snapshot: &Snapshot) {
        let mut kept = self.kept.lock();
        // Also where the time is known: whoever is told it now may come back as late as anybody.
        kept.insert(snapshot.commit_time(), (snapshot.clone(), self.environment.now()));
        if kept.len() > SNAPSHOTS_MAX {
            kept.pop_first();
        }
    }

    pub fn at(&self, time: CommitTime) -> Result<Snapshot> {
        match self.kept.lock().get(&time) {
            Some((snapshot, _)) => Ok(snapshot.clone()),
            None => Err(Error::user(
                ErrorCode::SnapshotTooOld,
                "Read timestamp is older than the oldest available timestamp: Kilim keeps the snapshots that \
                 snapshot reads began with for five minutes",
            )),
        }
    }

    pub(crate) fn forget_old(&self, now: Instant) {
        self.kept.lock().retain(|_, (_, since)| now.duration_since(*since) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_storage::{Options, Store};

    #[test]
    fn a_snapshot_is_kept_from_the_last_time_it_was_handed_out() {
        let store = Store::in_memory(Options::default());
        let history = History::default();
        let snapshot = store.snapshot();
        history.keep(&snapshot);
        let first = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        history.keep(&snapshot);
        history.forget_old(first + KEPT);
        assert!(history.at(snapshot.commit_time()).is_ok());
        history.forget_old(Instant::now() + KEPT);
        assert_eq!(history.at(snapshot.commit_time()).err().unwrap().code(), ErrorCode::SnapshotTooOld);
    }
}
