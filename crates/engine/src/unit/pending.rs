//! What is pending, as a unit sees it and waits for it.

use std::time::Duration;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Space;

use super::{Contended, Unit};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::layout;
use crate::limits;
use crate::patterns::{Pattern, Pending, count_of};

/// The record of a key as of the newest commit. The caller holds the key.
pub(crate) fn newest(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().latest(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// The record of a key as a transaction sees it.
pub(crate) fn in_transaction(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().get(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// Ends the attempt; the next begins once a key is pending no more.
pub(crate) fn wait_for_key(unit: &mut Unit<'_>, pattern: &Pattern, key: Vec<u8>) -> Error {
    unit.contended = Some(Contended::Pending(pattern.id, key));
    Error::Conflict("a pattern has not come to the end of a deletion")
}

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Until<'k> {
    /// Nothing is pending for a key.
    Done(&'k [u8]),
    /// One more can be pending beside those that the change leaves.
    Room(usize),
}

impl Unit<'_> {
    /// Waits with empty hands until a pattern's job has got on.
    pub(crate) fn await_pending(&mut self, pattern: PatternId, until: Until<'_>) -> Result<()> {
        const TURN: Duration = Duration::from_millis(2);
        loop {
            self.operation.check()?;
            self.engine.store.check_healthy()?;
            let snapshot = self.engine.store.snapshot();
            let done = match until {
                Until::Done(key) => snapshot.get(Space::Meta, &layout::pending_key(pattern, key))?.is_none(),
                Until::Room(beside) => count_of(&snapshot, pattern)? + beside < limits::PENDING_SOURCES_MAX,
            };
            if done {
                return Ok(());
            }
            // Paused, modified or dropped meanwhile: the next attempt goes by what is in force now.
            if self.engine.patterns().by_id(pattern).is_none_or(|pattern| !pattern.is_maintained()) {
                return Ok(());
            }
            // A job cannot enter a collection that is held whole.
            if self.has_lent() || !self.engine.lag.is_worked_on(pattern) {
                return match until {
                    Until::Done(_) => Err(not_worked_on(self.engine, pattern)),
                    // For want of room it does the work itself.
                    Until::Room(_) => Ok(()),
                };
            }
            std::thread::sleep(TURN);
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
