//! How a unit reads what is pending, and waits until it is written.

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Space;

use super::{Contended, Unit};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::layout;
use crate::limits;
use crate::patterns::{Pattern, Pending, count_of};

/// The record of what is pending for a key, as of the newest commit. The caller holds the key.
pub(crate) fn newest(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().latest(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// The record of what is pending for a key, as the transaction's snapshot has it.
pub(crate) fn in_transaction(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().get(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// Ends the attempt. The next one begins when nothing is pending for the key any more.
pub(crate) fn wait_for_key(unit: &mut Unit<'_>, pattern: &Pattern, key: Vec<u8>) -> Error {
    unit.contended = Some(Contended::Pending(pattern.id, key));
    Error::Conflict("a pattern has not come to the end of a deletion")
}

/// Ends the attempt. The next one begins when what is pending for the key is written, or when no job writes it.
pub(crate) fn wait_until_written(unit: &mut Unit<'_>, pattern: &Pattern, key: Vec<u8>) -> Error {
    unit.contended = Some(Contended::Written(pattern.id, key));
    Error::Conflict("labels of a tree are moving already")
}

/// What a unit waits for.
#[derive(Clone, Copy)]
pub(crate) enum Until<'k> {
    /// Nothing is pending for a key.
    Done(&'k [u8]),
    /// Nothing is pending for a key, or no job writes it.
    Written(&'k [u8]),
    /// There is room for one more pending source, beside those that the change itself adds.
    Room(usize),
}

impl Unit<'_> {
    /// Waits until a pattern's job has written enough. The unit holds nothing.
    pub(crate) fn await_pending(&mut self, pattern: PatternId, until: Until<'_>) -> Result<()> {
        let operations = &self.engine.operations;
        loop {
            let seen = operations.patterns_moved();
            self.operation.check()?;
            self.engine.store.check_healthy()?;
            let snapshot = self.engine.store.snapshot();
            let done = match until {
                Until::Done(key) | Until::Written(key) => {
                    snapshot.get(Space::Meta, &layout::pending_key(pattern, key))?.is_none()
                }
                Until::Room(beside) => count_of(&snapshot, pattern)? + beside < limits::PENDING_SOURCES_MAX,
            };
            if done {
                return Ok(());
            }
            // The pattern was paused, modified or dropped meanwhile. The next attempt finds the patterns that are in force.
            if self.engine.patterns().by_id(pattern).is_none_or(|pattern| !pattern.is_maintained()) {
                return Ok(());
            }
            // No job will write it: there is none, or the caller holds the collection exclusively.
            if self.keeps_jobs_out() || !self.engine.pending.is_worked_on(pattern) {
                return match until {
                    Until::Done(_) => Err(not_worked_on(self.engine, pattern)),
                    // The next attempt finds no job, and writes the targets itself.
                    Until::Room(_) | Until::Written(_) => Ok(()),
                };
            }
            if let (Until::Written(_), Some(job)) = (until, self.engine.pending.job_of(pattern)) {
                job.hurry();
            }
            operations.wait_for_patterns(&self.operation, seen, None)?;
        }
    }
}

fn not_worked_on(engine: &Engine, id: PatternId) -> Error {
    let registry = engine.patterns();
    let name = registry.iter().find(|pattern| pattern.id == id).map_or("", |one| &*one.declaration.name);
    Error::user(
        ErrorCode::PatternNotReady,
        format!(
            "a source that was deleted is referred to, and pattern '{name}' has not carried that deletion through: \
             waitPattern; if its job was killed, repairPattern takes it up again"
        ),
    )
}
