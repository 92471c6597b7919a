//! Background work on a pattern: what runs, how far it is, and how it is ended.
//!
//! A [`Job`] only describes a running thread. What is still to do lies in the store. So nothing is lost when a job ends early,
//! and another job can go on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Environment;
use parking_lot::Mutex;

use super::Pattern;
use crate::operation::Operation;

/// Background work on a pattern.
#[derive(Debug)]
pub struct Job {
    pub id: u64,
    pub kind: JobKind,
    pub pattern: Arc<Pattern>,
    pub started: Instant,
    pub done: AtomicU64,
    pub total: AtomicU64,
    killed: AtomicBool,
    /// A writer waits for it.
    hurried: AtomicBool,
    /// The operation it runs as, once it runs.
    operation: OnceLock<Arc<Operation>>,
    /// Why it tries again or has given up.
    error: Mutex<Option<String>>,
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Fills documents from before the pattern was declared.
    Fill,
    /// Writes what is pending because sources changed.
    FanOut,
    /// Verifies the pattern, for a command that waits for the result.
    Verify,
}

impl JobKind {
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Fill => "fill",
            JobKind::FanOut => "fanOut",
            JobKind::Verify => "verify",
        }
    }
}

impl Job {
    pub fn new(id: u64, kind: JobKind, pattern: Arc<Pattern>, environment: &Environment) -> Job {
        Job {
            id,
            kind,
            pattern,
            started: environment.now(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            operation: OnceLock::new(),
            error: Mutex::new(None),
        }
    }

    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        if let Some(operation) = self.operation.get() {
            operation.kill();
        }
    }

    /// Sets the operation that the job runs as. It is killed with the job.
    pub(crate) fn run_by(&self, operation: &Arc<Operation>) {
        let _ = self.operation.set(operation.clone());
        if self.is_killed() {
            operation.kill();
        }
    }

    pub fn is_run_by(&self, operation: &Operation) -> bool {
        self.operation.get().is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), operation))
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.is_killed() {
            false => Ok(()),
            true => Err(Error::user(
                ErrorCode::PatternBackfillFailed,
                "the job was killed: repairPattern takes it up again",
            )),
        }
    }

    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Documents that are done, and how many there were to do.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Its state, as `patternJobs` shows it.
    pub fn state(&self) -> &'static str {
        match (self.is_killed(), self.error()) {
            (false, None) => "running",
            (false, Some(_)) => "retrying",
            (true, None) => "ending",
            (true, Some(_)) => "killed",
        }
    }

    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    pub fn set_error(&self, error: Option<String>) {
        *self.error.lock() = error;
    }

    /// Says that a writer waits for it: from here on it does not rest between its commits.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
        if let Some(operation) = self.operation.get() {
            operation.wake();
        }
    }

    /// Rests between two commits, unless a writer waits for it.
    pub(crate) fn rest(&self, operation: &Operation, time: Duration) -> Result<()> {
        let rested = operation.rest_unless(time, &|| self.hurried.load(Ordering::Relaxed));
        self.check()?;
        rested
    }

    /// Rests for a while. Ends early with an error if the job or its operation is killed.
    pub(crate) fn pause(&self, operation: &Operation, time: Duration) -> Result<()> {
        let rested = operation.rest(time);
        // Whoever kills the job ends its operation too.
        self.check()?;
        rested
    }
}
