//! One change carried through all patterns that it concerns: the write path's interpreter of effects.
//!
//! A [`Work`] holds the documents that a change touches, each before and after. Patterns are evaluated over them in the
//! order of their graph, and their effects change what is touched or touch more. The door stores each of them once.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::OnUserWrite;
use kilim_patterns::{Cause, Change, Effect, Place, overlap, with_value};

use super::group::Group;
use super::group::Groups;
use super::groups;
use super::groups::DeferredDeltas;
use super::groups::Deltas;
use super::holders;
use super::pending::Leaving;
use super::reader::HoldingReader;
use super::sources::Newest;
use super::sources::Use;
use super::sources::read_newest;
use super::user_paths::read_only;
use crate::catalog::{Collection, CollectionId, RecordId};
use crate::change::{self, Before};
use crate::ids::PatternId;
use crate::index::Index;
use crate::limits;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, about};
use crate::records::RowId;
use crate::unit::Unit;

/// A document that the change touches, or another because of it.
pub(crate) struct Touched {
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
pub(crate) enum Side {
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

    /// Why it changes, to a pattern.
    fn cause_for(&self, pattern: &Pattern) -> Cause {
        match (&self.by, self.refreshed_by) {
            (_, Some(refreshed_by)) if refreshed_by == pattern.id => Cause::Refresh,
            (None, None) => Cause::User,
            _ => Cause::Pattern,
        }
    }
}

/// A change and what its patterns make of it: the documents to be stored.
pub(crate) struct Work {
    patterns: Arc<[Arc<Pattern>]>,
    pub(crate) touched: Vec<Touched>,
    /// Where touched records stand.
    by_record: HashMap<(CollectionId, RecordId), usize>,
    pub(crate) groups: Groups,
    /// What it leaves to jobs.
    pub(crate) leaving: Leaving,
    /// The user's document as it is stored, where he saw another because its pattern is behind.
    stored: Option<Document>,
    /// Groups are changed at the commit, not now.
    defers: bool,
    /// The paths that maintenance may write in the collection that was stored last; fan-outs stay in one.
    written: Option<(CollectionId, Vec<Box<str>>)>,
    /// What the statements of the transaction that commits left for its groups, and has not come to them yet.
    pub(crate) deferred: DeferredDeltas,
}

/// What is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// What is not there yet; groups' states that are there are trusted.
    Missing,
    /// Everything.
    All,
}

