//! The states of patterns, and how they change.
//!
//! A change that begins or ends maintenance happens while no writer is inside the pattern's collections: every write before
//! it saw the old patterns, every write after it sees the new ones. Changes between states that are all maintained may
//! happen at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Durability;
use parking_lot::MutexGuard;

use super::buckets::put_buckets_in_force;
use super::definitions::put_changes;
use super::pages::{check_no_pages, put_pages_in_force};
use super::versions::{Way, check_no_version};
use crate::catalog::{Collection, Held};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::limits;
use crate::namespace::{Namespace, definitions_of};
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, PatternState, Registry};
use crate::unit::Unit;

/// How long to wait for a lock before checking whether the operation was killed.
const PATIENCE: Duration = Duration::from_millis(10);

impl Engine {
    /// Changes the patterns of a database while the collections in `held` are held exclusively. First the definitions are
    /// committed, then the new patterns are in force.
    pub(crate) fn change_patterns<T>(
        &self,
        operation: &Arc<Operation>,
        database: &str,
        held: &[&Namespace],
        change: impl FnOnce(&Engine, &Registry) -> Result<(Registry, T)>,
    ) -> Result<T> {
        let (_held, mut unit, ids) = loop {
            let collections = self.existing(held.iter().copied());
            let all = self.hold_together(operation, &collections)?;
            let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
            // A unit that has entered the definitions waits for no other collection, so they may be entered last.
            unit.enter_or_create(&definitions_of(database))?;
            let ids = self.ids.lock();
            // Dropped, renamed or made while we waited: writers may be inside a collection that is not held.
            if are_same(&collections, &self.existing(held.iter().copied())) {
                break (all, unit, ids);
            }
        };
        let before = self.patterns();
        let (after, result) = change(self, &before)?;
        put_changes(&mut unit, &before, &after, &|namespace| self.collection(namespace))?;
        ids.save(unit.transaction());
        unit.settle()?;
        for pattern in after.iter().filter(|pattern| !before.iter().any(|old| Arc::ptr_eq(old, pattern))) {
            pattern.counters.has_kept.store(false, Ordering::Relaxed);
        }
        let (shaping, since) = (after.clone(), self.store.snapshot().commit_time());
        self.publish_renamed(after, |catalog| {
            put_pages_in_force(catalog, &shaping, since);
            put_buckets_in_force(catalog, &shaping);
        });
        drop(ids);
        self.resume_pending()?;
        Ok(result)
    }

