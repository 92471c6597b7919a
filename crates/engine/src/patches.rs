//! Patches: readers see documents as they will be when nothing is pending any more.
//!
//! The records of what is pending lie in the reader's snapshot together with the documents. A [`Patches`] is made of them,
//! and every document is read through it before a filter sees it. Index entries are made of stored documents. So the planner
//! asks which indexes may have outdated entries ([`Patches::concerns_index`]), and by which conditions the documents that
//! have outdated entries are found ([`Patches::holders`]).

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::WhenBehind;
use kilim_patterns::{Due, DueByKey, Outcome, key_bytes, overlap};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::{Bytes, Snapshot, Space};

use crate::catalog::{Alias, Collection};
use crate::engine::Engine;
use crate::index::Index;
use crate::layout;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, Pending};
use crate::records::{Overlay, Sight};
use crate::unit::pending::wait_for_key;
use crate::unit::{Unit, pending};

/// The reader of documents for which something is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A user: sees what each pattern's `whenBehind` says.
    User,
    /// Verification: sees every document with what is pending, whatever `whenBehind` says.
    Verification,
}

/// What is pending for the documents of a collection, in one snapshot.
#[derive(Debug)]
pub(crate) struct Patches {
    patterns: Vec<PatternPending>,
    /// Paths whose stored values may be outdated.
    paths: Vec<Box<str>>,
    /// Some stored documents are to be deleted, so readers do not see them.
    pub removes: bool,
    /// The version in which documents are shown, where that is an older one. It comes last: what is pending is pending for
    /// documents of the current version.
    alias: Option<Arc<Alias>>,
}

#[derive(Debug)]
struct PatternPending {
    pattern: Arc<Pattern>,
    /// By the keys that documents have or refer to.
    by_key: DueByKey,
    keys: Vec<Value>,
}

impl Patches {
    /// What is pending for a collection's documents. If nothing is pending anywhere, this costs one comparison. The collection
    /// is found by its id, because it may have been renamed since the reader found it.
    pub fn of(
        engine: &Engine,
        collection: &Collection,
        snapshot: &Snapshot,
        audience: Audience,
    ) -> Result<Option<Arc<Patches>>> {
        let time = snapshot.commit_time();
        let alias = &collection.alias;
        if !engine.pending.may_show(time) && alias.is_none() {
            return Ok(None);
        }
        let (catalog, registry) = engine.in_force();
        // A collection that an open transaction made is not in the catalog, and no pattern's target yet.
        let Some(collection) = catalog.by_id(collection.id) else { return Ok(None) };
        let mut patches =
            Patches { patterns: Vec::new(), paths: Vec::new(), removes: false, alias: alias.clone() };
        for pattern in registry.of(&collection.namespace.database) {
            if pattern.target == collection.namespace
                && is_patched(pattern, audience)
                && engine.pending.may_show_of(pattern.id, time)
            {
                patches.add(pattern, snapshot)?;
            }
        }
        let is_needed = !patches.patterns.is_empty() || patches.alias.is_some();
        Ok(is_needed.then(|| Arc::new(patches)))
    }

    fn add(&mut self, pattern: &Arc<Pattern>, snapshot: &Snapshot) -> Result<()> {
        let all = crate::patterns::all_of(snapshot, pattern.id)?;
        if all.is_empty() {
            return Ok(());
        }
        let mut pending =
            PatternPending { pattern: pattern.clone(), by_key: DueByKey::new(), keys: Vec::new() };
        for record in all {
            let key_bytes = record.key_bytes();
            self.removes |= matches!(record.due, Due::Remove);
            let Pending { key, due, .. } = record;
            let group = || snapshot.get(Space::Meta, &layout::group_key(pattern.id, &key_bytes));
            let Some(due) = whole(pattern, key.as_raw(), due, group)? else { continue };
            pending.by_key.insert(key_bytes, due);
            pending.keys.push(key);
        }
        self.paths.extend(pattern.declaration.maintained_paths());
        self.patterns.push(pending);
        Ok(())
    }

    /// Whether stored values at a path may be outdated.
    fn concerns_path(&self, path: &str) -> bool {
        // A number in a path may be an index of an array.
        let names: Vec<&str> = path.split('.').filter(|name| name.parse::<u32>().is_err()).collect();
        let path = names.join(".");
        self.paths.iter().any(|own| overlap(own, &path))
    }

    /// Whether a filter reads paths whose stored values may be outdated.
    pub fn concerns_filter(&self, filter: &Filter) -> bool {
        let mut needed = Dependencies::default();
        filter.dependencies(&mut needed);
        needed.whole_document || needed.fields.iter().any(|path| self.concerns_path(path))
    }

    /// Whether an index may have outdated entries.
    pub fn concerns_index(&self, index: &Index) -> bool {
        index.spec.depends_on(|path| self.concerns_path(path.as_str()))
            || index.spec.partial.as_ref().is_some_and(|(_, condition)| self.concerns_filter(condition))
    }

