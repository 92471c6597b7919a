//! The states of patterns, and how they change.
//!
//! A change that begins or ends maintenance happens while no writer is inside the pattern's collections: every write
//! before it saw the old patterns, every write after it sees the new ones. What only tells how a maintained pattern
//! is doing changes at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Durability;
use parking_lot::MutexGuard;

use super::definitions::put_changes;
use crate::catalog::{Collection, Held};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::limits;
use crate::namespace::{Namespace, definitions_of};
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, PatternState, Registry};
use crate::unit::Unit;

/// How long one waits for a lock before one looks around.
const PATIENCE: Duration = Duration::from_millis(10);

impl Engine {
    /// Changes the patterns of a database while nobody writes to some collections: their documents first.
    pub(crate) fn change_patterns<T>(
        &self,
        operation: &Arc<Operation>,
        database: &str,
        held: &[&Namespace],
        change: impl FnOnce(&Engine, &Registry) -> Result<(Registry, T)>,
    ) -> Result<T> {
        let _held = self.hold_all(operation, held)?;
        let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
        // Whoever holds the definitions waits for no other collection, so they may come last.
        unit.enter_or_create(&definitions_of(database))?;
        let ids = self.ids.lock();
        let before = self.patterns();
        let (after, result) = change(self, &before)?;
        put_changes(&mut unit, &before, &after, &|namespace| self.collection(namespace))?;
        ids.save(unit.transaction());
        unit.settle()?;
        for pattern in after.iter().filter(|pattern| !before.iter().any(|old| Arc::ptr_eq(old, pattern))) {
            pattern.counters.has_kept.store(false, Ordering::Relaxed);
        }
        self.publish_patterns(after);
        drop(ids);
        self.resume_pending()?;
        Ok(result)
    }

    /// Holds collections whole, those that exist.
    pub(crate) fn hold_all(&self, operation: &Operation, namespaces: &[&Namespace]) -> Result<Vec<Held>> {
        let mut collections: Vec<Arc<Collection>> =
            namespaces.iter().filter_map(|namespace| self.collection(namespace)).collect();
        collections.sort_by_key(|collection| collection.id);
        collections.dedup_by_key(|collection| collection.id);
        self.hold_together(operation, &collections)
    }

    /// Holds several collections whole, which come in the order of their ids. Whoever empties one of them may be on
    /// his way into another, so nobody waits long for the next while he holds the last.
    pub(crate) fn hold_together(
        &self,
        operation: &Operation,
        collections: &[Arc<Collection>],
    ) -> Result<Vec<Held>> {
        let [first, others @ ..] = collections else { return Ok(Vec::new()) };
        loop {
            let mut held = vec![self.hold_whole(operation, first)?];
            held.extend(others.iter().map_while(|each| each.shared.lock.try_write_arc_for(PATIENCE)));
            if held.len() == collections.len() {
                return Ok(held);
            }
            drop(held);
            operation.check()?;
            std::thread::sleep(limits::TRANSACTION_LOCK_WAIT);
        }
    }

    /// One at a time replaces or empties collections of databases with patterns: two who hold one each might want the
    /// other's.
    pub(crate) fn take_turn(
        &self,
        operation: &Operation,
        database: &str,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        if self.patterns().of(database).is_empty() {
            return Ok(None);
        }
        loop {
            match self.turn.try_lock_for(PATIENCE) {
                Some(turn) => return Ok(Some(turn)),
                None => operation.check()?,
            }
        }
    }

    /// Puts a pattern into another state.
    pub fn set_pattern_state(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
        state: PatternState,
    ) -> Result<()> {
        let changed = Pattern { state: state.clone(), ..pattern.clone() };
        let held = match changed.is_maintained() == pattern.is_maintained() {
            true => Vec::new(),
            false => pattern.collections(),
        };
        self.change_patterns(operation, &pattern.target.database, &held, |_, registry| {
            let current = current(registry, pattern)?;
            let changed = Arc::new(Pattern { state, ..(**current).clone() });
            Ok((registry.with(vec![changed])?, ()))
        })
    }

