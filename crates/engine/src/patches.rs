//! The truth in spite of what is pending: documents as they will be, before a job has come to write them.
//!
//! What is pending lies in the reader's snapshot together with the documents, so a [`Patches`] is as much part of a
//! read as its snapshot is. Every document is looked at through it before a filter sees it. Indexes are made of what
//! is stored: the planner is told which of them may lie ([`Patches::concerns_index`]), and by which fields those
//! documents are found that they lie about ([`Patches::holders`]).

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::WhenBehind;
use kilim_patterns::{Due, DueByKey, Outcome, key_bytes, overlap};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::{Bytes, Snapshot, Space};

use crate::engine::Engine;
use crate::ids::CollectionId;
use crate::index::Index;
use crate::layout;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, Pending};
use crate::records::{Overlay, Sight};
use crate::unit::pending::wait_for_key;
use crate::unit::{Unit, pending};

/// Whom a read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Sees what each pattern's `whenBehind` says.
    User,
    /// Sees what is true, whatever users are shown.
    Verification,
}

/// What is pending for the documents of a collection, in one snapshot.
#[derive(Debug)]
pub(crate) struct Patches {
    lagging: Vec<LaggingPattern>,
    /// Paths whose stored values may be old.
    paths: Vec<Box<str>>,
    /// Some documents are not there any more.
    pub removes: bool,
}

#[derive(Debug)]
struct LaggingPattern {
    pattern: Arc<Pattern>,
    /// By the keys that documents have or refer to.
    by_key: DueByKey,
    keys: Vec<Value>,
}

impl Patches {
    /// What is pending for a collection's documents; none where nothing is, at the cost of a glance. The collection is
    /// named by its id: it may have been renamed since the reader found it.
    pub fn of(
        engine: &Engine,
        collection: CollectionId,
        snapshot: &Snapshot,
        audience: Audience,
    ) -> Result<Option<Arc<Patches>>> {
        let time = snapshot.commit_time();
        if !engine.lag.may_show(time) {
            return Ok(None);
        }
        let (catalog, registry) = engine.in_force();
        // One that a transaction has made is nobody's target yet.
        let Some(collection) = catalog.by_id(collection) else { return Ok(None) };
        let mut behind = Patches { lagging: Vec::new(), paths: Vec::new(), removes: false };
        for pattern in registry.of(&collection.namespace.database) {
            if pattern.target == collection.namespace
                && is_patched(pattern, audience)
                && engine.lag.may_show_of(pattern.id, time)
            {
                behind.add(pattern, snapshot)?;
            }
        }
        Ok((!behind.lagging.is_empty()).then(|| Arc::new(behind)))
    }

    fn add(&mut self, pattern: &Arc<Pattern>, snapshot: &Snapshot) -> Result<()> {
        let all = crate::patterns::all_of(snapshot, pattern.id)?;
        if all.is_empty() {
            return Ok(());
        }
        let mut lagging =
            LaggingPattern { pattern: pattern.clone(), by_key: DueByKey::new(), keys: Vec::new() };
        for pending in all {
            let key_bytes = pending.key_bytes();
            self.removes |= matches!(pending.due, Due::Remove);
            let Pending { key, due, .. } = pending;
            let group = || snapshot.get(Space::Meta, &layout::group_key(pattern.id, &key_bytes));
            let Some(due) = whole(pattern, key.as_raw(), due, group)? else { continue };
            lagging.by_key.insert(key_bytes, due);
            lagging.keys.push(key);
        }
        self.paths.extend(pattern.declaration.maintained_paths());
        self.lagging.push(lagging);
        Ok(())
    }

    /// Whether what is stored at a path may be old.
    fn concerns_path(&self, path: &str) -> bool {
        // A number may be a place in an array.
        let names: Vec<&str> = path.split('.').filter(|name| name.parse::<u32>().is_err()).collect();
        let path = names.join(".");
        self.paths.iter().any(|own| overlap(own, &path))
    }

    /// Whether a filter asks for something that may be old.
    pub fn concerns_filter(&self, filter: &Filter) -> bool {
        let mut needed = Dependencies::default();
        filter.dependencies(&mut needed);
        needed.whole_document || needed.fields.iter().any(|path| self.concerns_path(path))
    }

    /// Whether an index may be wrong about some documents.
    pub fn concerns_index(&self, index: &Index) -> bool {
        index.spec.depends_on(|path| self.concerns_path(path.as_str()))
            || index.spec.partial.as_ref().is_some_and(|(_, condition)| self.concerns_filter(condition))
    }

    /// Conditions of which each document that is seen otherwise than it is stored satisfies one.
    pub fn holders(&self) -> Vec<Filter> {
        let of = |lagging: &LaggingPattern| {
            let Some(path) = lagging.pattern.kind().key_path().map(Path::parse) else { return Vec::new() };
            let equals = |key: &Value| Filter::Field {
                path: path.clone(),
                predicate: Predicate::Compare(Comparison::Eq, key.clone().into()),
            };
            lagging.keys.iter().map(equals).collect()
        };
        self.lagging.iter().flat_map(of).collect()
    }

    /// For explain: which patterns, and how much of each is pending.
    pub fn told(&self) -> Vec<Document> {
        let of = |lagging: &LaggingPattern| {
            doc! {
                "pattern": &*lagging.pattern.declaration.name,
                "pendingSources": lagging.keys.len() as i64,
            }
        };
        self.lagging.iter().map(of).collect()
    }
}

