//! What becomes of patterns when their collections are dropped, renamed or replaced.
//!
//! A collection that patterns read from is emptied by the door before it goes: dropping it counts as deleting its documents.
//! A dropped target takes its patterns along, and a renamed one too, to its new name. All of it happens while the
//! collections are held whole: nobody begins to refer to what is about to go.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Direction, Durability, Snapshot};

use crate::catalog::{Collection, CollectionId, RecordId};
use crate::change::{Before, Cause, Change};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::maintenance::Use;
use crate::maintenance::find_by_unique;
use crate::maintenance::find_unique;
use crate::maintenance::read_newest;
use crate::maintenance::restricted;
use crate::namespace::{Namespace, definitions_of};
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry, refuse_change};
use crate::records;
use crate::records::Records;
use crate::unit::{Contended, Unit};
use crate::write::door;

/// Record ids that are held in memory at once.
const BATCH: usize = 1000;
/// How often one commit waits for what other commits left pending, before it takes it for its own.
const PENDING_ATTEMPTS: u32 = 5;

impl Engine {
    /// Makes ready for a collection to go: those that patterns copy from or count are deleted as documents. The
    /// collections in `lent` are held whole.
    pub(crate) fn leave_patterns(
        &self,
        operation: &Arc<Operation>,
        collection: &Arc<Collection>,
        lent: &[CollectionId],
    ) -> Result<()> {
        let namespace = &collection.namespace;
        let readers = self.readers_of(namespace);
        if readers.is_empty() {
            return Ok(());
        }
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        for pattern in restricting(&readers) {
            self.check_unreferenced(operation, &snapshot, pattern, collection, None)?;
        }
        // They go with it in any case, and would only be in the way.
        self.end_patterns_of(operation, namespace)?;
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        unit.lend(lent);
        self.walk_records(operation, collection.id, |record| {
            change(&mut unit, |unit| match read_newest(unit, collection, record, Use::Write)? {
                Some(before) => delete(unit, collection, record, &before, Cause::Job),
                None => Ok(()),
            })
        })?;
        unit.settle()
    }

    /// The patterns of other collections that would notice if a collection's documents were deleted.
    fn readers_of(&self, namespace: &Namespace) -> Vec<Arc<Pattern>> {
        let notices = |pattern: &&Arc<Pattern>| {
            pattern.is_maintained()
                && pattern.source.as_ref() == Some(namespace)
                && pattern.target != *namespace
                && pattern.kind().notices_deletion()
        };
        self.patterns().of(&namespace.database).iter().filter(notices).cloned().collect()
    }

    /// Refuses where a document refers to one that goes: to any, or to one that `staying` lacks.
    fn check_unreferenced(
        &self,
        operation: &Operation,
        snapshot: &Snapshot,
        pattern: &Pattern,
        source: &Collection,
        staying: Option<&Collection>,
    ) -> Result<()> {
        let Some(target) = self.collection(&pattern.target) else { return Ok(()) };
        let Some((_, field)) = pattern.sources_found_by() else { return Ok(()) };
        for row in Records::new(target.home(), snapshot).all() {
            operation.check()?;
            let holder = row?.1.document().to_document();
            for key in pattern.kind().keys_of(holder.as_raw()) {
                let stays = match staying {
                    Some(staying) => find_by_unique(snapshot, staying, field, key.as_raw())?.is_some(),
                    None => false,
                };
                if !stays && find_by_unique(snapshot, source, field, key.as_raw())?.is_some() {
                    return Err(restricted(pattern, holder.as_raw(), key.as_raw()));
                }
            }
        }
        Ok(())
    }

    /// Ends the patterns that maintain fields of a collection which the caller holds. Definitions that are not in force
    /// stay: a restore may bring them before their collections.
    fn end_patterns_of(&self, operation: &Arc<Operation>, namespace: &Namespace) -> Result<()> {
        let gone = ending_with(&self.patterns(), namespace);
        if gone.is_empty() {
            return Ok(());
        }
        self.change_patterns(operation, &namespace.database, &[], |_, registry| {
            Ok((registry.without(&gone)?, ()))
        })?;
        gone.iter().for_each(|id| self.kill_jobs_of(*id));
        Ok(())
    }

    /// The collections of the patterns that a rename concerns.
    pub(crate) fn related_collections(&self, namespaces: [&Namespace; 2]) -> Vec<Namespace> {
        let registry = self.patterns();
        let mut related: Vec<Namespace> = registry
            .iter()
            .filter(|pattern| pattern.collections().iter().any(|own| namespaces.contains(own)))
            .flat_map(|pattern| pattern.collections().into_iter().cloned())
            .collect();
        related.sort_unstable();
        related.dedup();
        related
    }

