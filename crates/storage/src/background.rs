//! The store's own threads: the syncer, the keeper and the reclaimer.
//!
//! The syncer puts relaxed commits on disk within 100 ms and commits tickets that nobody waits for. The keeper gives
//! the backend its upkeep, checkpoints above all. The reclaimer gives back the space of dropped collections; it
//! may wait long for a checkpoint, hence a thread of its own.

use crate::environment::Environment;
use crate::reclaim;
use crate::store::Shared;
use kilim_error::{Result, StorageError};
use parking_lot::{Condvar, Mutex};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From a relaxed commit to its sync. Half of what is promised, so that a slow sync still keeps the promise.
const SYNC_AFTER: Duration = Duration::from_millis(50);

/// Between two upkeeps.
const UPKEEP_EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Background {
    errands: Mutex<Errands>,
    to_syncer: Condvar,
    to_reclaimer: Condvar,
    to_keeper: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Errands {
    stop: bool,
    drain: bool,
    /// When the oldest unsynced relaxed commit has to be on its way to disk.
    sync_at: Option<Instant>,
    reclaim: bool,
}

/// What a thread does until it is stopped.
type Run = fn(&Arc<Shared>);

impl Background {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<()> {
        // Marks of the last run.
        shared.background.errands.lock().reclaim = true;
        let mut threads = shared.background.threads.lock();
        let all: [(&str, Run); 3] =
            [("kilim-sync", run_syncer), ("kilim-keep", run_keeper), ("kilim-reclaim", run_reclaimer)];
        for (name, run) in all {
            let running = shared.clone();
            let spawned = shared.environment.spawn(name, move || run(&running));
            threads
                .push(spawned.map_err(|error| StorageError::Io(format!("cannot start a thread: {error}")))?);
        }
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self) {
        self.errands.lock().stop = true;
        self.to_syncer.notify_all();
        self.to_reclaimer.notify_all();
        self.to_keeper.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the store panicked");
            }
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.errands.lock().stop
    }

    /// False if there is no thread any more that could.
    pub(crate) fn drain_soon(&self) -> bool {
        let mut errands = self.errands.lock();
        errands.drain = true;
        self.to_syncer.notify_one();
        !errands.stop
    }

    pub(crate) fn sync_soon(&self, environment: &Environment) {
        let mut errands = self.errands.lock();
        if errands.sync_at.is_none() {
            errands.sync_at = Some(environment.now() + SYNC_AFTER);
            self.to_syncer.notify_one();
        }
    }

    pub(crate) fn keep_soon(&self) {
        self.to_keeper.notify_one();
    }

    pub(crate) fn reclaim_soon(&self) {
        self.errands.lock().reclaim = true;
        self.to_reclaimer.notify_one();
    }
}

fn run_syncer(shared: &Arc<Shared>) {
    let background = &shared.background;
    loop {
        let (drain, sync) = {
            let mut errands = background.errands.lock();
            loop {
                if errands.stop {
                    return;
                }
                let due = errands.sync_at.is_some_and(|at| at <= shared.environment.now());
                if errands.drain || due {
                    break;
                }
                match errands.sync_at {
                    Some(at) => drop(background.to_syncer.wait_until(&mut errands, at)),
                    None => background.to_syncer.wait(&mut errands),
                }
            }
            let due = errands.sync_at.is_some_and(|at| at <= shared.environment.now());
            if due {
                errands.sync_at = None;
            }
            (std::mem::take(&mut errands.drain), due)
        };
        let outcome = if sync {
            shared.sync()
        } else if drain {
            shared.queue.drain(shared)
        } else {
            Ok(())
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "a background sync failed");
        }
    }
}

fn run_keeper(shared: &Arc<Shared>) {
    let background = &shared.background;
    let mut last_warning = None;
    loop {
        {
            let mut errands = background.errands.lock();
            if !errands.stop {
                background.to_keeper.wait_for(&mut errands, UPKEEP_EVERY);
            }
            if errands.stop {
                return;
            }
        }
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| {
            shared.backend.maintain(&mut |step| shared.exclusively(step))
        }));
        let Ok(kept) = kept else {
            // Without checkpoints the journal would grow for ever and writers wait for ever.
            return shared.queue.poison(&StorageError::Io("a checkpoint ended in a panic".into()));
        };
        if let Err(error) = kept {
            // Tried again and again, said once.
            let warning = error.to_string();
            if last_warning.as_ref() != Some(&warning) {
                tracing::warn!(%error, "the store's upkeep failed");
                last_warning = Some(warning);
            }
        } else {
            last_warning = None;
        }
    }
}

fn run_reclaimer(shared: &Arc<Shared>) {
    let background = &shared.background;
    loop {
        {
            let mut errands = background.errands.lock();
            while !errands.reclaim && !errands.stop {
                background.to_reclaimer.wait(&mut errands);
            }
            if errands.stop {
                return;
            }
            errands.reclaim = false;
        }
        if let Err(error) = reclaim::reclaim_all(shared) {
            // The marks stay, so the next reclaim or the next start tries again.
            tracing::warn!(%error, "space of dropped collections was not given back");
        }
    }
}
