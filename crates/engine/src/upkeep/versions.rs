//! Versions of documents: a step is put in force, completed and rolled back.
//!
//! Before a step is in force, its documents are converted for a trial and the indexes over paths that differ are built over
//! documents of the new version. Then, with no writer inside the collection, one commit stores the definition and gives the
//! collection its new indexes: from there on all documents are seen in the new version. What is stored is converted later, by
//! writers and by the job that fills the pattern; readers see no difference.
//!
//! A step that is rolled back is replaced by the step back, which is put in force in the same way.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_patterns::{OnError, VersionCheck, VersionStep, Versions, overlap};
use kilim_storage::{CommitTime, Durability, Snapshot};

use super::definitions::put_changes;
use super::states::{current, not_ready};
use crate::build::{Put, Switch};
use crate::catalog::{Catalog, Collection, save};
use crate::engine::Engine;
use crate::ids::{PatternId, RecordId};
use crate::namespace::{Namespace, definitions_of};
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry};
use crate::records::{self, Home, Records, Shape};
use crate::unit::Unit;

/// Documents that `check: "sample"` looks at.
const SAMPLE: f64 = 1000.0;

/// Which way a step leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    /// It takes back one that is in force. `lossy`: what the older version cannot say may be lost.
    Back {
        lossy: bool,
    },
}

/// Checks the patterns that there are, and gives them without what is to be replaced.
pub(crate) type Admit<'a> = &'a dyn Fn(&Engine, &Registry) -> Result<Registry>;

impl Registry {
    /// The steps between versions of a collection that are in force, one aside.
    fn steps_of(&self, namespace: &Namespace, aside: Option<&str>) -> Vec<Arc<VersionStep>> {
        let own = |pattern: &&Arc<Pattern>| {
            pattern.target == *namespace
                && pattern.state != PatternState::Unverified
                && Some(&*pattern.declaration.name) != aside
        };
        let patterns = self.of(&namespace.database).iter().filter(own);
        patterns.filter_map(|pattern| pattern.kind().version_step().cloned()).collect()
    }
}

/// Gives the collections of a catalog the versions that patterns declare.
pub(crate) fn put_versions_in_force(catalog: &mut Catalog, registry: &Registry) -> Result<()> {
    for pattern in registry.iter().filter(|pattern| pattern.kind().version_step().is_some()) {
        let steps = registry.steps_of(&pattern.target, None);
        let Some(collection) = catalog.get(&pattern.target).filter(|_| !steps.is_empty()) else { continue };
        let versions = Versions::of(steps)
            .map_err(|error| StorageError::Corrupt(format!("versions of {}: {error}", pattern.target)))?;
        let mut changed = (**collection).clone();
        changed.shape = Shape::Plain.with_versions(Some(versions), None);
        catalog.insert(Arc::new(changed));
    }
    Ok(())
}

/// Refuses for a step between versions what is not done to such patterns.
pub(crate) fn check_no_version(pattern: &Pattern, what: &str) -> Result<()> {
    if pattern.kind().version_step().is_none() || pattern.state == PatternState::Unverified {
        return Ok(());
    }
    Err(pattern.refusal(
        ErrorCode::VersionInUse,
        None,
        format!("schemaVersion '{}' of {} cannot be {what}", pattern.declaration.name, pattern.target),
    ))
}