/// How the answer of an evaluation is stored: by the door, which stands above.
pub(crate) type Store<'s> = &'s dyn Fn(&mut Unit<'_>, &mut Work) -> Result<()>;

/// What the patterns of its database make of a change. Nothing is written: the door stores the answer.
pub(crate) fn evaluate(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    change: &change::Change<'_>,
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
pub(crate) fn refresh_document(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
    store: Store<'_>,
) -> Result<()> {
    let mut work = Work::new(patterns);
    work.groups.distrust(pattern.id, refresh == Refresh::All);
    let Some(at) = work.touch(unit, pattern, collection, record)? else { return Ok(()) };
    work.touched[at].refreshed_by = Some(pattern.id);
    work.finish(unit, store)
}

/// Makes the groups of a child anew, and their parents.
pub(crate) fn refresh_groups(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
    store: Store<'_>,
) -> Result<()> {
    let mut work = Work::new(patterns);
    work.groups.distrust(pattern.id, refresh == Refresh::All);
    let Some(child) = read_newest(unit, collection, record, Use::Copy)? else { return Ok(()) };
    groups::show_all(unit, &mut work, pattern, child.as_raw())?;
    work.finish(unit, store)
}

/// Changes the groups that a transaction's statements left for its commit.
pub(crate) fn carry_deferred(unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
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
        work.finish(unit, store)?;
    }
    Ok(())
}

impl Work {
    pub(crate) fn new(patterns: Arc<[Arc<Pattern>]>) -> Work {
        Work {
            patterns,
            touched: Vec::new(),
            by_record: HashMap::new(),
            groups: Groups::default(),
            leaving: Leaving::default(),
            stored: None,
            defers: false,
            written: None,
            deferred: DeferredDeltas::default(),
        }
    }

    /// Carries what was touched through the patterns, and has everything stored.
    pub(crate) fn finish(&mut self, unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
        self.run(unit)?;
        store(unit, self)
    }

    /// Takes up a document that was not touched yet; its place.
    pub(crate) fn add(&mut self, touched: Touched) -> usize {
        let at = self.touched.len();
        if let Some(record) = touched.record {
            self.by_record.insert((touched.collection.id, record), at);
        }
        self.touched.push(touched);
        at
    }

    /// The place of a record, if it is touched.
    pub(crate) fn place_of(&self, collection: &Collection, record: RecordId) -> Option<usize> {
        self.by_record.get(&(collection.id, record)).copied()
    }

    pub(crate) fn patterns(&self) -> &Arc<[Arc<Pattern>]> {
        &self.patterns
    }

    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Evaluates the patterns in the order of their graph over what is touched, and applies their effects to what is
    /// touched: nothing is written yet.
    fn run(&mut self, unit: &mut Unit<'_>) -> Result<()> {
        let patterns = self.patterns.clone();
        let mut effects = Vec::new();
        for pattern in patterns.iter().filter(|pattern| pattern.is_maintained()) {
            unit.operation.check()?;
            // What the transaction's statements left comes together with what its commit does to the same children: a
            // group is changed once, whether its state is stored or read.
            let mut deltas = self.take_deferred(pattern.id);
            for at in self.places(&pattern.target) {
                self.evaluate(unit, pattern, at, Place::Target, &mut effects)?;
                self.apply_all(unit, pattern, at, &mut effects, &mut deltas)?;
            }
            if let Some(source) = &pattern.source {
                // Effects may touch further documents of a collection that refers to itself.
                let mut at = 0;
                while at < self.touched.len() {
                    if self.touched[at].collection.namespace == *source {
                        self.evaluate(unit, pattern, at, Place::Source, &mut effects)?;
                        self.apply_all(unit, pattern, at, &mut effects, &mut deltas)?;
                    }
                    at += 1;
                }
            }
            if !deltas.is_empty() {
                groups::change(unit, self, pattern, deltas)?;
            }
        }
        Ok(())
    }

    /// What a touched document means for a pattern.
    fn evaluate(
        &self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        place: Place,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        let touched = &self.touched[at];
        let (before, after) = (touched.on(Side::Before), touched.on(Side::After));
        let change = Change { place, before, after, cause: touched.cause_for(pattern) };
        let mut reader = HoldingReader { unit, pattern, touched: &self.touched };
        pattern.kind().evaluate(&change, &mut reader, effects)
    }

    fn apply_all(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        effects: &mut Vec<Effect>,
        deltas: &mut Deltas,
    ) -> Result<()> {
        effects.drain(..).try_for_each(|effect| self.apply(unit, pattern, at, effect, deltas))
    }

    /// Applies one effect of a touched document. Rows wait until all of them are known, so that each group is changed
    /// once.
    fn apply(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        effect: Effect,
        deltas: &mut Deltas,
    ) -> Result<()> {
        match effect {
            Effect::Becomes { document, replaced } => self.shape(pattern, at, document, replaced),
            Effect::ShowsGroup { key, replaced } => self.show_group(unit, pattern, at, &key, replaced),
            Effect::Rows { out, into, newest } => {
                groups::collect(deltas, out, into, newest, unit.commits);
                Ok(())
            }
            Effect::Holders { key, due, is_new } => holders::spread(unit, self, pattern, key, due, is_new),
            Effect::Restrict { key } => holders::refuse_if_held(unit, self, pattern, &key),
            Effect::Refuse(error) => {
                let path = pattern.kind().key_path();
                Err(about(error, &pattern.target, &pattern.declaration.name, path))
            }
        }
    }

    /// A touched document becomes another.
    fn shape(&mut self, pattern: &Pattern, at: usize, document: Document, replaced: bool) -> Result<()> {
        if replaced {
            note_replaced(pattern)?;
        }
        self.touched[at].after = Some(document);
        Ok(())
    }

    /// A touched document shows a group: now, or when the transaction commits.
    fn show_group(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        key: &Value,
        replaced: bool,
    ) -> Result<()> {
        let rollup = pattern.rollup()?;
        let made = match self.defers {
            true => {
                groups::defer_parent(unit, pattern, key);
                let after = self.touched[at].on(Side::After);
                after.and_then(|after| rollup.restored(RawDocument::empty(), after))
            }
            false => {
                let state = Group::new(pattern, rollup, key.as_raw()).state(unit, self)?;
                let touched = &self.touched[at];
                let Some(after) = touched.on(Side::After) else { return Ok(()) };
                let made = rollup.merged(after, key.as_raw(), &state)?;
                // A document that was made for a group that is gone.
                let left_over = touched.refreshed_by == Some(pattern.id)
                    && state.rows == 0
                    && self.groups.distrusts(pattern.id);
                if made.is_some() && left_over && rollup.inserts_parents() {
                    self.touched[at].after = None;
                    return Ok(());
                }
                made
            }
        };
        match made {
            Some(made) => self.shape(pattern, at, made, replaced),
            None => Ok(()),
        }
    }

    /// The touched documents of a collection, by their places.
    pub(crate) fn places(&self, namespace: &Namespace) -> Vec<usize> {
        let of = |at: &usize| self.touched[*at].collection.namespace == *namespace;
        (0..self.touched.len()).filter(of).collect()
    }

    /// Touches a record: its place, with its newest version, held to be written. None where it is gone.
    pub(crate) fn touch(
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
    pub(crate) fn touch_newest(&mut self, pattern: &Arc<Pattern>, newest: Newest) -> usize {
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
                bare = pattern.kind().stripped(bare.as_raw()).ok().flatten().unwrap_or(bare);
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
    pub(crate) fn change<'w>(&'w self, at: usize, cause: change::Cause<'w>) -> change::Change<'w> {
        let touched = &self.touched[at];
        let before = touched.before.as_ref().map(|seen| {
            let stored = self.stored.as_ref().filter(|_| at == 0).unwrap_or(seen);
            Before { stored: stored.as_raw(), seen: seen.as_raw() }
        });
        change::Change {
            collection: &touched.collection,
            row: touched.record.map(RowId::from),
            before,
            after: touched.after.as_ref().map(Document::as_raw),
            cause: touched.by.as_deref().map_or(cause, change::Cause::Pattern),
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
    pub(crate) fn into_shaped(mut self, change: &change::Change<'_>) -> Option<Document> {
        let shaped = self.touched.swap_remove(0).after?;
        change.after.is_some_and(|after| after.as_bytes() != shaped.as_bytes()).then_some(shaped)
    }
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
