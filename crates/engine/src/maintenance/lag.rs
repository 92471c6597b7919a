//! Which patterns may be behind: known in memory, so that readers pay nothing where none is.
//!
//! A pattern is entered before a record of it can be committed, and taken off once no record is in the store and
//! nobody is about to commit one (writers share a gate until their commit; whoever closes it holds it alone). A
//! snapshot from before that moment is looked into all the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kilim_error::{ErrorCode, Result};
use kilim_storage::{CommitTime, Durability, Space, Wait};
use parking_lot::Mutex;

use super::stats::Behind;
use super::{Job, JobKind, Pattern, PatternId, pending};
use crate::engine::Engine;
use crate::layout;
use crate::operation::Operation;

/// Between two looks of a job that has nothing to do yet, and after failures.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);
const REST_AFTER_FAILURE_MAX: Duration = Duration::from_secs(10);

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

/// What a job found.
enum Found {
    /// There was work, and it is done.
    Work,
    /// Nothing yet, but somebody is about to commit.
    Nothing,
    /// Nothing, and nobody is.
    Quiet,
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

    /// Enters a pattern; the number of the job that will find what is left.
    pub fn note(&self, engine: &Engine, pattern: &Arc<Pattern>) -> u64 {
        if let Some(Some(job)) = self.states.lock().open.get(&pattern.id) {
            return job.id;
        }
        let id = u64::from(engine.next_index_id().0);
        let mut states = self.states.lock();
        let entered = states.open.entry(pattern.id).or_default();
        if let Some(job) = entered {
            return job.id;
        }
        let job = Arc::new(Job::new(id, JobKind::FanOut, pattern.clone()));
        *entered = Some(job.clone());
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
        drop(states);
        engine.begin_catching_up(job);
        id
    }

    /// Enters a pattern that has something pending already; [`Engine::resume_pending`] gives it a job.
    pub fn enter(&self, pattern: PatternId) {
        self.states.lock().open.entry(pattern).or_default();
        self.quiet_since.store(CommitTime::MAX, Ordering::Release);
    }

    /// Takes a pattern off: nothing of it is in the store as of this time.
    fn remove(&self, pattern: PatternId, time: CommitTime) {
        let mut states = self.states.lock();
        states.open.remove(&pattern);
        states.quiet_since = states.quiet_since.max(time);
        if states.open.is_empty() {
            self.quiet_since.store(states.quiet_since, Ordering::Release);
        }
    }

    /// Forgets a pattern that is no more.
    pub fn forget(&self, engine: &Engine, pattern: PatternId) {
        engine.jobs.lock().retain(|job| job.kind != JobKind::FanOut || job.pattern.id != pattern);
        if self.states.lock().open.contains_key(&pattern) {
            self.remove(pattern, engine.store.last_commit_time());
        }
    }

    /// Forgets a job that was killed, if there is one.
    fn forget_killed(&self, pattern: PatternId) -> Option<Arc<Job>> {
        let mut states = self.states.lock();
        let entered = states.open.get_mut(&pattern)?;
        entered.take_if(|job| job.is_killed())
    }
}

impl Engine {
    /// How far a pattern is behind its sources.
    pub fn behind_of(&self, pattern: &Pattern) -> Result<Behind> {
        if !self.lag.is_open(pattern.id) {
            return Ok(Behind::default());
        }
        let all = pending::all_of(&self.store.snapshot(), pattern.id)?;
        let oldest = all.iter().map(|pending| pending.since).min();
        let millis = oldest.map_or(0, |since| self.now_millis().saturating_sub(since).max(0));
        Ok(Behind { pending_sources: all.len() as u64, lag_millis: millis as u64 })
    }

    /// Takes up what the last run of the server left pending, and what stood still while its pattern did.
    pub(crate) fn resume_pending(&self) -> Result<()> {
        let snapshot = self.store.snapshot();
        for pattern in self.patterns().iter() {
            if pending::count_of(&snapshot, pattern.id)? > 0 {
                self.lag.note(self, pattern);
            }
        }
        Ok(())
    }

    /// Takes up the work of a job that was killed.
    pub fn take_up_pending(&self, pattern: &Arc<Pattern>) {
        if let Some(killed) = self.lag.forget_killed(pattern.id) {
            self.jobs.lock().retain(|other| other.id != killed.id);
            self.lag.note(self, pattern);
        }
    }

    fn begin_catching_up(&self, job: Arc<Job>) {
        self.jobs.lock().push(job.clone());
        let working = job.clone();
        if !self.spawn_job(move |engine| engine.catch_up(&working)) {
            job.set_error(Some("no thread could be had for it".to_owned()));
            job.kill();
        }
    }

    /// The work of a job: until nothing is pending.
    fn catch_up(&self, job: &Arc<Job>) {
        let running = self.operations.start(0);
        let operation = Arc::clone(&running);
        job.run_by(&operation);
        let (mut rest, mut rest_after_failure) = (REST_MIN, REST_MAX);
        loop {
            let pause = match self.catch_up_once(&operation, job) {
                Ok(Found::Quiet) => break,
                Ok(Found::Work) => {
                    (rest, rest_after_failure) = (REST_MIN, REST_MAX);
                    job.set_error(None);
                    continue;
                }
                Ok(Found::Nothing) => {
                    rest = (rest * 2).min(REST_MAX);
                    rest
                }
                Err(error) if error.code() == ErrorCode::InterruptedAtShutdown => return,
                Err(error) => {
                    job.set_error(Some(error.to_string()));
                    rest_after_failure = (rest_after_failure * 2).min(REST_AFTER_FAILURE_MAX);
                    rest_after_failure
                }
            };
            if job.is_killed() {
                // It stays in the list: what it left is still pending.
                job.set_error(Some("the job was killed: repairPattern takes it up again".to_owned()));
                return;
            }
            // Killed or told to stop: the next turn finds out which.
            let _ = job.pause(&operation, pause);
        }
        self.jobs.lock().retain(|other| other.id != job.id);
    }

    fn catch_up_once(&self, operation: &Arc<Operation>, job: &Arc<Job>) -> Result<Found> {
        operation.check()?;
        job.check()?;
        let registry = self.patterns();
        let Some(pattern) = registry.iter().find(|pattern| pattern.id == job.pattern.id) else {
            self.lag.remove(job.pattern.id, self.store.last_commit_time());
            return Ok(Found::Quiet);
        };
        if !pattern.is_maintained() {
            // Its fields are frozen; whoever puts it in force again starts another job.
            return Ok(Found::Nothing);
        }
        self.store.settle(Durability::Relaxed)?;
        let all = pending::all_of(&self.store.snapshot(), pattern.id)?;
        if all.is_empty() {
            return self.close_gate(pattern);
        }
        let throttle = Duration::from_millis(u64::from(pattern.declaration.options.backfill.throttle_ms));
        self.carry_through(operation, job, pattern, &all, throttle)?;
        Ok(Found::Work)
    }

    /// Takes a pattern off the list if nothing is pending and nobody is about to leave something.
    fn close_gate(&self, pattern: &Pattern) -> Result<Found> {
        let mut transaction = self.store.begin();
        if transaction.lock(Space::Meta, &layout::pending_key(pattern.id, &[]), Wait::No).is_err() {
            return Ok(Found::Nothing);
        }
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        if pending::count_of(&snapshot, pattern.id)? > 0 {
            return Ok(Found::Nothing);
        }
        self.lag.remove(pattern.id, snapshot.commit_time());
        Ok(Found::Quiet)
    }
}
