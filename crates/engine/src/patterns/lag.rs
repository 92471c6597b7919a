//! Which patterns may have something pending: known in memory, so that readers pay nothing where none has.
//!
//! A pattern is entered before a record of it can be committed, and taken off once no record is in the store and nobody
//! is about to commit one: writers share a gate until their commit, and whoever closes the gate holds it alone. A
//! snapshot from before that moment is looked into all the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kilim_storage::CommitTime;
use parking_lot::Mutex;

use super::{Job, JobKind, Pattern};
use crate::ids::PatternId;

/// The patterns that may be behind.
#[derive(Default)]
pub(crate) struct Lagging {
    /// Snapshots from this time on see nothing pending; the end of time while something may be.
    quiet_since: AtomicU64,
    states: Mutex<States>,
}

#[derive(Default)]
struct States {
    /// With the job that works on it, once there is one.
    open: HashMap<PatternId, Option<Arc<Job>>>,
    /// When the last pattern was taken off.
    quiet_since: CommitTime,
}

impl Lagging {
    /// Whether a snapshot may show something pending.
    pub fn may_show(&self, time: CommitTime) -> bool {
        time < self.quiet_since.load(Ordering::Acquire)
    }

    /// Whether a snapshot may show something pending of one pattern.
    pub fn may_show_of(&self, pattern: PatternId, time: CommitTime) -> bool {
        let states = self.states.lock();
        states.open.contains_key(&pattern) || time < states.quiet_since
    }

    /// Whether anything may be pending now, for whoever reads the newest state.
    pub fn is_any_open(&self) -> bool {
        self.quiet_since.load(Ordering::Acquire) == CommitTime::MAX
    }

    pub fn is_open(&self, pattern: PatternId) -> bool {
        self.is_any_open() && self.states.lock().open.contains_key(&pattern)
    }

    /// Whether a job is at it.
    pub fn is_worked_on(&self, pattern: PatternId) -> bool {
        let states = self.states.lock();
        states.open.get(&pattern).is_some_and(|job| job.as_ref().is_some_and(|job| !job.is_killed()))
    }

    /// The job that works on a pattern, if the pattern was entered before.
    pub(crate) fn job_of(&self, pattern: PatternId) -> Option<Arc<Job>> {
        self.states.lock().open.get(&pattern).cloned().flatten()
    }

    /// Enters a pattern: the job that will find what is left, and whether it is a new one, which the caller begins.
    pub(crate) fn note(&self, id: u64, pattern: &Arc<Pattern>) -> (Arc<Job>, bool) {
        let mut states = self.states.lock();
        let entered = states.open.entry(pattern.id).or_default();
        if let Some(job) = entered {
            return (job.clone(), false);
        }
        let job = Arc::new(Job::new(id, JobKind::FanOut, pattern.clone()));
        *entered = Some(job.clone());
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
        (job, true)
    }

    /// Enters a pattern that has something pending already; a job is found for it later.
    pub fn enter(&self, pattern: PatternId) {
        self.states.lock().open.entry(pattern).or_default();
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
    }

    /// Takes a pattern off: nothing of it is in the store as of this time.
    pub(crate) fn remove(&self, pattern: PatternId, time: CommitTime) {
        let mut states = self.states.lock();
        states.open.remove(&pattern);
        states.quiet_since = states.quiet_since.max(time);
        if states.open.is_empty() {
            self.quiet_since.store(states.quiet_since, Ordering::Release);
        }
    }

    /// Forgets a pattern that is no more.
    pub(crate) fn forget(&self, pattern: PatternId, time: CommitTime) {
        if self.states.lock().open.contains_key(&pattern) {
            self.remove(pattern, time);
        }
    }

    /// Forgets a job that was killed, if there is one.
    pub(crate) fn forget_killed(&self, pattern: PatternId) -> Option<Arc<Job>> {
        let mut states = self.states.lock();
        let entered = states.open.get_mut(&pattern)?;
        entered.take_if(|job| job.is_killed())
    }
}
