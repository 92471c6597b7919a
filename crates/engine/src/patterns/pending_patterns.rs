//! Which patterns may have something pending: kept in memory, so that readers pay nothing if none has.
//!
//! A pattern is entered before a record of what is pending can be committed. It is taken off when the store has no such
//! record and no unit is about to commit one: units share a key of the pattern until their commit, and the job that takes
//! the pattern off holds this key alone. Snapshots from before that moment are still searched for records.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kilim_storage::{CommitTime, Environment};
use parking_lot::Mutex;

use super::{Job, JobKind, Pattern};
use crate::ids::PatternId;

/// The patterns that may have something pending.
#[derive(Default)]
pub(crate) struct PendingPatterns {
    /// Snapshots from this time on have nothing pending. The largest time while something may be pending.
    quiet_since: AtomicU64,
    states: Mutex<States>,
}

#[derive(Default)]
struct States {
    /// Each with the job that writes what is pending, once there is one.
    patterns: HashMap<PatternId, Option<Arc<Job>>>,
    /// The time as of which the last pattern was taken off.
    quiet_since: CommitTime,
}

impl PendingPatterns {
    /// Whether a snapshot may have something pending.
    pub fn may_show(&self, time: CommitTime) -> bool {
        time < self.quiet_since.load(Ordering::Acquire)
    }

    /// Whether a snapshot may have something pending of one pattern.
    pub fn may_show_of(&self, pattern: PatternId, time: CommitTime) -> bool {
        let states = self.states.lock();
        states.patterns.contains_key(&pattern) || time < states.quiet_since
    }

    /// Whether anything may be pending in the newest state.
    pub fn has_any(&self) -> bool {
        self.quiet_since.load(Ordering::Acquire) == CommitTime::MAX
    }

    /// Whether something of one pattern may be pending in the newest state.
    pub fn has(&self, pattern: PatternId) -> bool {
        self.has_any() && self.states.lock().patterns.contains_key(&pattern)
    }

    /// Whether a job is writing what is pending of a pattern.
    pub fn is_worked_on(&self, pattern: PatternId) -> bool {
        let states = self.states.lock();
        states.patterns.get(&pattern).is_some_and(|job| job.as_ref().is_some_and(|job| !job.is_killed()))
    }

    /// The job that works on a pattern, if the pattern was entered before.
    pub(crate) fn job_of(&self, pattern: PatternId) -> Option<Arc<Job>> {
        self.states.lock().patterns.get(&pattern).cloned().flatten()
    }

    /// Enters a pattern. Gives the job that will write what is pending, and whether it is new; the caller begins a new job.
    pub(crate) fn note(
        &self,
        id: u64,
        pattern: &Arc<Pattern>,
        environment: &Environment,
    ) -> (Arc<Job>, bool) {
        let mut states = self.states.lock();
        let entered = states.patterns.entry(pattern.id).or_default();
        if let Some(job) = entered {
            return (job.clone(), false);
        }
        let job = Arc::new(Job::new(id, JobKind::FanOut, pattern.clone(), environment));
        *entered = Some(job.clone());
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
        (job, true)
    }

    /// Enters a pattern that has something pending already. It gets a job later.
    pub fn enter(&self, pattern: PatternId) {
        self.states.lock().patterns.entry(pattern).or_default();
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
    }

    /// Takes a pattern off: as of this time the store has nothing pending of it.
    pub(crate) fn remove(&self, pattern: PatternId, time: CommitTime) {
        let mut states = self.states.lock();
        states.patterns.remove(&pattern);
        states.quiet_since = states.quiet_since.max(time);
        if states.patterns.is_empty() {
            self.quiet_since.store(states.quiet_since, Ordering::Release);
        }
    }

    /// Takes a dropped pattern off.
    pub(crate) fn forget(&self, pattern: PatternId, time: CommitTime) {
        if self.states.lock().patterns.contains_key(&pattern) {
            self.remove(pattern, time);
        }
    }

    /// Removes the job of a pattern if it was killed, so that another can be begun.
    pub(crate) fn forget_killed(&self, pattern: PatternId) -> Option<Arc<Job>> {
        let mut states = self.states.lock();
        let entered = states.patterns.get_mut(&pattern)?;
        entered.take_if(|job| job.is_killed())
    }
}
