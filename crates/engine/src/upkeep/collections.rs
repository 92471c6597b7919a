//! What becomes of patterns when their collections are dropped, renamed or replaced.
//!
//! Before a collection is dropped that patterns read from, its documents are deleted through the door, so that the patterns
//! see the deletions. The patterns of a dropped target are dropped with it; those of a renamed target follow it to its new
//! name. Meanwhile the collections are held exclusively, so no document begins to refer to one that is about to be deleted.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Direction, Durability, Snapshot};

use crate::catalog::{Collection, CollectionId, RecordId};
use crate::change::{ArrayForm, Before, Cause, Change};
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
/// How often a commit waits for what is pending. If it is still pending then, the commit itself made it pending.
const PENDING_ATTEMPTS: u32 = 5;

impl Engine {
    /// Prepares the drop of a collection: if patterns copy from its documents or count them, the documents are deleted one by
    /// one. The caller holds the collections in `held` exclusively.
    pub(crate) fn leave_patterns(
        &self,
        operation: &Arc<Operation>,
        collection: &Arc<Collection>,
        held: &[CollectionId],
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
        // The collection's own patterns end with it. They end first, so that they are not maintained during the deletions.
        self.end_patterns_of(operation, namespace)?;
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        unit.write_in_held(held);
        self.walk_records(operation, collection.id, |record| {
            change(&mut unit, |unit| match read_newest(unit, collection, record, Use::Write)? {
                Some(before) => delete(unit, collection, record, &before, Cause::Job),
                None => Ok(()),
            })
        })?;
        unit.settle()
    }

    /// The patterns of other collections that depend on a collection's documents.
    fn readers_of(&self, namespace: &Namespace) -> Vec<Arc<Pattern>> {
        let notices = |pattern: &&Arc<Pattern>| {
            pattern.is_maintained()
                && pattern.source.as_ref() == Some(namespace)
                && pattern.target != *namespace
                && pattern.kind().notices_deletion()
        };
        self.patterns().of(&namespace.database).iter().filter(notices).cloned().collect()
    }

    /// Refuses the drop of a source if a document refers to one of its documents. With `staying`, the collection that replaces
    /// it: only if that has no document with the same key.
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

    /// Drops the patterns of a collection that the caller holds. Definitions that are not in force stay: a restore may
    /// insert them before it creates their collections.
    fn end_patterns_of(&self, operation: &Arc<Operation>, namespace: &Namespace) -> Result<()> {
        let registry = self.patterns();
        let mut gone = ending_with(&registry, namespace);
        // Versions, pages and buckets say how records are to be read: they end with the records.
        let is_version = |id: &PatternId| {
            registry.by_id(*id).map(|it| it.kind()).is_some_and(|it| {
                it.version_step().is_some() || it.paging().is_some() || it.bucketing().is_some()
            })
        };
        gone.retain(|id| !is_version(id));
        if gone.is_empty() {
            return Ok(());
        }
        self.change_patterns(operation, &namespace.database, &[], |_, registry| {
            Ok((registry.without(&gone)?, ()))
        })?;
        gone.iter().for_each(|id| self.kill_jobs_of(*id));
        Ok(())
    }

    /// All collections of the patterns that a rename concerns.
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

    /// The patterns after a rename. Those of the renamed collection get its new name. Those of a collection that had the new
    /// name are dropped, and those that read from it are filled again. The caller holds `ids` and all of their collections.
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

    /// Whether a pattern has this collection as its target or source. A paused pattern counts, an unverified one does not.
    pub(crate) fn is_concerned(&self, namespace: &Namespace) -> bool {
        let registry = self.patterns();
        let in_force = |pattern: &&Arc<Pattern>| pattern.state != PatternState::Unverified;
        let mut patterns = registry.of(&namespace.database).iter().filter(in_force);
        patterns.any(|pattern| pattern.collections().contains(&namespace))
    }