    /// Those of these collections that exist, in the order of their ids.
    pub(crate) fn existing<'n>(
        &self,
        namespaces: impl IntoIterator<Item = &'n Namespace>,
    ) -> Vec<Arc<Collection>> {
        let catalog = self.catalog();
        let mut collections: Vec<Arc<Collection>> =
            namespaces.into_iter().filter_map(|namespace| catalog.get(namespace).cloned()).collect();
        collections.sort_unstable_by_key(|collection| collection.id);
        collections.dedup_by_key(|collection| collection.id);
        collections
    }

    /// Holds several collections exclusively; they are given in the order of their ids. Another command that empties one of
    /// them may be about to enter a second one. So this does not wait long for a collection while it holds others: it gives
    /// them back and begins again.
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
            self.environment().sleep(limits::TRANSACTION_LOCK_WAIT);
        }
    }

    /// Takes the turn to replace or empty a collection in a database with patterns. Only one command has it at a time: two
    /// that hold one collection each could each wait for the other's.
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

    /// Whether a command that holds its collections has to give them back and begin again with a turn: patterns were declared
    /// after it was told that it needs none.
    pub(crate) fn needs_turn(&self, turn: &Option<MutexGuard<'_, ()>>, database: &str) -> bool {
        turn.is_none() && !self.patterns().of(database).is_empty()
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

    /// Puts a pattern into another state if it is in one of the states `from`. False if it is in another one by now.
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

    /// Whether a pattern still has the definition that the caller knows. A rename of one of its collections gives it another
    /// one. So if it is unchanged after something was done by the names of its collections, these stood for the same
    /// collections all the time.
    pub(crate) fn is_unchanged(&self, pattern: &Pattern) -> bool {
        let registry = self.patterns();
        registry.by_id(pattern.id).is_some_and(|now| Arc::ptr_eq(&now.declaration, &pattern.declaration))
    }

    /// Pauses a pattern: its fields stay as they are until it is restarted.
    pub fn pause_pattern(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        check_no_version(
            pattern,
            "paused: killPatternJob stops the conversion of what is stored, and reads go on",
        )?;
        check_no_pages(
            pattern,
            "paused: documents with pages could not be read. dropPattern folds them back",
        )?;
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

    /// Puts a pattern that was not maintained for a while in force again. It gets a new id, because the states of groups that
    /// are stored under the old one are outdated.
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
        if pattern.kind().version_step().is_some() {
            if state != PatternState::Building {
                return Err(not_ready(
                    pattern,
                    "is not in force, so nothing can be checked: repairPattern puts it in force",
                ));
            }
            self.check_definition(pattern)?;
            self.check_versions_first(pattern)?;
            self.ensure_collection(&pattern.target)?;
            let renewed = Pattern { id, state, ..pattern.clone() };
            return self.put_version_in_force(operation, &renewed, Way::Forward, &|engine, registry| {
                engine.check_definition(current(registry, pattern)?)?;
                engine.check_versions_first(pattern)?;
                Ok(registry.clone())
            });
        }
        let has_shape = pattern.kind().paging().is_some() || pattern.kind().bucketing().is_some();
        if has_shape && state != PatternState::Building {
            return Err(not_ready(
                pattern,
                "is not in force, so nothing can be checked: repairPattern puts it in force",
            ));
        }
        let overflow = pattern.target.of_overflow();
        let pages = pattern.kind().paging().map(|_| &overflow);
        let held: Vec<&Namespace> = pattern.collections().into_iter().chain(pages).collect();
        let change = |engine: &Engine, registry: &Registry| {
            let current = current(registry, pattern)?;
            if current.is_maintained() {
                return Ok((registry.clone(), current.clone()));
            }
            let restarted = Arc::new(Pattern { id, state: state.clone(), ..(**current).clone() });
            match current.state {
                PatternState::Unverified => {
                    engine.check_definition(&restarted)?;
                    engine.check_versions_first(&restarted)?;
                }
                _ => engine.check_needs(&restarted)?,
            }
            Ok((registry.replacing(restarted.clone())?, restarted))
        };
        if pattern.state != PatternState::Unverified {
            return self.change_patterns(operation, &pattern.target.database, &held, change);
        }
        // Its definition was inserted, not declared, so nothing has been checked yet.
        self.check_definition(pattern)?;
        self.check_versions_first(pattern)?;
        self.ensure_collection(&pattern.target)?;
        self.ensure_pages(pattern)?;
        self.with_supporting_indexes(operation, pattern, &held, change)
    }

    /// Makes patterns suspect of which a document kept an old value: see [`Pattern::note_kept`].
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
        // If no thread can be started, the next call notes it.
        let _ = self.spawn_job(note);
    }

    pub(crate) fn kill_jobs_of(&self, pattern: PatternId) {
        // A verification ends by itself, and the command that waits for it gets its answer.
        let works = |job: &&Arc<Job>| job.pattern.id == pattern && job.kind != JobKind::Verify;
        self.jobs.lock().iter().filter(works).for_each(|job| job.kill());
    }
}

/// Whether both name the same collections. Their descriptions may have changed.
pub(crate) fn are_same(some: &[Arc<Collection>], others: &[Arc<Collection>]) -> bool {
    some.iter().map(|collection| collection.id).eq(others.iter().map(|collection| collection.id))
}

/// The pattern as it is now, if it was not dropped or replaced.
pub(crate) fn current<'r>(registry: &'r Registry, pattern: &Pattern) -> Result<&'r Arc<Pattern>> {
    registry.by_id(pattern.id).ok_or_else(|| {
        let message = format!("{} has no pattern '{}' any more", pattern.target, pattern.declaration.name);
        Error::user(ErrorCode::PatternNotFound, message)
    })
}

pub(crate) fn not_ready(pattern: &Pattern, why: &str) -> Error {
    Error::user(ErrorCode::PatternNotReady, format!("'{}' {why}", pattern.declaration.name))
}
