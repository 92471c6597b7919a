//! Patterns dropped, and what may be dropped while there are patterns.

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Durability;

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
use crate::patterns::Pattern;
use crate::unit::Unit;
use crate::write::door;

impl Engine {
    /// Drops a pattern once nothing is pending of it: its fields stay as plain ones, and they are true.
    pub fn drop_pattern(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        loop {
            self.finish_pending(operation, pattern)?;
            let (database, held) = (&pattern.target.database, pattern.collections());
            let ended = self.change_patterns(operation, database, &held, |engine, registry| {
                engine.store.settle(Durability::Relaxed)?;
                match engine.behind_of(pattern)?.pending_sources {
                    0 => Ok((registry.without(&[pattern.id])?, true)),
                    _ => Ok((registry.clone(), false)),
                }
            })?;
            if ended {
                self.kill_jobs_of(pattern.id);
                return Ok(());
            }
        }
    }

    /// Removes the fields that a dropped pattern left, document by document.
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

    /// Drops the supporting index that a dropped pattern left, unless another pattern wants it.
    pub fn drop_supporting_index(&self, operation: &Operation, pattern: &Pattern) -> Result<()> {
        let wanted = pattern.wanted_indexes();
        let Some(namespace) = wanted.first().map(|(namespace, _)| *namespace) else { return Ok(()) };
        let Some(collection) = self.collection(namespace) else { return Ok(()) };
        let own = |index: &&Arc<Index>| pattern.works_with(namespace, index);
        for index in collection.indexes.iter().filter(own) {
            if self.check_indexes_free(&collection, &[index.id]).is_ok() {
                self.drop_indexes(operation, namespace, &[index.id])?;
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
            let held: Vec<&Namespace> = patterns.iter().flat_map(|pattern| pattern.collections()).collect();
            let ids: Vec<PatternId> = patterns.iter().map(|pattern| pattern.id).collect();
            // Those that were declared meanwhile go in the next round.
            self.change_patterns(operation, database, &held, |_, registry| {
                Ok((registry.without(&ids)?, ()))
            })?;
            ids.iter().for_each(|id| self.kill_jobs_of(*id));
        }
    }

    /// Refuses to drop indexes that patterns work with.
    pub fn check_indexes_free(&self, collection: &Collection, dropped: &[IndexId]) -> Result<()> {
        let namespace = &collection.namespace;
        let registry = self.patterns();
        let is_dropped = |index: &&Arc<Index>| dropped.contains(&index.id);
        for pattern in registry.of(&namespace.database) {
            let works = |index: &&Arc<Index>| is_dropped(index) && pattern.works_with(namespace, index);
            if let Some(index) = collection.indexes.iter().find(works) {
                return Err(owned(index, pattern));
            }
            let Some((place, field)) = pattern.found_by() else { continue };
            if place != namespace {
                continue;
            }
            let mut left = collection.clone();
            left.indexes = collection.indexes.iter().filter(|index| !is_dropped(index)).cloned().collect();
            if let (Some(index), None) = (unique_index(collection, field), unique_index(&left, field)) {
                return Err(owned(index, pattern));
            }
        }
        Ok(())
    }
}

/// One document without a pattern's fields.
fn strip(
    unit: &mut Unit<'_>,
    pattern: &Pattern,
    collection: &Arc<Collection>,
    record: RecordId,
) -> Result<bool> {
    let Some(before) = read_newest(unit, collection, record, Use::Write)? else { return Ok(false) };
    match pattern.kind().stripped(before.as_raw())? {
        Some(after) => {
            let before = Before::of(before.as_raw());
            let change = Change::update(collection, record, before, after.as_raw(), Cause::Job);
            door::write(unit, change, &|_| false)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

fn owned(index: &Index, pattern: &Pattern) -> Error {
    pattern.refusal(
        ErrorCode::IndexOwnedByPattern,
        None,
        format!(
            "the index '{}' cannot be dropped: {} '{}' of {} works with it. dropPattern first",
            index.spec.name, pattern.declaration.kind_name, pattern.declaration.name, pattern.target
        ),
    )
}