    /// Replaces the documents of a collection by those of another, through the door. A document that is in both is updated,
    /// not deleted and inserted, so that its holders keep their source. All of it is one commit, which is tried again as a
    /// whole after a conflict.
    pub(crate) fn replace_documents(
        &self,
        operation: &Arc<Operation>,
        from: &Namespace,
        to: &Namespace,
    ) -> Result<()> {
        let (_turn, collection, _held) = loop {
            let turn = self.take_turn(operation, &to.database)?;
            let (collection, held) = self.hold(operation, to)?;
            if !self.needs_turn(&turn, &to.database) {
                break (turn, collection, held);
            }
        };
        let Some(new) = self.collection(from) else { return Err(Error::bug("what replaces is gone")) };
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        for pattern in restricting(&self.readers_of(to)) {
            self.check_unreferenced(operation, &snapshot, pattern, &collection, Some(&new))?;
        }
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        unit.write_in_held(&[collection.id]);
        unit.commit_once();
        let mut in_the_way_of_itself = 0;
        loop {
            match self.replace_in(&mut unit, &collection, &new, &snapshot) {
                Ok(()) => return unit.settle(),
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
            // This commit itself may have made it pending. Then waiting does not help.
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
        let mut removal = Removal { collection, in_new: &in_new, refused: Vec::new() };
        self.walk_records(&operation, collection.id, |record| removal.try_remove(unit, record))?;
        removal.try_again(unit)?;
        for row in Records::new(new.home(), snapshot).all() {
            let (_, image) = row?;
            change(unit, |unit| put(unit, collection, image.document()))?;
        }
        removal.try_again(unit)?;
        removal.refused.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Visits the records of a collection that the caller holds exclusively, a batch at a time.
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

    /// Whether a collection holds the definitions of existing patterns. Then it cannot be dropped.
    pub(crate) fn holds_patterns(&self, namespace: &Namespace) -> bool {
        namespace.holds_definitions() && !self.patterns().of(&namespace.database).is_empty()
    }

    /// A unit that has entered the definitions of a database, if there are any.
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

/// Changes one document, and tries again after conflicts.
/// The removal of documents that are not among the new ones. A tree refuses to let a node go before its children, which may go
/// later in the same commit or be put below another.
struct Removal<'r> {
    collection: &'r Arc<Collection>,
    in_new: &'r dyn Fn(RawValue<'_>) -> Result<Option<Document>>,
    refused: Vec<(RecordId, Error)>,
}

impl Removal<'_> {
    fn try_remove(&mut self, unit: &mut Unit<'_>, record: RecordId) -> Result<()> {
        let removed = change(unit, |unit| {
            let Some(before) = read_newest(unit, self.collection, record, Use::Write)? else { return Ok(()) };
            match before.get("_id").map(self.in_new).transpose()?.flatten() {
                Some(_) => Ok(()),
                None => delete(unit, self.collection, record, &before, Cause::Import),
            }
        });
        match removed {
            Err(error) if error.code() == ErrorCode::TreeNotEmpty => {
                self.refused.push((record, error));
                Ok(())
            }
            removed => removed,
        }
    }

    /// Tries those again that were refused, as long as some of them go.
    fn try_again(&mut self, unit: &mut Unit<'_>) -> Result<()> {
        loop {
            let refused = std::mem::take(&mut self.refused);
            let before = refused.len();
            for (record, _) in refused {
                self.try_remove(unit, record)?;
            }
            if self.refused.is_empty() || self.refused.len() == before {
                return Ok(());
            }
        }
    }
}

fn change(unit: &mut Unit<'_>, mut attempt: impl FnMut(&mut Unit<'_>) -> Result<()>) -> Result<()> {
    loop {
        unit.operation.check()?;
        match attempt(unit) {
            Ok(()) => return unit.written(),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// Updates the document with the same `_id`, or inserts it.
fn put(unit: &mut Unit<'_>, collection: &Arc<Collection>, document: RawDocument<'_>) -> Result<()> {
    let id = document.get("_id").unwrap_or(RawValue::Null);
    match find_unique(unit, &collection.namespace, "_id", id, Use::Write)? {
        Some(old) if old.document.as_bytes() == document.as_bytes() => Ok(()),
        Some(old) => {
            let before = Before::of(old.document.as_raw());
            let mut change = Change::update(collection, old.record, before, document, Cause::Import);
            change.array = ArrayForm::Whole;
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
