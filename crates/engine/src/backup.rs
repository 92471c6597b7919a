//! Backups that run: states of the store that clients copy, and how long each may take its time.
//!
//! A state that is held keeps the space of what is freed meanwhile from being used again. So it is let go when its
//! client has not asked for anything in a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
pub use kilim_storage::backup::{Held, Receiver};
pub use kilim_storage::rebuild::{check_out, unfinished};
use kilim_storage::{Environment, Store};
use parking_lot::Mutex;

/// A client that copies asks again as soon as it has written what it got; a slow disk takes seconds for that.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// Backups at the same time: more than a few is a mistake somewhere.
const BACKUPS_MAX: usize = 4;

#[derive(Default)]
pub struct Backups {
    environment: Environment,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    last_id: i64,
    held: BTreeMap<i64, (Arc<Held>, Instant)>,
}

impl Backups {
    pub(crate) fn new(environment: Environment) -> Backups {
        Backups { environment, ..Backups::default() }
    }

    /// Holds the state of the store as of now; an id to ask for it by.
    pub fn begin(&self, store: &Store, is_in_memory: bool) -> Result<(i64, Arc<Held>)> {
        if is_in_memory {
            return Err(Error::user(ErrorCode::CannotBackup, "a server in memory has no data on disk"));
        }
        if self.running.lock().held.len() >= BACKUPS_MAX {
            return Err(Error::user(
                ErrorCode::CannotBackup,
                format!("{BACKUPS_MAX} backups are running already"),
            ));
        }
        let held = Arc::new(store.hold()?);
        let mut running = self.running.lock();
        running.last_id += 1;
        let id = running.last_id;
        running.held.insert(id, (held.clone(), self.environment.now()));
        tracing::info!(id, bytes = held.bytes(), "a backup begins");
        Ok((id, held))
    }

    pub fn get(&self, id: i64) -> Result<Arc<Held>> {
        let mut running = self.running.lock();
        let found = running.held.get_mut(&id).map(|(held, used)| {
            *used = self.environment.now();
            held.clone()
        });
        found.ok_or_else(|| {
            Error::user(
                ErrorCode::CannotBackup,
                format!("backup {id} has ended, or nothing was asked of it for long"),
            )
        })
    }

    /// Lets a state go; false if there is none.
    pub fn end(&self, id: i64) -> bool {
        let ended = self.running.lock().held.remove(&id).is_some();
        if ended {
            tracing::info!(id, "a backup has ended");
        }
        ended
    }

    pub(crate) fn end_idle(&self, now: Instant) {
        self.running.lock().held.retain(|id, (_, used)| {
            let stays = now.saturating_duration_since(*used) < IDLE_MAX;
            if !stays {
                tracing::warn!(id, "a backup is given up, because its client asks for nothing any more");
            }
            stays
        });
    }

    pub(crate) fn clear(&self) {
        self.running.lock().held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Engine, EngineOptions};

    #[test]
    fn a_backup_that_nobody_asks_for_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            data: Some(dir.path().join("data")),
            durability: Durability::Relaxed,
            storage: kilim_storage::Options { cache_bytes: 16 << 20, ..Default::default() },
            test_commands: false,
        };
        let engine = Engine::open(options).unwrap();
        let (id, _) = engine.backups.begin(&engine.store, false).unwrap();
        engine.backups.end_idle(Instant::now());
        assert!(engine.backups.get(id).is_ok());
        engine.backups.end_idle(Instant::now() + IDLE_MAX);
        assert!(engine.backups.get(id).is_err());
        assert!(!engine.backups.end(id));
    }
}
