//! The jobs that write what is pending: begun by the change that leaves something, ended once nothing is left.

use std::sync::Arc;
use std::time::Duration;

use kilim_error::{ErrorCode, Result};
use kilim_storage::{Durability, Space, Wait};

use crate::engine::Engine;
use crate::layout;
use crate::operation::Operation;
use crate::patterns::{Behind, Job, Pattern};

/// Between two looks of a job that has nothing to do yet, and after failures.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);
const REST_AFTER_FAILURE_MAX: Duration = Duration::from_secs(10);

/// What a job found.
enum Found {
    /// There was work, and it is done.
    Work,
    /// Nothing yet, but somebody is about to commit.
    Nothing,
    /// Nothing, and nobody is.
    Quiet,
}

impl Engine {
    /// How far a pattern is behind its sources.
    pub fn behind_of(&self, pattern: &Pattern) -> Result<Behind> {
        if !self.lag.is_open(pattern.id) {
            return Ok(Behind::default());
        }
        let all = crate::patterns::all_of(&self.store.snapshot(), pattern.id)?;
        let oldest = all.iter().map(|pending| pending.since).min();
        let millis = oldest.map_or(0, |since| self.now_millis().saturating_sub(since).max(0));
        Ok(Behind { pending_sources: all.len() as u64, lag_millis: millis as u64 })
    }

    /// Takes up what the last run of the server left pending, and what stood still while its pattern did.
    pub(crate) fn resume_pending(&self) -> Result<()> {
        let snapshot = self.store.snapshot();
        for pattern in self.patterns().iter() {
            if crate::patterns::count_of(&snapshot, pattern.id)? > 0 {
                self.note_pending(pattern);
            }
        }
        Ok(())
    }

    /// Takes up the work of a job that was killed.
    pub fn take_up_pending(&self, pattern: &Arc<Pattern>) {
        if let Some(killed) = self.lag.forget_killed(pattern.id) {
            self.jobs.lock().retain(|other| other.id != killed.id);
            self.note_pending(pattern);
        }
    }

    pub(crate) fn catch_up_in_background(&self, job: Arc<Job>) {
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
        let all = crate::patterns::all_of(&self.store.snapshot(), pattern.id)?;
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
        if crate::patterns::count_of(&snapshot, pattern.id)? > 0 {
            return Ok(Found::Nothing);
        }
        self.lag.remove(pattern.id, snapshot.commit_time());
        Ok(Found::Quiet)
    }
}