impl Engine {
    /// Checks a step between versions against its collection, the other steps and the other patterns. Patterns of other kinds
    /// have nothing to check here.
    pub(crate) fn check_versions(&self, pattern: &Pattern) -> Result<()> {
        let Some(step) = pattern.kind().version_step() else { return Ok(()) };
        let (target, registry) = (&pattern.target, self.patterns());
        let bad = |message: String| Error::user(ErrorCode::BadValue, message);
        if self.collection(target).is_some_and(|collection| collection.capped.is_some()) {
            return Err(bad(format!(
                "{target} is capped: a conversion could change how many documents it holds, so it has no versions"
            )));
        }
        let others = registry.steps_of(target, Some(&pattern.declaration.name));
        let mut shown = Vec::new();
        if !others.is_empty() {
            let now = Versions::of(others.clone())?;
            let newest = now.current();
            let own = |other: &&Arc<Pattern>| {
                other.target == *target && other.declaration.name == pattern.declaration.name
            };
            // One that is rolled back or repaired, else it is declared anew.
            let known = registry.of(&target.database).iter().find(own);
            let is_in_force = known.is_some_and(|known| known.state != PatternState::Unverified);
            if step.from != newest && !(known.is_some() && step.to == newest) {
                return Err(Error::user(
                    ErrorCode::VersionChainGap,
                    format!(
                        "{target} is in version {newest}: the next step leads from there, not from {}",
                        step.from
                    ),
                ));
            }
            if !is_in_force {
                shown = now.aliases(&target.collection);
            }
            let lowest = now.lowest();
            if !is_in_force && step.from.min(step.to) < lowest {
                return Err(Error::user(
                    ErrorCode::VersionChainGap,
                    format!(
                        "documents of {target} without '{}' are of version {lowest}, the lowest: a step from {} to {} would make \
                         them of another. Choose a higher number, or complete the other steps first",
                        step.field, step.from, step.to
                    ),
                ));
            }
        }
        let versions = Versions::of(others.into_iter().chain([step.clone()]).collect())?;
        let aliases = versions.aliases(&target.collection);
        let hidden = shown.iter().find(|(version, _)| !aliases.iter().any(|(other, _)| other == version));
        if let Some(hidden) = hidden {
            return Err(in_use(
                pattern,
                format!(
                    "version {} of {target} is shown as '{}', and there would be no way back to it: declare a 'down', or complete \
                     the steps before this one first",
                    hidden.0, hidden.1
                ),
            ));
        }
        let touched = step.touched();
        let meets = |path: &str| touched.as_ref().is_none_or(|own| own.iter().any(|own| overlap(own, path)));
        let is_another = |other: &&Arc<Pattern>| other.kind().version_step().is_none();
        for other in registry.of(&target.database).iter().filter(is_another) {
            let mut paths = Vec::new();
            let readings = other.kind().readings();
            if other.target == *target {
                paths.extend(other.kind().written_paths());
                paths.extend(readings.target);
                paths.extend(other.kind().key_path().map(Into::into));
            }
            let reads_all = other.source.as_ref() == Some(target) && readings.source.is_none();
            if other.source.as_ref() == Some(target) {
                paths.extend(readings.source.into_iter().flatten());
            }
            if reads_all || paths.iter().any(|path| meets(path)) {
                return Err(pattern.refusal(
                    ErrorCode::PatternFieldConflict,
                    None,
                    format!(
                        "{} '{}' of {} reads or maintains fields of {target} that the versions change: drop it, declare the \
                         version, and declare it again for the new version",
                        other.declaration.kind_name, other.declaration.name, other.target
                    ),
                ));
            }
        }
        for (at, (version, name)) in aliases.iter().enumerate() {
            if aliases[..at].iter().any(|(_, other)| other == name) {
                return Err(bad(format!("'{name}' names two versions: each needs a name of its own")));
            }
            if name.starts_with("system.") || name.starts_with("kilim.") {
                return Err(bad(format!(
                    "'{name}' is a name of the database's own: choose another in 'aliases'"
                )));
            }
            let alias = Namespace::parse(&target.database, name)?;
            alias.check_creatable()?;
            let catalog = self.catalog();
            let is_own = catalog.alias(&alias).is_none_or(|taken| taken.base == *target);
            if catalog.get(&alias).is_some() || catalog.view(&alias).is_some() || !is_own {
                return Err(Error::user(
                    ErrorCode::VersionInUse,
                    format!(
                        "version {version} of {target} would be shown as {alias}, which exists: choose another name in 'aliases'"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Converts documents for a trial, without declaring anything: for a dry run.
    pub fn try_version(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        let (Some(step), Some(collection)) =
            (pattern.kind().version_step(), self.collection(&pattern.target))
        else {
            return Ok(());
        };
        let mut steps = self.patterns().steps_of(&pattern.target, Some(&pattern.declaration.name));
        steps.push(step.clone());
        self.store.sync()?;
        let trial = Trial { versions: &Versions::of(steps)?, step, way: Way::Forward, now: None };
        trial.run(self, operation, &collection, &self.store.snapshot(), 0)
    }

    /// Puts a step in force: its pattern is stored as it is given, but active where there is nothing to convert.
    pub(crate) fn put_version_in_force(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
        way: Way,
        admit: Admit<'_>,
    ) -> Result<Arc<Pattern>> {
        let target = &pattern.target;
        let step = pattern.kind().version_step().ok_or_else(|| Error::bug("a pattern without versions"))?;
        let collection = self.collection(target).ok_or_else(|| crate::catalog::not_found(target))?;
        let others = self.patterns().steps_of(target, Some(&pattern.declaration.name));
        let versions = Versions::of(others.iter().cloned().chain([step.clone()]).collect())?;
        // Whichever way the step leads, the same paths differ.
        let between = Versions::of(vec![step.clone()])?;
        let trial = Trial { versions: &versions, step, way, now: collection.shape.versions() };
        self.store.sync()?;
        let seen = self.store.snapshot();
        trial.run(self, operation, &collection, &seen, 0)?;
        let put = RefCell::new(None);
        let commit = |held: &Collection, change: Put<'_>| -> Result<Arc<Collection>> {
            if held.id != collection.id {
                return Err(not_ready(pattern, "lost its collection meanwhile: declare it again"));
            }
            let steps = self.patterns().steps_of(target, Some(&pattern.declaration.name));
            if steps.len() != others.len()
                || !steps.iter().zip(&others).all(|(now, then)| Arc::ptr_eq(now, then))
            {
                return Err(not_ready(pattern, "met another change of versions: declare it again"));
            }
            self.store.sync()?;
            let last = self.store.snapshot();
            trial.run(self, operation, held, &last, seen.commit_time())?;
            let state = if self.is_empty(target)? { PatternState::Active } else { pattern.state.clone() };
            let pattern = Arc::new(Pattern { state, ..pattern.clone() });
            let shape = held.shape.with_versions(Some(versions.clone()), None);
            let changed = self.commit_versions(operation, target, change, shape, &|registry| {
                admit(self, registry)?.replacing(pattern.clone())
            })?;
            put.replace(Some(pattern));
            Ok(changed)
        };
        self.switch_versions(operation, target, || Switch {
            versions: versions.clone(),
            between: between.clone(),
            commit: &commit,
        })?;
        put.take().ok_or_else(|| Error::bug("versions were put in force without a pattern"))
    }

    /// Commits other patterns and another shape of a collection as one, and puts both in force as one. The caller holds the
    /// collection.
    fn commit_versions(
        &self,
        operation: &Arc<Operation>,
        target: &Namespace,
        change: Put<'_>,
        shape: Shape,
        registry: &dyn Fn(&Registry) -> Result<Registry>,
    ) -> Result<Arc<Collection>> {
        let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
        unit.enter_or_create(&definitions_of(&target.database))?;
        let ids = self.ids.lock();
        let before = self.patterns();
        let after = registry(&before)?;
        put_changes(&mut unit, &before, &after, &|namespace| self.collection(namespace))?;
        let now = self.collection(target).ok_or_else(|| crate::catalog::not_found(target))?;
        let mut changed = (*now).clone();
        change(&mut changed, unit.transaction());
        changed.shape = shape;
        save(unit.transaction(), &changed);
        ids.save(unit.transaction());
        unit.settle()?;
        let changed = Arc::new(changed);
        self.publish_renamed(after, |catalog| catalog.insert(changed.clone()));
        Ok(changed)
    }

    /// Ends a step: what is still stored in the older version is converted, and the older version is not shown any more.
    pub fn complete_version(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<u64> {
        let step = version_step(pattern)?;
        let target = &pattern.target;
        self.check_not_built_on(pattern, step)?;
        let converted = self.visit_records(operation, target, |unit, record| {
            Ok(restate(unit, target, record)? == Some(true))
        })?;
        let (collection, _held) = self.hold(operation, target)?;
        self.check_not_built_on(pattern, step)?;
        self.store.sync()?;
        let snapshot = self.store.snapshot();
        self.check_none_left(operation, &collection, &snapshot, step)?;
        let rest = self.patterns().steps_of(target, Some(&pattern.declaration.name));
        let rest = if rest.is_empty() { None } else { Some(Versions::of(rest)?) };
        let shape = collection.shape.with_versions(rest, Some(snapshot.commit_time() + 1));
        let changed = self.commit_versions(operation, target, &mut |_, _| {}, shape, &|registry| {
            registry.without(&[current(registry, pattern)?.id])
        })?;
        changed.shared.plan_cache.clear();
        self.kill_jobs_of(pattern.id);
        Ok(converted)
    }

    /// Takes a step back: the older version is in force again, and the newer one is shown beside it until that is completed.
    pub fn roll_version_back(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        lossy: bool,
    ) -> Result<Arc<Pattern>> {
        let step = version_step(pattern)?;
        let versions = self.collection(&pattern.target).and_then(|it| it.shape.versions().cloned());
        if versions.is_none_or(|versions| versions.current() != step.to) {
            return Err(in_use(
                pattern,
                format!("a later version is built on version {}: roll that back first", step.to),
            ));
        }
        let spec = step.reversed(&pattern.declaration.spec).ok_or_else(|| {
            Error::user(
                ErrorCode::VersionLossy,
                format!(
                    "schemaVersion '{}' of {} has no 'down', so there is no way back to version {}",
                    pattern.declaration.name, pattern.target, step.from
                ),
            )
        })?;
        let declaration = pattern.declaration.respecified(spec)?;
        let id = PatternId(self.next_index_id().0);
        let back = Pattern {
            counters: pattern.counters.clone(),
            ..Pattern::new(id, &pattern.target.database, declaration, PatternState::Building)?
        };
        self.check_definition(&back)?;
        let back = self.put_version_in_force(operation, &back, Way::Back { lossy }, &|_, registry| {
            current(registry, pattern)?;
            Ok(registry.clone())
        })?;
        self.kill_jobs_of(pattern.id);
        Ok(back)
    }

    fn check_not_built_on(&self, pattern: &Pattern, step: &VersionStep) -> Result<()> {
        let others = self.patterns().steps_of(&pattern.target, Some(&pattern.declaration.name));
        match others.iter().find(|other| other.to == step.from) {
            Some(other) => Err(in_use(
                pattern,
                format!(
                    "version {} is converted to version {} first: complete that step before",
                    other.from, step.from
                ),
            )),
            None => Ok(()),
        }
    }

    /// Refuses where a document is still stored in the version that a step leaves. Only one that cannot be converted is.
    fn check_none_left(
        &self,
        operation: &Operation,
        collection: &Collection,
        snapshot: &Snapshot,
        step: &VersionStep,
    ) -> Result<()> {
        let plain = Home { collection: collection.id, shape: Shape::Plain };
        let Some(versions) = collection.shape.versions() else { return Ok(()) };
        for (at, row) in Records::new(plain, snapshot).all().enumerate() {
            if at % 1024 == 0 {
                operation.check()?;
            }
            let (_, image) = row?;
            if versions.version_of(image.document()) == Some(step.from) {
                return Err(match versions.check(image.document()) {
                    Err(error) => error,
                    Ok(()) => Error::bug("a document was not converted"),
                });
            }
        }
        Ok(())
    }
}

/// The conversion of documents for a trial.
struct Trial<'t> {
    versions: &'t Versions,
    step: &'t VersionStep,
    way: Way,
    /// The versions in force.
    now: Option<&'t Versions>,
}

impl Trial<'_> {
    /// Converts the documents of a snapshot that were written after a commit time.
    fn run(
        &self,
        engine: &Engine,
        operation: &Operation,
        collection: &Collection,
        snapshot: &Snapshot,
        after: CommitTime,
    ) -> Result<()> {
        let plain = Records::new(Home { collection: collection.id, shape: Shape::Plain }, snapshot);
        let count = collection.home().counts(snapshot)?.count.max(0) as f64;
        if self.step.check == VersionCheck::Sample && count > SAMPLE && after == 0 {
            let end = collection.shared.next_record.load(Ordering::Relaxed);
            for record in plain.chosen(SAMPLE / count, end, engine.environment())? {
                if let Some(image) = plain.get(record.into())? {
                    self.look_at(engine, collection, image.document())?;
                }
            }
            return Ok(());
        }
        for (at, row) in plain.all().enumerate() {
            if at % 1024 == 0 {
                operation.check()?;
            }
            let (_, image) = row?;
            if image.commit_time() > after {
                self.look_at(engine, collection, image.document())?;
            }
        }
        Ok(())
    }

    fn look_at(&self, engine: &Engine, collection: &Collection, document: RawDocument<'_>) -> Result<()> {
        match (self.way, self.now) {
            // It is stored in the version that is in force again, so nothing is given up.
            (Way::Back { lossy: false }, Some(now)) if now.version_of(document) == Some(self.step.to) => {
                return Ok(());
            }
            (Way::Back { lossy: false }, Some(now)) => {
                let seen = now.seen(document)?;
                return now.check_back(seen.as_ref().map_or(document, Document::as_raw), self.step.to);
            }
            (Way::Back { .. }, _) => return self.versions.seen(document).map(drop),
            (Way::Forward, _) => {}
        }
        if self.step.check == VersionCheck::None || self.step.on_error == OnError::KeepOld {
            return Ok(());
        }
        self.versions.check(document)?;
        self.check_valid(engine, collection, document)
    }

    /// Refuses a step whose documents the collection's own validator would not let anybody write any more.
    fn check_valid(&self, engine: &Engine, collection: &Collection, document: RawDocument<'_>) -> Result<()> {
        let Some(validation) = collection.validation()?.filter(|asked| !asked.is_off() && !asked.warns())
        else {
            return Ok(());
        };
        let Some(converted) = self.versions.seen(document)? else { return Ok(()) };
        let complies = |document| validation.complies(document, || engine.now());
        if complies(converted.as_raw())? || !complies(document)? {
            return Ok(());
        }
        let id = document.get("_id").map(|id| kilim_query::text::value(id)).unwrap_or_default();
        Err(Error::user(
            ErrorCode::DocumentValidationFailure,
            format!(
                "the document with _id {id} passes the validator of {} and would not in version {}, so that nobody could write \
                 it: let the validator accept both versions first, by collMod",
                collection.namespace, self.step.to
            ),
        ))
    }
}

/// Stores a document in the current version. None if its collection is gone, false if it is stored so already.
pub(crate) fn restate(unit: &mut Unit<'_>, namespace: &Namespace, record: RecordId) -> Result<Option<bool>> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(namespace)? else { return Ok(None) };
        let result = unit
            .lock_record(&collection, record.into())
            .and_then(|_| records::restate(unit.transaction(), &collection.home(), record.into()));
        match result {
            Ok(restated) => return unit.written().map(|()| Some(restated)),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

fn version_step(pattern: &Pattern) -> Result<&Arc<VersionStep>> {
    if pattern.state == PatternState::Unverified {
        return Err(not_ready(pattern, "is not in force: repairPattern puts it in force"));
    }
    pattern.kind().version_step().ok_or_else(|| {
        Error::user(
            ErrorCode::BadValue,
            format!(
                "'{}' of {} is of the kind {}, not a schemaVersion",
                pattern.declaration.name, pattern.target, pattern.declaration.kind_name
            ),
        )
    })
}

fn in_use(pattern: &Pattern, why: String) -> Error {
    pattern.refusal(ErrorCode::VersionInUse, None, why)
}