    /// Conditions; each document for which something is pending satisfies one of them.
    pub fn holders(&self) -> Vec<Filter> {
        let of = |pending: &PatternPending| {
            let Some(path) = pending.pattern.kind().key_path().map(Path::parse) else { return Vec::new() };
            let equals = |key: &Value| Filter::Field {
                path: path.clone(),
                predicate: Predicate::Compare(Comparison::Eq, key.clone().into()),
            };
            pending.keys.iter().map(equals).collect()
        };
        self.patterns.iter().flat_map(of).collect()
    }

    /// For explain: which patterns, and how much of each is pending.
    pub fn told(&self) -> Vec<Document> {
        let of = |pending: &PatternPending| {
            doc! {
                "pattern": &*pending.pattern.declaration.name,
                "pendingSources": pending.keys.len() as i64,
            }
        };
        let shown = self.alias.iter().map(|alias| {
            doc! {
                "version": alias.version,
                "of": alias.base.to_string(),
                "note": "filters on paths that differ between versions scan",
            }
        });
        self.patterns.iter().map(of).chain(shown).collect()
    }
}

impl Overlay for Patches {
    fn see(&self, document: RawDocument<'_>) -> Result<Sight> {
        let mut seen: Option<Document> = None;
        for pending in &self.patterns {
            let current = seen.as_ref().map_or(document, Document::as_raw);
            match pending.pattern.kind().see(current, &pending.by_key)? {
                Sight::AsStored => {}
                Sight::Other(other) => seen = Some(other),
                Sight::Gone => return Ok(Sight::Gone),
            }
        }
        if let Some(alias) = &self.alias {
            seen = Some(alias.shown(seen.as_ref().map_or(document, Document::as_raw))?);
        }
        Ok(seen.map_or(Sight::AsStored, Sight::Other))
    }
}

/// Whether this reader sees documents with what is pending of a pattern.
fn is_patched(pattern: &Pattern, audience: Audience) -> bool {
    audience == Audience::Verification || pattern.declaration.options.when_behind == WhenBehind::Patch
}

/// What is due to a key, with the state of its group if it is a group that is due. A group's state is stored whole while its
/// parent is pending. None if it is not whole: then the parent has been written meanwhile.
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

/// The document of a record that the unit holds, as users see it. The unit changes what users see, not what is stored.
pub(crate) fn see_newest(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    document: RawDocument<'_>,
) -> Result<Sight> {
    if !unit.engine.pending.has_any() {
        return Ok(Sight::AsStored);
    }
    let registry = unit.engine.patterns();
    let mut seen: Option<Document> = None;
    for pattern in registry.of(&namespace.database) {
        if pattern.target != *namespace
            || !is_patched(pattern, Audience::User)
            || !unit.engine.pending.has(pattern.id)
        {
            continue;
        }
        let current = seen.as_ref().map_or(document, Document::as_raw);
        let mut due_by_key = DueByKey::new();
        for key in pattern.kind().keys_of(current) {
            let Some(Pending { due, .. }) = look_up(unit, pattern, key.as_raw())? else { continue };
            let key_bytes = key_bytes(key.as_raw());
            let in_transaction = unit.is_transaction();
            let group = || {
                let place = layout::group_key(pattern.id, &key_bytes);
                match in_transaction {
                    true => unit.transaction().get(Space::Meta, &place),
                    false => unit.transaction().latest(Space::Meta, &place),
                }
            };
            if let Some(due) = whole(pattern, key.as_raw(), due, group)? {
                due_by_key.insert(key_bytes, due);
            }
        }
        match pattern.kind().see(current, &due_by_key)? {
            Sight::AsStored => {}
            Sight::Other(other) => seen = Some(other),
            Sight::Gone => return Ok(Sight::Gone),
        }
    }
    Ok(seen.map_or(Sight::AsStored, Sight::Other))
}

/// What is pending for a key: as of the newest commit, in a transaction as of its snapshot. The record is shared until the
/// commit, because the unit writes a document that is made of it. If the record could change before that commit, the job
/// might find the document right, skip it, and never see that the unit then writes an older value.
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
        // The transaction saw what is stored. Only a deletion that became pending meanwhile contradicts that.
        (None, newest) => !newest.as_ref().is_some_and(|newest| matches!(newest.due, Due::Remove)),
    };
    match same {
        true => Ok(seen),
        false => Err(Error::Conflict("what the document was copied from was changed meanwhile")),
    }
}

/// Waits, before a document begins to refer to a source that does not exist, until the deletion of that source is written to
/// its holders. The new document is not one of them, and must not be changed with them.
pub(crate) fn await_deletion(unit: &mut Unit<'_>, pattern: &Pattern, key: RawValue<'_>) -> Result<()> {
    if !unit.engine.pending.has(pattern.id) {
        return Ok(());
    }
    let key_bytes = key_bytes(key);
    unit.hold_shared(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
    match pending::newest(unit, pattern.id, &key_bytes)? {
        Some(_) => Err(wait_for_key(unit, pattern, key_bytes)),
        None => Ok(()),
    }
}