    /// The patterns after a rename: they follow it, those of the name that is taken over end, and those that read
    /// from that name are filled again. The caller holds `ids` and all their collections.
    pub(crate) fn patterns_renamed(
        &self,
        registry: &Registry,
        from: &Namespace,
        to: &Namespace,
        ids: &mut dyn FnMut() -> PatternId,
    ) -> Result<(Registry, Vec<PatternId>)> {
        for namespace in [from, to] {
            if namespace.holds_definitions() {
                return Err(refuse_change(namespace));
            }
        }
        let concerns = |pattern: &&Arc<Pattern>, name: &Namespace| pattern.collections().contains(&name);
        if from.database != to.database
            && let Some(pattern) =
                registry.iter().find(|pattern| concerns(pattern, from) || concerns(pattern, to))
        {
            return Err(Error::user(
                ErrorCode::CollectionOwnedByPattern,
                format!(
                    "{from} cannot become {to}: {} '{}' of {} works within one database. dropPattern first",
                    pattern.declaration.kind_name, pattern.declaration.name, pattern.target
                ),
            ));
        }
        let ended = ending_with(registry, to);
        let (mut patterns, mut filled) = (Vec::new(), Vec::new());
        for pattern in registry.iter().filter(|pattern| !ended.contains(&pattern.id)) {
            if !concerns(&pattern, from) && pattern.source.as_ref() != Some(to) {
                continue;
            }
            let declaration = pattern.declaration.renamed(&from.collection, &to.collection)?;
            let renamed = Pattern::new(pattern.id, &to.database, declaration, pattern.state.clone())?;
            let taken = registry.find(&renamed.target, &renamed.declaration.name);
            if taken.is_some_and(|other| other.id != pattern.id && !ended.contains(&other.id)) {
                return Err(Error::user(
                    ErrorCode::PatternAlreadyExists,
                    format!(
                        "{to} has a definition of '{}' already: drop one of them",
                        renamed.declaration.name
                    ),
                ));
            }
            let mut renamed = Pattern { counters: pattern.counters.clone(), ..renamed };
            if pattern.source.as_ref() == Some(to) && pattern.is_maintained() {
                renamed.id = ids();
                renamed.state = PatternState::Building;
                filled.push(renamed.id);
            }
            patterns.push((pattern.id, Arc::new(renamed)));
        }
        let replaced: Vec<PatternId> = patterns.iter().map(|(id, _)| *id).chain(ended).collect();
        let patterns = patterns.into_iter().map(|(_, pattern)| pattern).collect();
        Ok((registry.without(&replaced)?.with(patterns)?, filled))
    }

    /// Whether patterns would notice if a collection were replaced. One that is paused would lose its target.
    pub(crate) fn is_concerned(&self, namespace: &Namespace) -> bool {
        let registry = self.patterns();
        let in_force = |pattern: &&Arc<Pattern>| pattern.state != PatternState::Unverified;
        let mut patterns = registry.of(&namespace.database).iter().filter(in_force);
        patterns.any(|pattern| pattern.collections().contains(&namespace))
    }