impl Overlay for Patches {
    fn see(&self, document: RawDocument<'_>) -> Result<Sight> {
        let mut seen: Option<Document> = None;
        for lagging in &self.lagging {
            let current = seen.as_ref().map_or(document, Document::as_raw);
            match lagging.pattern.kind().see(current, &lagging.by_key)? {
                Sight::AsStored => {}
                Sight::Other(other) => seen = Some(other),
                Sight::Gone => return Ok(Sight::Gone),
            }
        }
        Ok(seen.map_or(Sight::AsStored, Sight::Other))
    }
}

/// Whether readers see through a pattern's delay.
fn is_patched(pattern: &Pattern, audience: Audience) -> bool {
    audience == Audience::Verification || pattern.declaration.options.when_behind == WhenBehind::Patch
}

/// What is due to a key with what it takes to show it. A group's state is stored whole while it is pending; none where its
/// parent shows it meanwhile.
fn whole(
    pattern: &Pattern,
    key: RawValue<'_>,
    due: Due,
    stored: impl FnOnce() -> Result<Option<Bytes>>,
) -> Result<Option<Due>> {
    let (Due::Group(_), Some(rollup)) = (&due, pattern.kind().rollup()) else { return Ok(Some(due)) };
    let state = match stored()? {
        Some(stored) => {
            rollup.restore_group(&stored, None).ok_or_else(|| Error::bug("a group's state cannot be read"))?
        }
        // A group without rows has no state.
        None => rollup.empty_group(key)?,
    };
    let is_whole = rollup.missing(&state) == Outcome::Done;
    Ok(is_whole.then_some(Due::Group(Some(state))))
}

/// A document of a record that a writer holds, as it is seen: what he writes is made of the truth.
pub(crate) fn see_newest(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    document: RawDocument<'_>,
) -> Result<Sight> {
    if !unit.engine.lag.is_any_open() {
        return Ok(Sight::AsStored);
    }
    let registry = unit.engine.patterns();
    let mut seen: Option<Document> = None;
    for pattern in registry.of(&namespace.database) {
        if pattern.target != *namespace
            || !is_patched(pattern, Audience::User)
            || !unit.engine.lag.is_open(pattern.id)
        {
            continue;
        }
        let current = seen.as_ref().map_or(document, Document::as_raw);
        for key in pattern.kind().keys_of(current) {
            let Some(Pending { due, .. }) = look_up(unit, pattern, key.as_raw())? else { continue };
            let in_transaction = unit.is_transaction();
            let group = || {
                let place = layout::group_key(pattern.id, &key_bytes(key.as_raw()));
                match in_transaction {
                    true => unit.transaction().get(Space::Meta, &place),
                    false => unit.transaction().latest(Space::Meta, &place),
                }
            };
            let Some(due) = whole(pattern, key.as_raw(), due, group)? else { continue };
            let current = seen.as_ref().map_or(document, Document::as_raw);
            match pattern.kind().becomes(current, key.as_raw(), &due)? {
                Sight::AsStored => {}
                Sight::Other(other) => seen = Some(other),
                Sight::Gone => return Ok(Sight::Gone),
            }
        }
    }
    Ok(seen.map_or(Sight::AsStored, Sight::Other))
}

/// What is pending for a key: as of the newest commit, in a transaction as of its snapshot. It stays so until the commit:
/// whoever writes what he saw must not be overtaken. A job leaves alone what is as it must be, and would not see that
/// something older is on its way.
fn look_up(unit: &mut Unit<'_>, pattern: &Pattern, key: RawValue<'_>) -> Result<Option<Pending>> {
    let key_bytes = key_bytes(key);
    let in_transaction = unit.is_transaction();
    let seen = match in_transaction {
        true => pending::in_transaction(unit, pattern.id, &key_bytes)?,
        false => None,
    };
    if seen.is_none() && pending::newest(unit, pattern.id, &key_bytes)?.is_none() {
        return Ok(None);
    }
    unit.hold_shared(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
    let newest = pending::newest(unit, pattern.id, &key_bytes)?;
    if !in_transaction {
        return Ok(newest);
    }
    let same = match (&seen, &newest) {
        (Some(seen), Some(newest)) => seen.version == newest.version,
        (Some(_), None) => false,
        // What is stored is what it saw; a document that is to be deleted is not there any more.
        (None, newest) => !newest.as_ref().is_some_and(|newest| matches!(newest.due, Due::Remove)),
    };
    match same {
        true => Ok(seen),
        false => Err(Error::Conflict("what the document was copied from was changed meanwhile")),
    }
}

/// A document that begins to refer to a source that is not there waits until the source's deletion is carried through:
/// it is not one of those whom that deletion concerns.
pub(crate) fn await_deletion(unit: &mut Unit<'_>, pattern: &Pattern, key: RawValue<'_>) -> Result<()> {
    if !unit.engine.lag.is_open(pattern.id) {
        return Ok(());
    }
    let key_bytes = key_bytes(key);
    unit.hold_shared(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
    match pending::newest(unit, pattern.id, &key_bytes)? {
        Some(_) => Err(wait_for_key(unit, pattern, key_bytes)),
        None => Ok(()),
    }
}