    /// The same, unless somebody decided otherwise meanwhile: false then.
    pub(crate) fn move_pattern(
        &self,
        operation: &Arc<Operation>,
        id: PatternId,
        from: &[PatternState],
        to: PatternState,
    ) -> Result<bool> {
        let Some(pattern) = self.patterns().by_id(id).cloned() else { return Ok(false) };
        self.change_patterns(operation, &pattern.target.database, &[], |_, registry| {
            match registry.by_id(id).filter(|current| from.contains(&current.state)) {
                Some(current) => {
                    let changed = Arc::new(Pattern { state: to, ..(**current).clone() });
                    Ok((registry.with(vec![changed])?, true))
                }
                None => Ok((registry.clone(), false)),
            }
        })
    }

    /// Leaves a pattern's fields as they are until it is restarted.
    pub fn pause_pattern(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        if pattern.state == PatternState::Unverified {
            return Err(not_ready(
                pattern,
                "is unverified, so it is not maintained: repairPattern puts it in force",
            ));
        }
        self.set_pattern_state(operation, pattern, PatternState::Paused)?;
        self.kill_jobs_of(pattern.id);
        Ok(())
    }

    /// Puts a pattern that was not maintained for a while in force again. It gets a new number: what was stored of its
    /// groups is of the past.
    pub fn restart_pattern(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<Arc<Pattern>> {
        self.restart_pattern_as(operation, pattern, PatternState::Building)
    }

    pub(crate) fn restart_pattern_as(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
        state: PatternState,
    ) -> Result<Arc<Pattern>> {
        let id = PatternId(self.next_index_id().0);
        if pattern.state == PatternState::Unverified {
            // Where it comes from, other rules may have held.
            self.check_definition(pattern)?;
            self.ensure_collection(&pattern.target)?;
            self.build_supporting_indexes(operation, pattern)?;
        }
        let (database, held) = (&pattern.target.database, pattern.collections());
        self.change_patterns(operation, database, &held, |engine, registry| {
            let current = current(registry, pattern)?;
            if current.is_maintained() {
                return Ok((registry.clone(), current.clone()));
            }
            let restarted = Arc::new(Pattern { id, state, ..(**current).clone() });
            match current.state {
                PatternState::Unverified => engine.check_definition(&restarted)?,
                _ => engine.check_needs(&restarted)?,
            }
            Ok((registry.replacing(restarted.clone())?, restarted))
        })
    }

    /// Makes suspect what writes have found to be: see [`Pattern::note_kept`].
    pub(crate) fn note_suspects(&self) {
        let is_suspect = |pattern: &Pattern| {
            pattern.state == PatternState::Active && pattern.counters.has_kept.load(Ordering::Relaxed)
        };
        if !self.patterns().iter().any(|pattern| is_suspect(pattern)) {
            return;
        }
        let note = move |engine: &Engine| {
            let operation = engine.operations.start(0);
            for pattern in engine.patterns().iter().filter(|pattern| is_suspect(pattern)) {
                let (from, to) = ([PatternState::Active], PatternState::Suspect);
                if let Err(error) = engine.move_pattern(&operation, pattern.id, &from, to) {
                    tracing::warn!(%error, pattern = &*pattern.declaration.name, "could not note a suspect pattern");
                }
            }
        };
        // What cannot be noted now is noted the next time.
        let _ = self.spawn_job(note);
    }

    pub(crate) fn kill_jobs_of(&self, pattern: PatternId) {
        // A check ends by itself, and whoever waits for it gets his answer.
        let works = |job: &&Arc<Job>| job.pattern.id == pattern && job.kind != JobKind::Verify;
        self.jobs.lock().iter().filter(works).for_each(|job| job.kill());
    }
}

/// The pattern as it is by now, if it is still the same.
pub(crate) fn current<'r>(registry: &'r Registry, pattern: &Pattern) -> Result<&'r Arc<Pattern>> {
    registry.by_id(pattern.id).ok_or_else(|| {
        let message = format!("{} has no pattern '{}' any more", pattern.target, pattern.declaration.name);
        Error::user(ErrorCode::PatternNotFound, message)
    })
}

pub(crate) fn not_ready(pattern: &Pattern, why: &str) -> Error {
    Error::user(ErrorCode::PatternNotReady, format!("'{}' {why}", pattern.declaration.name))
}