    /// Replaces the documents of a collection by those of another, by the door: what is in both is changed, so that
    /// nobody who refers to it loses it. All of it is one commit, begun anew where another writer is in the way.
    pub(crate) fn replace_documents(
        &self,
        operation: &Arc<Operation>,
        from: &Namespace,
        to: &Namespace,
    ) -> Result<()> {
        let _turn = self.take_turn(operation, &to.database)?;
        let (collection, _held) = self.hold(operation, to)?;
        let Some(new) = self.collection(from) else { return Err(Error::bug("what replaces is gone")) };
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        for pattern in restricting(&self.readers_of(to)) {
            self.check_unreferenced(operation, &snapshot, pattern, &collection, Some(&new))?;
        }
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        unit.lend(&[collection.id]);
        unit.is_one = true;
        let mut in_the_way_of_itself = 0;
        loop {
            match self.replace_in(&mut unit, &collection, &new, &snapshot) {
                Ok(()) => return unit.settle(),
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
            // What is pending may be what this very commit left so: that does not change by waiting.
            if let Some(Contended::Pending(..)) = unit.contended {
                in_the_way_of_itself += 1;
                if in_the_way_of_itself > PENDING_ATTEMPTS {
                    return Err(Error::user(
                        ErrorCode::CommandFailed,
                        format!(
                            "{to} cannot be replaced in one commit: a new document refers to one that goes, and with that \
                             go more than maxSync others. Write by $merge, which takes documents one by one"
                        ),
                    ));
                }
            }
            operation.check()?;
            unit.forget();
            unit.await_contended()?;
        }
    }

    /// One attempt: deletes what is not among the new documents, then puts each of those.
    fn replace_in(
        &self,
        unit: &mut Unit<'_>,
        collection: &Arc<Collection>,
        new: &Collection,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let in_new = |id: RawValue<'_>| find_by_unique(snapshot, new, "_id", id);
        let operation = unit.operation.clone();
        self.walk_records(&operation, collection.id, |record| {
            change(unit, |unit| {
                let Some(before) = read_newest(unit, collection, record, Use::Write)? else { return Ok(()) };
                match before.get("_id").map(in_new).transpose()?.flatten() {
                    Some(_) => Ok(()),
                    None => delete(unit, collection, record, &before, Cause::Import),
                }
            })
        })?;
        for row in Records::new(new.home(), snapshot).all() {
            let (_, image) = row?;
            change(unit, |unit| put(unit, collection, image.document()))?;
        }
        Ok(())
    }

    /// Visits the records of a collection that its holder holds whole, a batch at a time.
    fn walk_records(
        &self,
        operation: &Operation,
        collection: CollectionId,
        mut visit: impl FnMut(RecordId) -> Result<()>,
    ) -> Result<()> {
        let mut next = RecordId(0);
        loop {
            operation.check()?;
            let ids = records::ids(&self.store.snapshot(), collection, next.., Direction::Forward);
            let records: Vec<RecordId> = ids.take(BATCH).collect::<Result<_>>()?;
            let Some(last) = records.last() else { return Ok(()) };
            next = RecordId(last.0 + 1);
            records.into_iter().try_for_each(&mut visit)?;
        }
    }

    /// Whether a collection of definitions may go: not while there are patterns.
    pub(crate) fn holds_patterns(&self, namespace: &Namespace) -> bool {
        namespace.holds_definitions() && !self.patterns().of(&namespace.database).is_empty()
    }

    /// A unit that may change the definitions of a database where it has any.
    pub(crate) fn definitions_unit(&self, operation: &Arc<Operation>, database: &str) -> Result<Unit<'_>> {
        let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
        if !self.patterns().of(database).is_empty() {
            unit.enter_or_create(&definitions_of(database))?;
        }
        Ok(unit)
    }
}

/// The patterns in force that maintain fields of a collection.
pub(crate) fn ending_with(registry: &Registry, namespace: &Namespace) -> Vec<PatternId> {
    let own = registry
        .of(&namespace.database)
        .iter()
        .filter(|pattern| pattern.target == *namespace && pattern.state != PatternState::Unverified);
    own.map(|pattern| pattern.id).collect()
}

fn restricting(patterns: &[Arc<Pattern>]) -> impl Iterator<Item = &Arc<Pattern>> {
    patterns.iter().filter(|pattern| pattern.kind().restricts())
}

/// One change of a document, tried until nobody is in its way.
fn change(unit: &mut Unit<'_>, mut attempt: impl FnMut(&mut Unit<'_>) -> Result<()>) -> Result<()> {
    loop {
        unit.operation.check()?;
        match attempt(unit) {
            Ok(()) => return unit.written(),
            Err(error) if !unit.is_one && unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// A document in the place of the one with its `_id`, or beside the others.
fn put(unit: &mut Unit<'_>, collection: &Arc<Collection>, document: RawDocument<'_>) -> Result<()> {
    let id = document.get("_id").unwrap_or(RawValue::Null);
    match find_unique(unit, &collection.namespace, "_id", id, Use::Write)? {
        Some(old) if old.document.as_bytes() == document.as_bytes() => Ok(()),
        Some(old) => {
            let before = Before::of(old.document.as_raw());
            let change = Change::update(collection, old.record, before, document, Cause::Import);
            door::write(unit, change, &|_| false).map(drop)
        }
        None => {
            let change = Change::insert(collection, document, Cause::Import);
            door::write(unit, change, &|_| false).map(drop)
        }
    }
}

fn delete(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    record: RecordId,
    before: &Document,
    cause: Cause<'_>,
) -> Result<()> {
    let change = Change::delete(collection, record, Before::of(before.as_raw()), cause);
    door::write(unit, change, &|_| false).map(drop)
}
