//! One change carried through all patterns that it concerns.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, compare};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::OnUserWrite;
use kilim_patterns::{Derived, Kind, Reference, Rollup, Shaped, overlap, with_value};

use super::behind::{await_deletion, frozen_as};
use super::declare::read_only;
use super::drop::without_fields;
use super::fill::Refresh;
use super::group::{Group, Groups};
use super::groups::DeferredDeltas;
use super::pending::Leaving;
use super::refusal::about;
use super::sources::{Newest, Use, find_unique, read_newest};
use super::{Pattern, PatternId, groups, holders};
use crate::catalog::{Collection, CollectionId, RecordId};
use crate::change::{Before, Cause, Change};
use crate::index::Index;
use crate::limits;
use crate::namespace::Namespace;
use crate::records::RowId;
use crate::unit::Unit;
use crate::write::door;

/// A document that the change touches, or another because of it.
pub(super) struct Touched {
    pub collection: Arc<Collection>,
    /// None until it is inserted.
    pub record: Option<RecordId>,
    pub before: Option<Document>,
    /// None where it is deleted.
    pub after: Option<Document>,
    /// None where a user wrote it.
    pub by: Option<Arc<Pattern>>,
    /// A pattern that makes its fields anew, whatever is there.
    pub refreshed_by: Option<PatternId>,
}

/// Before a change or after it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Before,
    After,
}

impl Touched {
    pub fn on(&self, side: Side) -> Option<RawDocument<'_>> {
        let document = match side {
            Side::Before => &self.before,
            Side::After => &self.after,
        };
        document.as_ref().map(Document::as_raw)
    }

    /// What a pattern may trust of the past.
    fn before_for(&self, pattern: &Pattern) -> Option<RawDocument<'_>> {
        let before = self.before.as_ref().filter(|_| self.refreshed_by != Some(pattern.id));
        before.map(Document::as_raw)
    }

    /// Whether it is as a user wrote it, not as a pattern makes it or a backfill finds it.
    fn is_a_users(&self) -> bool {
        self.by.is_none() && self.refreshed_by.is_none()
    }

    /// Whether a pattern shapes it: a user wrote it, or it is new, or it is made anew.
    fn is_shaped_by(&self, pattern: &Pattern) -> bool {
        self.by.is_none() || self.before.is_none() || self.refreshed_by == Some(pattern.id)
    }
}

/// A change and what its patterns make of it: the documents to be stored.
pub(crate) struct Work {
    patterns: Arc<[Arc<Pattern>]>,
    pub(super) touched: Vec<Touched>,
    /// Where touched records stand.
    by_record: HashMap<(CollectionId, RecordId), usize>,
    pub(super) groups: Groups,
    /// What it leaves to jobs.
    pub(super) leaving: Leaving,
    /// The user's document as it is stored, where he saw another because its pattern is behind.
    stored: Option<Document>,
    /// Groups are changed at the commit, not now.
    defers: bool,
    /// What the statements of the transaction that commits left for its groups, and has not come to them yet.
    pub(super) deferred: DeferredDeltas,
    /// The paths that maintenance may write in the collection that was stored last; fan-outs stay in one.
    written: Option<(CollectionId, Vec<Box<str>>)>,
}

/// What the patterns of its database make of a change. Nothing is written: the door stores the answer.
pub(crate) fn evaluate(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    change: &Change<'_>,
) -> Result<Work> {
    let mut work = Work {
        defers: unit.is_transaction(),
        stored: change.before.and_then(Before::stored_apart),
        ..Work::new(patterns)
    };
    work.add(Touched {
        collection: change.collection.clone(),
        record: change.row.map(|row| row.record),
        before: change.before.map(|before| before.seen.to_document()),
        after: change.after.map(RawDocument::to_document),
        by: None,
        refreshed_by: None,
    });
    // With empty hands, so that writers of one group stand in line for it instead of in each other's way.
    if change.row.is_none() && !work.defers {
        groups::hold_ahead(unit, &work)?;
    }
    work.run(unit)?;
    work.keep_within_bounds(unit, change.after);
    Ok(work)
}

