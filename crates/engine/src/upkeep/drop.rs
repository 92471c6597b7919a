//! The drop of patterns, and which indexes cannot be dropped because of patterns.

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Durability;

use super::buckets::check_no_buckets;
use super::pages::check_no_pages;
use super::versions::check_no_version;
use crate::catalog::{Collection, RecordId};
use crate::change::{Before, Cause, Change};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::index::{Index, IndexId};
use crate::maintenance::Use;
use crate::maintenance::read_newest;
use crate::maintenance::unique_index;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, serves};
use crate::unit::Unit;
use crate::write::door;

impl Engine {
    /// Ends a pattern when nothing of it is pending any more. Its fields stay as plain fields with the right values.
    pub(crate) fn end_pattern(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        check_no_version(
            pattern,
            "dropped: completeVersion keeps the newer version, rollbackVersion the older",
        )?;
        if pattern.kind().paging().is_none() {
            return self.end_in_place(operation, pattern);
        }
        self.check_folds(operation, pattern)?;
        // Arrays are folded one by one. Where the drop ends before all are, those that were are divided again: by the job that
        // every start begins for a pattern in this state, or below.
        let in_force = [PatternState::Active, PatternState::Suspect];
        self.move_pattern(operation, pattern.id, &in_force, PatternState::Building)?;
        self.end_in_place(operation, pattern).inspect_err(|_| {
            let registry = self.patterns();
            let is_left = |pattern: &&Arc<Pattern>| {
                pattern.state == PatternState::Building && self.filling(pattern).is_none()
            };
            if let Some(pattern) = registry.by_id(pattern.id).filter(is_left) {
                self.begin_filling(pattern);
            }
        })
    }

    fn end_in_place(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        loop {
            self.finish_pending(operation, pattern)?;
            let (database, overflow) = (&pattern.target.database, pattern.target.of_overflow());
            let pages = pattern.kind().paging().map(|_| &overflow);
            let held: Vec<&Namespace> = pattern.collections().into_iter().chain(pages).collect();
            let ended = self.change_patterns(operation, database, &held, |engine, registry| {
                engine.store.settle(Durability::Relaxed)?;
                match engine.pending_of(pattern)?.count {
                    0 => {
                        engine.fold_pages(operation, pattern)?;
                        engine.unpack_buckets(operation, pattern)?;
                        Ok((registry.without(&[pattern.id])?, true))
                    }
                    _ => Ok((registry.clone(), false)),
                }
            })?;
            if ended {
                self.kill_jobs_of(pattern.id);
                return Ok(());
            }
        }
    }

    /// Removes the fields of a dropped pattern from all documents.
    pub fn remove_fields(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<u64> {
        self.visit_records(operation, &pattern.target, |unit, record| {
            loop {
                let Some(collection) = unit.enter(&pattern.target)? else { return Ok(false) };
                match strip(unit, pattern, &collection, record) {
                    Ok(stripped) => return unit.written().map(|()| stripped),
                    Err(error) if unit.can_retry(&error)? => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Drops the supporting indexes of a dropped pattern, unless another pattern uses them.
    pub fn drop_supporting_index(&self, operation: &Operation, pattern: &Pattern) -> Result<()> {
        for namespace in pattern.collections() {
            let Some(collection) = self.collection(namespace) else { continue };
            let own = |index: &&Arc<Index>| pattern.works_with(namespace, index);
            for index in collection.indexes.iter().filter(own) {
                if self.check_indexes_free(&collection, &[index.id]).is_ok() {
                    self.drop_indexes(operation, namespace, &[index.id])?;
                }
            }
        }
        Ok(())
    }

    /// Drops all patterns of a database.
    pub(crate) fn drop_all_patterns(&self, operation: &Arc<Operation>, database: &str) -> Result<()> {
        loop {
            let registry = self.patterns();
            let patterns = registry.of(database);
            if patterns.is_empty() {
                return Ok(());
            }
            for pattern in patterns {
                check_no_version(
                    pattern,
                    "dropped with all patterns: complete it, roll it back, or drop the collection",
                )?;
                let by_itself = "dropped with all patterns: drop it by itself, or drop the collection";
                check_no_pages(pattern, by_itself)?;
                check_no_buckets(pattern, by_itself)?;
            }
            let held: Vec<&Namespace> = patterns.iter().flat_map(|pattern| pattern.collections()).collect();
            let ids: Vec<PatternId> = patterns.iter().map(|pattern| pattern.id).collect();
            // Patterns that are declared meanwhile are dropped in the next round.
            self.change_patterns(operation, database, &held, |_, registry| {
                Ok((registry.without(&ids)?, ()))
            })?;
            ids.iter().for_each(|id| self.kill_jobs_of(*id));
        }
    }

    /// Refuses to drop indexes that patterns use.
    pub fn check_indexes_free(&self, collection: &Collection, dropped: &[IndexId]) -> Result<()> {
        self.check_not_needed(collection, dropped, "dropped")
    }

    /// Refuses to hide an index that patterns use.
    pub fn check_may_hide(&self, collection: &Collection, hidden: IndexId) -> Result<()> {
        self.check_not_needed(collection, &[hidden], "hidden")
    }

    /// Refuses to take indexes away from patterns: those that were made for them, and those of users that serve them as
    /// the last ones.
    fn check_not_needed(&self, collection: &Collection, gone: &[IndexId], what: &str) -> Result<()> {
        let namespace = &collection.namespace;
        let registry = self.patterns();
        let is_dropped = |index: &&Arc<Index>| gone.contains(&index.id);
        for pattern in registry.of(&namespace.database) {
            let works = |index: &&Arc<Index>| is_dropped(index) && pattern.works_with(namespace, index);
            if let Some(index) = collection.indexes.iter().find(works) {
                return Err(owned(index, pattern, what));
            }
            if pattern.declaration.options.create_indexes && pattern.state != PatternState::Unverified {
                for (_, wanted) in pattern.wanted_indexes().iter().filter(|(place, _)| *place == namespace) {
                    let mut serving =
                        collection.indexes.iter().filter(|index| serves(index, wanted)).peekable();
                    let first = serving.peek().copied();
                    if let (Some(index), true) = (first, serving.all(|index| is_dropped(&index))) {
                        return Err(owned(index, pattern, what));
                    }
                }
            }
            let Some((place, field)) = pattern.found_by() else { continue };
            if place != namespace {
                continue;
            }
            let mut left = collection.clone();
            left.indexes = collection.indexes.iter().filter(|index| !is_dropped(index)).cloned().collect();
            if let (Some(index), None) = (unique_index(collection, field), unique_index(&left, field)) {
                return Err(owned(index, pattern, what));
            }
        }
        Ok(())
    }
}

/// Removes a pattern's fields from one document.
fn strip(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
) -> Result<bool> {
    let Some(before) = read_newest(unit, collection, record, Use::Write)? else { return Ok(false) };
    match pattern.kind().stripped(before.as_raw())? {
        Some(after) => {
            let before = Before::of(before.as_raw());
            let cause = Cause::Pattern(std::slice::from_ref(pattern));
            let change = Change::update(collection, record, before, after.as_raw(), cause);
            door::write(unit, change, &|_| false)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

fn owned(index: &Index, pattern: &Pattern, what: &str) -> Error {
    pattern.refusal(
        ErrorCode::IndexOwnedByPattern,
        None,
        format!(
            "the index '{}' cannot be {what}: {} '{}' of {} works with it. dropPattern first",
            index.spec.name, pattern.declaration.kind_name, pattern.declaration.name, pattern.target
        ),
    )
}
