//! The job that writes what is pending of a pattern. The change that makes something pending begins it. It ends when nothing
//! is pending any more.

use std::sync::Arc;
use std::time::Duration;

use kilim_error::{ErrorCode, Result};
use kilim_storage::{Durability, Space, Wait};

use crate::engine::Engine;
use crate::layout;
use crate::operation::Operation;
use crate::patterns::{Job, Pattern, PendingSources};

/// How long a job rests when it has nothing to write yet, and after a failure.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);
const REST_AFTER_FAILURE_MAX: Duration = Duration::from_secs(10);

/// What a job found to do.
enum Found {
    /// Something was pending, and it is written.
    Work,
    /// Nothing is pending, but a unit is about to commit something.
    Nothing,
    /// Nothing is pending, and no unit is about to commit anything.
    Quiet,
}

impl Engine {
    /// How much of a pattern is pending.
    pub fn pending_of(&self, pattern: &Pattern) -> Result<PendingSources> {
        if !self.pending.has(pattern.id) {
            return Ok(PendingSources::default());
        }
        let all = crate::patterns::all_of(&self.store.snapshot(), pattern.id)?;
        let oldest = all.iter().map(|pending| pending.since).min();
        let millis = oldest.map_or(0, |since| self.now_millis().saturating_sub(since).max(0));
        Ok(PendingSources { count: all.len() as u64, age_millis: millis as u64 })
    }

    /// Begins jobs for what is pending: from the last run of the server, or of patterns that were paused.
    pub(crate) fn resume_pending(&self) -> Result<()> {
        let snapshot = self.store.snapshot();
        for pattern in self.patterns().iter() {
            if crate::patterns::count_of(&snapshot, pattern.id)? > 0 {
                self.note_pending(pattern);
            }
        }
        Ok(())
    }

    /// Begins another job for a pattern whose job was killed.
    pub fn take_up_pending(&self, pattern: &Arc<Pattern>) {
        if let Some(killed) = self.pending.forget_killed(pattern.id) {
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
            self.operations.note_pattern_moved();
        }
    }

    /// Writes what is pending until nothing is.
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
                // The job stays in the list, because something is still pending.
                job.set_error(Some("the job was killed: repairPattern takes it up again".to_owned()));
                self.operations.note_pattern_moved();
                return;
            }
            // If the pause was interrupted, the next turn finds out why.
            let _ = job.pause(&operation, pause);
        }
        self.jobs.lock().retain(|other| other.id != job.id);
        self.operations.note_pattern_moved();
    }

    fn catch_up_once(&self, operation: &Arc<Operation>, job: &Arc<Job>) -> Result<Found> {
        operation.check()?;
        job.check()?;
        let registry = self.patterns();
        let Some(pattern) = registry.iter().find(|pattern| pattern.id == job.pattern.id) else {
            self.pending.remove(job.pattern.id, self.store.last_commit_time());
            self.operations.note_pattern_moved();
            return Ok(Found::Quiet);
        };
        if !pattern.is_maintained() {
            // The pattern is paused, so its fields stay as they are. Another job is begun when it is resumed.
            return Ok(Found::Nothing);
        }
        self.store.settle(Durability::Relaxed)?;
        let all = crate::patterns::all_of(&self.store.snapshot(), pattern.id)?;
        if all.is_empty() {
            return self.close_gate(pattern);
        }
        let throttle = Duration::from_millis(u64::from(pattern.declaration.options.backfill.throttle_ms));
        self.write_pending(operation, job, pattern, &all, throttle)?;
        Ok(Found::Work)
    }

    /// Takes a pattern off those with something pending, if nothing is and no unit is about to commit anything.
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
        self.pending.remove(pattern.id, snapshot.commit_time());
        self.operations.note_pattern_moved();
        Ok(Found::Quiet)
    }
}