/// Makes a document's fields anew, for one pattern.
pub(super) fn refresh_document(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
) -> Result<()> {
    let mut work = Work::new(patterns);
    work.groups.distrust(pattern.id, refresh == Refresh::All);
    let Some(at) = work.touch(unit, pattern, collection, record)? else { return Ok(()) };
    work.touched[at].refreshed_by = Some(pattern.id);
    work.finish(unit)
}

/// Makes the groups of a child anew, and their parents.
pub(super) fn refresh_groups(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
) -> Result<()> {
    let mut work = Work::new(patterns);
    work.groups.distrust(pattern.id, refresh == Refresh::All);
    let Some(child) = read_newest(unit, collection, record, Use::Copy)? else { return Ok(()) };
    groups::show_all(unit, &mut work, pattern, rollup, child.as_raw())?;
    work.finish(unit)
}

/// Changes the groups that a transaction's statements left for its commit.
pub(crate) fn carry_deferred(unit: &mut Unit<'_>) -> Result<()> {
    let deferred = unit.take_deferred();
    if deferred.is_empty() {
        return Ok(());
    }
    unit.commits = true;
    let registry = unit.engine.patterns();
    let mut databases: Vec<String> = deferred.iter().map(|one| one.database.clone()).collect();
    databases.sort_unstable();
    databases.dedup();
    for database in databases {
        let patterns: Arc<[Arc<Pattern>]> = registry.of(&database).to_vec().into();
        let mut work = Work::new(patterns);
        work.deferred = groups::merge(deferred.iter().filter(|one| one.database == database));
        work.finish(unit)?;
    }
    Ok(())
}

impl Work {
    pub(super) fn new(patterns: Arc<[Arc<Pattern>]>) -> Work {
        Work {
            patterns,
            touched: Vec::new(),
            by_record: HashMap::new(),
            groups: Groups::default(),
            leaving: Leaving::default(),
            stored: None,
            defers: false,
            deferred: DeferredDeltas::default(),
            written: None,
        }
    }

    /// Carries what was touched through the patterns, and writes everything.
    pub(super) fn finish(&mut self, unit: &mut Unit<'_>) -> Result<()> {
        self.run(unit)?;
        door::put_evaluated(unit, self, Cause::Job, &|_| false)
    }

    /// Takes up a document that was not touched yet; its place.
    pub(super) fn add(&mut self, touched: Touched) -> usize {
        let at = self.touched.len();
        if let Some(record) = touched.record {
            self.by_record.insert((touched.collection.id, record), at);
        }
        self.touched.push(touched);
        at
    }

    /// The place of a record, if it is touched.
    pub(super) fn place_of(&self, collection: &Collection, record: RecordId) -> Option<usize> {
        self.by_record.get(&(collection.id, record)).copied()
    }

    pub(super) fn patterns(&self) -> &Arc<[Arc<Pattern>]> {
        &self.patterns
    }

    pub(super) fn defers(&self) -> bool {
        self.defers
    }

    fn run(&mut self, unit: &mut Unit<'_>) -> Result<()> {
        let patterns = self.patterns.clone();
        for pattern in patterns.iter().filter(|pattern| pattern.is_maintained()) {
            unit.operation.check()?;
            match &pattern.declaration.kind {
                Kind::Derived(derived) => self.derive(pattern, derived)?,
                Kind::Reference(reference) => {
                    self.shape_holders(unit, pattern, reference)?;
                    holders::fan_out(unit, self, pattern, reference)?;
                }
                Kind::Rollup(rollup) => {
                    self.shape_parents(unit, pattern, rollup)?;
                    groups::change(unit, self, pattern, rollup)?;
                }
            }
        }
        Ok(())
    }

    /// The touched documents of a collection, by their places.
    pub(super) fn places(&self, namespace: &Namespace) -> Vec<usize> {
        let of = |at: &usize| self.touched[*at].collection.namespace == *namespace;
        (0..self.touched.len()).filter(of).collect()
    }

