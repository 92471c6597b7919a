//! Threads for background work, and the jobs that run.

use std::sync::Arc;
use std::thread;

use crate::engine::Engine;
use crate::patterns::{Job, JobKind, Pattern};

impl Engine {
    /// Runs a job's work in a thread of its own; false where there is none to be had.
    pub(crate) fn spawn_job(&self, work: impl FnOnce(&Engine) + Send + 'static) -> bool {
        let engine = self.weak();
        let run = move || {
            if let Some(engine) = engine.upgrade() {
                work(&engine);
            }
        };
        match thread::Builder::new().name("pattern".to_owned()).spawn(run) {
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

    /// The job that carries through what a pattern has pending.
    pub fn catching_up(&self, pattern: &Pattern) -> Option<Arc<Job>> {
        let own = |job: &&Arc<Job>| job.kind == JobKind::FanOut && job.pattern.id == pattern.id;
        self.jobs.lock().iter().find(own).cloned()
    }

    /// Waits until no job works any more. They have been told to stop.
    pub(crate) fn await_jobs(&self) {
        let threads = std::mem::take(&mut *self.job_threads.lock());
        for thread in threads {
            // The last to hold the engine may be a job itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
