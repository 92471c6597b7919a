//! Threads for background work, and the jobs that run.

use std::sync::Arc;
use std::thread;

use crate::engine::Engine;
use crate::patterns::{Job, JobKind, Pattern};

impl Engine {
    /// Runs a job in a thread of its own. False if the thread cannot be started.
    pub(crate) fn spawn_job(&self, work: impl FnOnce(&Engine) + Send + 'static) -> bool {
        let engine = self.weak();
        let run = move || {
            if let Some(engine) = engine.upgrade() {
                work(&engine);
            }
        };
        match self.environment().spawn("pattern", run) {
            Ok(thread) => {
                let mut threads = self.job_threads.lock();
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                true
            }
            Err(_) => false,
        }
    }

    /// The job that fills a pattern.
    pub fn filling(&self, pattern: &Pattern) -> Option<Arc<Job>> {
        let own = |job: &&Arc<Job>| job.kind == JobKind::Fill && job.pattern.id == pattern.id;
        self.jobs.lock().iter().find(own).cloned()
    }

    /// The job that writes what is pending of a pattern.
    pub fn catching_up(&self, pattern: &Pattern) -> Option<Arc<Job>> {
        let own = |job: &&Arc<Job>| job.kind == JobKind::FanOut && job.pattern.id == pattern.id;
        self.jobs.lock().iter().find(own).cloned()
    }

    /// Whether a job still fills the pattern or writes what is pending of it. A job is listed for a moment longer than it has
    /// something to do. A killed job does not count: it may stay listed until somebody takes its work up again.
    pub fn has_running_job(&self, pattern: &Pattern) -> bool {
        let own = |job: &Arc<Job>| job.pattern.id == pattern.id && job.kind != JobKind::Verify;
        self.jobs.lock().iter().any(|job| own(job) && !job.is_killed())
    }

    /// Waits until all jobs have ended. They have been told to stop.
    pub(crate) fn await_jobs(&self) {
        let threads = std::mem::take(&mut *self.job_threads.lock());
        for thread in threads {
            // A job may be the last that holds the engine, so this may run in a job's thread.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