    fn derive(&mut self, pattern: &Arc<Pattern>, derived: &Derived) -> Result<()> {
        for at in self.places(&pattern.target) {
            let touched = &mut self.touched[at];
            let Some(after) = &touched.after else { continue };
            if let Some(made) = derived.apply(after.as_raw()) {
                let before = touched.before.as_ref().map(Document::as_raw);
                if touched.is_a_users() && derived.is_contradicted(before, after.as_raw(), made.as_raw()) {
                    note_replaced(pattern)?;
                }
                touched.after = Some(made);
            }
        }
        Ok(())
    }

    /// Copies in the documents that a user wrote.
    fn shape_holders(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        reference: &Reference,
    ) -> Result<()> {
        let source = pattern.source.as_ref();
        for at in self.places(&pattern.target) {
            let touched = &self.touched[at];
            let (Some(after), Some(source)) = (&touched.after, source) else { continue };
            if !touched.is_shaped_by(pattern) {
                continue;
            }
            // What becomes frozen keeps what it would have been by now.
            let caught_up = match (&touched.before, touched.refreshed_by) {
                (Some(before), None) => frozen_as(unit, pattern, reference, before, after)?,
                _ => None,
            };
            let all = &self.touched;
            let mut find = |key: RawValue<'_>| {
                if let Some(found) = touched_source(all, source, reference, key) {
                    return Ok(found);
                }
                match find_unique(unit, source, &reference.foreign_field, key, Use::Copy)? {
                    Some(newest) => Ok(Some(newest.document)),
                    None => await_deletion(unit, pattern, key).map(|()| None),
                }
            };
            if touched.refreshed_by == Some(pattern.id) {
                if let Some(document) = reference.corrected(after.as_raw(), &mut find)? {
                    self.touched[at].after = Some(document);
                }
                continue;
            }
            let before = caught_up.as_ref().or(touched.before.as_ref()).map(Document::as_raw);
            let shaped = reference.shape(before, after.as_raw(), &mut find);
            let refused = |error| {
                about(error, &pattern.target, &pattern.declaration.name, Some(&reference.local_field))
            };
            if let Shaped::To { document, replaced } = shaped.map_err(refused)? {
                if replaced && touched.by.is_none() {
                    note_replaced(pattern)?;
                }
                self.touched[at].after = Some(document);
            }
        }
        Ok(())
    }

    /// A group's fields in the parents that a user wrote.
    fn shape_parents(&mut self, unit: &mut Unit<'_>, pattern: &Arc<Pattern>, rollup: &Rollup) -> Result<()> {
        for at in self.places(&pattern.target) {
            let touched = &self.touched[at];
            let Some(after) = &touched.after else { continue };
            if !touched.is_shaped_by(pattern) {
                continue;
            }
            let key = rollup.key_of_parent(after.as_raw());
            let before = touched.before_for(pattern);
            // A new document that brings such fields: they give way too.
            let brought = before.is_none()
                && touched.is_a_users()
                && rollup.restored(RawDocument::empty(), after.as_raw()).is_some();
            let same_group = before.is_some_and(|before| {
                let old = rollup.key_of_parent(before);
                let bytes = |key: Option<kilim_bson::Value>| key.map(|key| Rollup::key_bytes(key.as_raw()));
                bytes(old) == bytes(key.clone())
            });
            let made = match (before, key) {
                (Some(before), _) if same_group => rollup.restored(before, after.as_raw()),
                (_, Some(_)) if self.defers => {
                    groups::defer_parent(unit, pattern, rollup, after.as_raw());
                    rollup.restored(RawDocument::empty(), after.as_raw())
                }
                (_, Some(key)) => {
                    let state = Group::new(pattern, rollup, key.as_raw()).state(unit, self)?;
                    let touched = &self.touched[at];
                    let after = touched.after.as_ref().map_or(RawDocument::empty(), Document::as_raw);
                    let made = rollup.merged(after, key.as_raw(), &state)?;
                    // A document that was made for a group that is gone.
                    let left_over = touched.refreshed_by == Some(pattern.id)
                        && state.rows == 0
                        && self.groups.distrusts(pattern.id);
                    if made.is_some() && left_over && pattern.inserts_parents() {
                        self.touched[at].after = None;
                        continue;
                    }
                    made
                }
                (_, None) => rollup.restored(RawDocument::empty(), after.as_raw()),
            };
            if let Some(made) = made {
                if same_group || brought {
                    note_replaced(pattern)?;
                }
                self.touched[at].after = Some(made);
            }
        }
        Ok(())
    }

    /// Touches a record: its place, with its newest version, held to be written. None where it is gone.
    pub(super) fn touch(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        collection: &Arc<Collection>,
        record: RecordId,
    ) -> Result<Option<usize>> {
        if let Some(at) = self.place_of(collection, record) {
            return Ok(Some(at));
        }
        let Some(document) = read_newest(unit, collection, record, Use::Write)? else { return Ok(None) };
        Ok(Some(self.touch_newest(pattern, Newest { collection: collection.clone(), record, document })))
    }

    /// The same for a document that was found, held to be written.
    pub(super) fn touch_newest(&mut self, pattern: &Arc<Pattern>, newest: Newest) -> usize {
        if let Some(at) = self.place_of(&newest.collection, newest.record) {
            return at;
        }
        self.add(Touched {
            collection: newest.collection,
            record: Some(newest.record),
            before: Some(newest.document.clone()),
            after: Some(newest.document),
            by: Some(pattern.clone()),
            refreshed_by: None,
        })
    }

    /// A user's document that only maintained fields make too large is written without them: its write was possible
    /// before.
    fn keep_within_bounds(&mut self, unit: &mut Unit<'_>, given: Option<RawDocument<'_>>) {
        let touched = &mut self.touched[0];
        let (Some(shaped), Some(given)) = (&touched.after, given) else { return };
        if !too_large(shaped) || given.as_bytes().len() > limits::DOCUMENT_BYTES_MAX {
            return;
        }
        let mut bare = given.to_document();
        for pattern in self.patterns.iter().filter(|one| one.is_maintained()) {
            if pattern.target == touched.collection.namespace {
                bare = without_fields(pattern, bare.as_raw()).ok().flatten().unwrap_or(bare);
                pattern.note_kept(unit);
            }
        }
        touched.after = Some(bare);
    }

    /// The patterns were taken when the first collection was entered, and others were entered since. Now that all are
    /// held, nobody puts a pattern that concerns them in force or out of it; before, somebody may have.
    pub(crate) fn check_in_force(&self, unit: &Unit<'_>) -> Result<()> {
        let Some(first) = self.touched.first() else { return Ok(()) };
        let registry = unit.engine.patterns();
        let now = registry.of(&first.collection.namespace.database);
        if std::ptr::eq(now, &*self.patterns) {
            return Ok(());
        }
        let mut places: Vec<&Namespace> = Vec::new();
        for touched in &self.touched {
            if places.last() != Some(&&touched.collection.namespace) {
                places.push(&touched.collection.namespace);
            }
        }
        let ids = |patterns: &[Arc<Pattern>]| -> Vec<PatternId> {
            let concerned = |pattern: &&Arc<Pattern>| places.iter().any(|place| pattern.concerns(place));
            patterns.iter().filter(concerned).map(|pattern| pattern.id).collect()
        };
        match ids(now) == ids(&self.patterns) {
            true => Ok(()),
            false => Err(Error::Conflict("a pattern was put in force or out of it meanwhile")),
        }
    }

    /// How many documents are touched.
    pub(crate) fn len(&self) -> usize {
        self.touched.len()
    }

    /// Makes a touched document ready to be stored; false where it stays as it is.
    pub(crate) fn prepare(&mut self, unit: &mut Unit<'_>, at: usize) -> bool {
        let touched = &mut self.touched[at];
        if let Some(pattern) = &touched.by {
            if unchanged(touched.before.as_ref(), touched.after.as_ref()) {
                return false;
            }
            if touched.before.is_some() && touched.after.as_ref().is_some_and(too_large) {
                // It keeps what it has, and verification tells.
                pattern.note_kept(unit);
                return false;
            }
            if let (Some(path), Some(after)) = (&pattern.declaration.options.touch, &touched.after) {
                let now = RawValue::DateTime(unit.engine.now_millis());
                touched.after = Some(with_value(after.as_raw(), path.as_str(), Some(now)));
            }
        }
        let id = touched.collection.id;
        if self.written.as_ref().is_none_or(|(known, _)| *known != id) && touched.before.is_some() {
            self.written = Some((id, paths_written(&self.patterns, &touched.collection.namespace)));
        }
        touched.before.is_some() || touched.after.is_some()
    }

    /// The change of a touched document; `cause` is that of the change that was evaluated.
    pub(crate) fn change<'w>(&'w self, at: usize, cause: Cause<'w>) -> Change<'w> {
        let touched = &self.touched[at];
        let before = touched.before.as_ref().map(|seen| {
            let stored = self.stored.as_ref().filter(|_| at == 0).unwrap_or(seen);
            Before { stored: stored.as_raw(), seen: seen.as_raw() }
        });
        Change {
            collection: &touched.collection,
            row: touched.record.map(RowId::from),
            before,
            after: touched.after.as_ref().map(Document::as_raw),
            cause: touched.by.as_deref().map_or(cause, Cause::Pattern),
        }
    }

    /// Whether an index needs no look for a touched document: neither the user nor a pattern changed what it is over.
    pub(crate) fn passes_by(&self, at: usize, index: &Index, untouched: &dyn Fn(&Index) -> bool) -> bool {
        let paths = self.written.iter().flat_map(|(_, paths)| paths);
        let meets = |path: &str| paths.clone().any(|own| overlap(own, path));
        (self.touched[at].by.is_some() || untouched(index))
            && index.spec.partial.is_none()
            && !index.spec.depends_on(|path| meets(path.as_str()))
    }

    /// Takes note of the row that a touched document is stored in.
    pub(crate) fn note_stored(&mut self, at: usize, row: RowId) {
        self.touched[at].record = Some(row.record);
    }

    /// Writes what goes with the documents: the states of groups, and what is left to jobs.
    pub(crate) fn conclude(&mut self, unit: &mut Unit<'_>) {
        self.groups.write(unit, &self.touched);
        self.leaving.write(unit);
    }

    /// The document of the change as it was stored, where patterns shaped it.
    pub(crate) fn into_shaped(mut self, change: &Change<'_>) -> Option<Document> {
        let shaped = self.touched.swap_remove(0).after?;
        change.after.is_some_and(|after| after.as_bytes() != shaped.as_bytes()).then_some(shaped)
    }
}

/// The source with this key as the change leaves it, where the change touches it: what is stored is of the past. Patterns
/// that keep what is copied from it have run.
fn touched_source(
    touched: &[Touched],
    source: &Namespace,
    reference: &Reference,
    key: RawValue<'_>,
) -> Option<Option<Document>> {
    let own = || touched.iter().filter(|one| one.collection.namespace == *source);
    let has_key = |document: &&Document| {
        reference.key_of(document.as_raw()).is_some_and(|own| compare(own, key).is_eq())
    };
    if let Some(after) = own().filter_map(|one| one.after.as_ref()).find(has_key) {
        return Some(Some(after.clone()));
    }
    own().filter_map(|one| one.before.as_ref()).any(|before| has_key(&before)).then_some(None)
}

/// A user's value gave way, unless the pattern does not allow users to try.
fn note_replaced(pattern: &Pattern) -> Result<()> {
    if pattern.declaration.options.on_user_write == OnUserWrite::Reject {
        let path = pattern.declaration.maintained_paths().swap_remove(0);
        return Err(read_only(pattern, &path));
    }
    pattern.counters.user_writes_replaced.add(1);
    Ok(())
}

fn unchanged(before: Option<&Document>, after: Option<&Document>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => before.as_bytes() == after.as_bytes(),
        (None, None) => true,
        _ => false,
    }
}

fn too_large(document: &Document) -> bool {
    document.as_bytes().len() > limits::DOCUMENT_BYTES_MAX
}

/// The paths of a collection that maintenance may write: what patterns maintain, and the dates that they set.
fn paths_written(patterns: &[Arc<Pattern>], namespace: &Namespace) -> Vec<Box<str>> {
    let mut paths = Vec::new();
    for pattern in patterns.iter().filter(|pattern| pattern.target == *namespace) {
        paths.extend(pattern.declaration.maintained_paths());
        paths.extend(pattern.declaration.options.touch.iter().map(|path| path.as_str().into()));
    }
    paths
}
