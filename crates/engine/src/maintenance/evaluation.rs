//! The evaluation of a change by the patterns of its database: the write path's interpreter of effects.
//!
//! An [`Evaluation`] holds the documents that a change touches, each as it is before and after. The patterns are evaluated
//! over these documents in the order of their graph. An effect changes a touched document, or touches a further one. At the
//! end the door stores each touched document once.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::OnUserWrite;
use kilim_patterns::{Cause, Change, Effect, Role, Step, overlap, with_value};

use super::group::Group;
use super::group::Groups;
use super::groups;
use super::groups::DeferredDeltas;
use super::groups::Deltas;
use super::holders;
use super::pending::NewPending;
use super::reader::HoldingReader;
use super::sources::Newest;
use super::sources::Use;
use super::sources::read_newest;
use super::trees::{self, Notes, Planted};
use super::user_paths::read_only;
use crate::catalog::{Collection, CollectionId, RecordId};
use crate::change::{self, Before};
use crate::ids::PatternId;
use crate::index::Index;
use crate::limits;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, about};
use crate::records::RowId;
use crate::session::Deferred;
use crate::unit::Unit;

/// A document that is written: the one that was changed, or another that a pattern changes because of it.
pub(crate) struct Touched {
    pub collection: Arc<Collection>,
    /// None for a new document, until it is stored.
    pub record: Option<RecordId>,
    pub before: Option<Document>,
    /// None if it is deleted.
    pub after: Option<Document>,
    /// The pattern that touched it first. None for the document that the statement itself changes.
    pub by: Option<Arc<Pattern>>,
    /// The patterns that have written it, in the order of their graph. None for the document that the statement itself changes.
    pub writers: Vec<Arc<Pattern>>,
    /// A pattern that computes its fields again from scratch.
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

    /// Whether the field that a path leads into has the same bytes before and after.
    fn keeps_field(&self, path: &str) -> bool {
        let name = first_name(path);
        match (self.on(Side::Before), self.on(Side::After)) {
            (Some(before), Some(after)) => element(before, name) == element(after, name),
            _ => false,
        }
    }

    /// The fields whose bytes differ. None where the images do not have the same fields in the same order.
    fn changed_fields(&self) -> Option<Vec<Box<str>>> {
        let (mut before, mut after) = (self.on(Side::Before)?.iter(), self.on(Side::After)?.iter());
        let mut changed = Vec::new();
        loop {
            match (before.next_with_bytes(), after.next_with_bytes()) {
                (None, None) => return Some(changed),
                (Some((name, _, old)), Some((same, _, new))) if name == same => {
                    if old != new {
                        changed.push(name.into());
                    }
                }
                _ => return None,
            }
        }
    }

    /// Why it changes, as this pattern is told.
    fn cause_for(&self, pattern: &Pattern) -> Cause {
        match (&self.by, self.refreshed_by) {
            (_, Some(refreshed_by)) if refreshed_by == pattern.id => Cause::Refresh,
            (None, None) => Cause::User,
            _ => Cause::Pattern,
        }
    }
}

/// What the patterns make of a change: the documents that are to be stored, and what is stored with them.
pub(crate) struct Evaluation {
    patterns: Arc<[Arc<Pattern>]>,
    pub(crate) touched: Vec<Touched>,
    /// The index in `touched` of each record.
    by_record: HashMap<(CollectionId, RecordId), usize, RandomState>,
    pub(crate) groups: Groups,
    /// What is pending because of this change. A job writes it.
    pub(crate) new_pending: NewPending,
    /// The stored version of the changed document, if the user saw another version because something is pending for it.
    stored: Option<Document>,
    /// A statement of a transaction: groups are changed at the commit, not now.
    defers: bool,
    /// The pattern that makes fields anew had filled them before it was paused.
    resumes: bool,
    /// The paths that maintenance may write in the collection of the document that was stored last. The documents of a
    /// fan-out follow each other in one collection, so the paths are computed once for them.
    written: Option<(CollectionId, Vec<Box<str>>)>,
    /// The fields that a pattern changes in the document that was made ready last, where both images have the same fields
    /// in the same order: a count that grew by one, most often.
    changed: Option<Vec<Box<str>>>,
    /// At a transaction's commit: the rows that its statements deferred, for the groups that are not changed yet.
    pub(crate) deferred: DeferredDeltas,
    /// At a transaction's commit: the steps that its statements deferred, in their order.
    deferred_steps: Vec<(PatternId, Step)>,
    /// What is noted of trees, written with the documents.
    notes: Vec<(PatternId, Notes)>,
}

/// The effects of a pattern that are applied once all of them are known.
struct Collected {
    deltas: Deltas,
    steps: Vec<Planted>,
}

/// Which stored states of groups a refresh believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// It believes the states that are stored, and computes those that are missing.
    Missing,
    /// It believes none, and computes all of them again.
    All,
    /// Like `Missing`, after a pause, for a document that was filled before it.
    Resumed,
}

/// Stores an evaluation. The door does this; it is handed in because its module is a layer above this one.
pub(crate) type Store<'s> = &'s dyn Fn(&mut Unit<'_>, &mut Evaluation) -> Result<()>;

/// Evaluates a change by the patterns of its database. Nothing is written: the door stores the evaluation.
pub(crate) fn evaluate(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    change: &change::Change<'_>,
) -> Result<Evaluation> {
    let mut evaluation = Evaluation {
        defers: unit.is_transaction(),
        stored: change.before.and_then(Before::stored_apart),
        ..Evaluation::new(patterns)
    };
    evaluation.add(Touched {
        collection: change.collection.clone(),
        record: change.row.map(|row| row.record),
        before: change.before.map(|before| before.seen.to_document()),
        after: change.after.map(RawDocument::to_document),
        by: None,
        writers: Vec::new(),
        refreshed_by: None,
    });
    // Before anything else is held. So the writers of one group wait for it in line, instead of ending each other's
    // attempts by conflicts.
    if change.row.is_none() && !evaluation.defers {
        groups::hold_ahead(unit, &evaluation)?;
        trees::hold_ahead(unit, &evaluation)?;
    }
    evaluation.run(unit)?;
    evaluation.keep_within_bounds(unit, change.after);
    Ok(evaluation)
}

/// Computes the fields that one pattern maintains in a document, and has the document stored if they differ.
pub(crate) fn refresh_document(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
    store: Store<'_>,
) -> Result<()> {
    let mut evaluation = Evaluation::new(patterns);
    evaluation.groups.distrust(pattern.id, refresh == Refresh::All);
    evaluation.resumes = refresh == Refresh::Resumed;
    let Some(at) = evaluation.touch(unit, pattern, collection, record)? else { return Ok(()) };
    evaluation.touched[at].refreshed_by = Some(pattern.id);
    evaluation.finish(unit, store)
}

/// Makes sure that the groups of a child have states, and that their parents show them.
pub(crate) fn refresh_groups(
    unit: &mut Unit<'_>,
    patterns: Arc<[Arc<Pattern>]>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    refresh: Refresh,
    store: Store<'_>,
) -> Result<()> {
    let mut evaluation = Evaluation::new(patterns);
    evaluation.groups.distrust(pattern.id, refresh == Refresh::All);
    let Some(child) = read_newest(unit, collection, record, Use::Copy)? else { return Ok(()) };
    groups::show_all(unit, &mut evaluation, pattern, child.as_raw())?;
    evaluation.finish(unit, store)
}

/// Changes the groups for which a transaction's statements deferred rows to its commit.
pub(crate) fn carry_deferred(unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
    let deferred = unit.take_deferred();
    if deferred.is_empty() {
        return Ok(());
    }
    unit.begin_commit();
    let registry = unit.engine.patterns();
    let mut databases: Vec<String> = deferred.iter().map(|one| one.database.clone()).collect();
    databases.sort_unstable();
    databases.dedup();
    for database in databases {
        let patterns: Arc<[Arc<Pattern>]> = registry.of(&database).to_vec().into();
        let mut evaluation = Evaluation::new(patterns);
        let own = deferred.iter().filter(|one| one.database == database);
        evaluation.deferred = groups::merge(own.clone());
        let step_of = |one: &Deferred| Some((one.pattern, one.step.as_deref()?.clone()));
        evaluation.deferred_steps = own.filter_map(step_of).collect();
        evaluation.finish(unit, store)?;
    }
    Ok(())
}

impl Evaluation {
    pub(crate) fn new(patterns: Arc<[Arc<Pattern>]>) -> Evaluation {
        Evaluation {
            patterns,
            touched: Vec::new(),
            by_record: HashMap::default(),
            groups: Groups::default(),
            new_pending: NewPending::default(),
            stored: None,
            defers: false,
            resumes: false,
            written: None,
            changed: None,
            deferred: DeferredDeltas::default(),
            deferred_steps: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Evaluates the patterns over what is touched so far, and has everything stored.
    pub(crate) fn finish(&mut self, unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
        self.run(unit)?;
        store(unit, self)
    }

    /// Adds a document that was not touched yet. Gives its index in `touched`.
    pub(crate) fn add(&mut self, touched: Touched) -> usize {
        let at = self.touched.len();
        if let Some(record) = touched.record {
            self.by_record.insert((touched.collection.id, record), at);
        }
        self.touched.push(touched);
        at
    }

    /// The index of a record in `touched`, if it is touched.
    pub(crate) fn place_of(&self, collection: &Collection, record: RecordId) -> Option<usize> {
        self.by_record.get(&(collection.id, record)).copied()
    }

    pub(crate) fn patterns(&self) -> &Arc<[Arc<Pattern>]> {
        &self.patterns
    }

    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Evaluates the patterns in the order of their graph over what is touched, and applies their effects to `touched`.
    /// Nothing is written yet.
    fn run(&mut self, unit: &mut Unit<'_>) -> Result<()> {
        let patterns = self.patterns.clone();
        let mut effects = Vec::new();
        for pattern in patterns.iter().filter(|pattern| pattern.is_maintained()) {
            unit.operation.check()?;
            // The rows that the transaction's statements deferred are merged with what the commit itself does to the same
            // children. So a group is changed once, whether its state is stored or has to be read from its children.
            let mut collected =
                Collected { deltas: self.take_deferred(pattern.id), steps: self.take_steps(pattern.id) };
            for at in self.places(&pattern.target) {
                self.evaluate(unit, pattern, at, Role::Target, &mut effects)?;
                self.apply_all(unit, pattern, at, &mut effects, &mut collected)?;
            }
            if let Some(source) = &pattern.source {
                // In a collection that refers to itself, effects may append further sources while this runs.
                let mut at = 0;
                while at < self.touched.len() {
                    if self.touched[at].collection.namespace == *source {
                        self.evaluate(unit, pattern, at, Role::Source, &mut effects)?;
                        self.apply_all(unit, pattern, at, &mut effects, &mut collected)?;
                    }
                    at += 1;
                }
            }
            if !collected.deltas.is_empty() {
                groups::change(unit, self, pattern, collected.deltas)?;
            }
            if !collected.steps.is_empty() {
                trees::replant(unit, self, pattern, collected.steps)?;
            }
        }
        Ok(())
    }

    /// Asks a pattern what the change of a touched document means, in one role of its collection.
    fn evaluate(
        &self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        role: Role,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        let touched = &self.touched[at];
        let (before, after) = (touched.on(Side::Before), touched.on(Side::After));
        let is_placed =
            touched.by.is_none() && unit.position.as_ref().is_some_and(|(id, _)| *id == pattern.id);
        let cause = match touched.cause_for(pattern) {
            Cause::Refresh if self.resumes => Cause::Resume,
            cause => cause,
        };
        let change = Change { role, before, after, cause, is_placed };
        let mut reader = HoldingReader { unit, pattern, touched: &self.touched };
        pattern.kind().evaluate(&change, &mut reader, effects)
    }

    fn apply_all(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        effects: &mut Vec<Effect>,
        collected: &mut Collected,
    ) -> Result<()> {
        effects.drain(..).try_for_each(|effect| self.apply(unit, pattern, at, effect, collected))
    }

    /// Applies one effect of a touched document. Rows are only collected here: each group is changed once, when the rows of
    /// all touched documents are known. Steps of trees are collected for the same reason.
    fn apply(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        at: usize,
        effect: Effect,
        collected: &mut Collected,
    ) -> Result<()> {
        match effect {
            Effect::Becomes { document, replaced } => self.shape(pattern, at, document, replaced),
            Effect::ShowsGroup { key, replaced } => self.show_group(unit, pattern, at, &key, replaced),
            Effect::Rows { out, into, newest } => {
                groups::collect(&mut collected.deltas, out, into, newest, unit.is_committing());
                Ok(())
            }
            Effect::Replants(step) => {
                collected.steps.push(Planted { at: Some(at), step: *step });
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

    /// A touched document gets another after-image. `replaced`: a value that the user wrote was overwritten.
    fn shape(&mut self, pattern: &Arc<Pattern>, at: usize, document: Document, replaced: bool) -> Result<()> {
        if replaced {
            note_replaced(pattern)?;
        }
        self.write(pattern, at, Some(document));
        Ok(())
    }

    /// Gives a touched document the after-image that a pattern makes of it; without one it is deleted.
    pub(crate) fn write(&mut self, pattern: &Arc<Pattern>, at: usize, after: Option<Document>) {
        let touched = &mut self.touched[at];
        let is_noted = touched.writers.iter().any(|writer| writer.id == pattern.id);
        if touched.by.is_some() && !is_noted && !unchanged(touched.after.as_ref(), after.as_ref()) {
            let place = |id: PatternId| self.patterns.iter().position(|pattern| pattern.id == id);
            let own = place(pattern.id);
            let before = touched.writers.partition_point(|writer| place(writer.id) < own);
            touched.writers.insert(before, pattern.clone());
        }
        touched.after = after;
    }

    /// A touched document is the parent of a group and shows its fields: now, or when the transaction commits.
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
                // The document was made for a group that has no rows any more.
                let left_over = touched.refreshed_by == Some(pattern.id)
                    && state.rows == 0
                    && self.groups.distrusts(pattern.id);
                if left_over && rollup.inserts_parents() {
                    self.write(pattern, at, None);
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

    /// The indexes in `touched` of the documents of a collection.
    pub(crate) fn places(&self, namespace: &Namespace) -> Vec<usize> {
        let of = |at: &usize| self.touched[*at].collection.namespace == *namespace;
        (0..self.touched.len()).filter(of).collect()
    }

    /// Touches a record: holds it to be written and reads its newest version. Gives its index in `touched`, or none if it is
    /// gone.
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

    /// Touches a document that was found already and is held to be written.
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
            writers: Vec::new(),
            refreshed_by: None,
        })
    }

    /// If only the maintained fields make the user's document too large, it is written without them: without the pattern the
    /// write would have succeeded.
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

    /// Ends the attempt if the patterns are not those that were evaluated. They were taken when the first collection was
    /// entered. Until the others were entered too, a pattern that concerns those could be declared or dropped. From
    /// now on all are held, and none can.
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

    /// Takes the steps that the transaction's statements deferred for a tree.
    fn take_steps(&mut self, pattern: PatternId) -> Vec<Planted> {
        let is_own = |(id, _): &mut (PatternId, Step)| *id == pattern;
        let own = self.deferred_steps.extract_if(.., is_own);
        own.map(|(_, step)| Planted { at: None, step }).collect()
    }

    /// Notes something of a tree, with the documents.
    pub(crate) fn note(&mut self, pattern: PatternId, notes: Notes) {
        self.notes.push((pattern, notes));
    }

    /// How many documents are touched.
    pub(crate) fn len(&self) -> usize {
        self.touched.len()
    }

    /// Makes a touched document ready to be stored. False if nothing is to be stored.
    pub(crate) fn prepare(&mut self, unit: &mut Unit<'_>, at: usize) -> bool {
        let touched = &mut self.touched[at];
        if let Some(pattern) = &touched.by {
            if unchanged(touched.before.as_ref(), touched.after.as_ref()) {
                return false;
            }
            if touched.before.is_some() && touched.after.as_ref().is_some_and(too_large) {
                // It keeps its old fields. The pattern becomes suspect, and verification shows the document.
                pattern.note_kept(unit);
                return false;
            }
            if let (Some(path), Some(after)) = (&pattern.declaration.options.touch, &touched.after) {
                let now = RawValue::DateTime(unit.engine.now_millis());
                touched.after = Some(with_value(after.as_raw(), path.as_str(), Some(now)));
            }
        }
        self.changed = touched.by.as_ref().and_then(|_| touched.changed_fields());
        let id = touched.collection.id;
        if self.written.as_ref().is_none_or(|(known, _)| *known != id) && touched.before.is_some() {
            self.written = Some((id, paths_written(&self.patterns, &touched.collection.namespace)));
        }
        touched.before.is_some() || touched.after.is_some()
    }

    /// The change of a touched document, for the door. `cause` is the cause of the change that was evaluated.
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
            cause: match touched.by {
                Some(_) => change::Cause::Pattern(&touched.writers),
                None => cause,
            },
            form: change::Form::Difference,
            array: change::ArrayForm::Inline,
            remaining: None,
            elements: None,
        }
    }

    /// Whether the keys of an index stay the same for a touched document: neither the user nor a pattern changed a path that
    /// the index depends on.
    pub(crate) fn passes_by(&self, at: usize, index: &Index, untouched: &dyn Fn(&Index) -> bool) -> bool {
        let touched = &self.touched[at];
        if let Some(changed) = &self.changed {
            let is_changed = |path: &str| changed.iter().any(|name| **name == *first_name(path));
            return index.spec.partial.is_none() && !index.spec.depends_on(|path| is_changed(path.as_str()));
        }
        let paths = self.written.iter().flat_map(|(_, paths)| paths);
        // A node of a tree that counts one more keeps its path: comparing two fields costs less than making their keys.
        let is_same = |path: &str| touched.by.is_some() && touched.keeps_field(path);
        let meets = |path: &str| paths.clone().any(|own| overlap(own, path)) && !is_same(path);
        (touched.by.is_some() || untouched(index))
            && index.spec.partial.is_none()
            && !index.spec.depends_on(|path| meets(path.as_str()))
    }

    /// Notes the row that a touched document was stored in.
    pub(crate) fn note_stored(&mut self, at: usize, row: RowId) {
        self.touched[at].record = Some(row.record);
    }

    /// Writes what goes with the documents: the states of groups, and records of what is pending.
    pub(crate) fn conclude(&mut self, unit: &mut Unit<'_>) {
        self.groups.write(unit, &self.touched);
        trees::write_notes(unit, std::mem::take(&mut self.notes));
        self.new_pending.write(unit);
    }

    /// The changed document as it was stored, if patterns changed it.
    pub(crate) fn into_shaped(mut self, change: &change::Change<'_>) -> Option<Document> {
        let shaped = self.touched.swap_remove(0).after?;
        change.after.is_some_and(|after| after.as_bytes() != shaped.as_bytes()).then_some(shaped)
    }
}

/// Counts that a user's value was overwritten, or refuses the write if the pattern is declared with `onUserWrite: "reject"`.
pub(super) fn note_replaced(pattern: &Pattern) -> Result<()> {
    if pattern.declaration.options.on_user_write == OnUserWrite::Reject {
        let path = pattern.declaration.maintained_paths().swap_remove(0);
        return Err(read_only(pattern, &path));
    }
    pattern.counters.user_writes_replaced.add(1);
    Ok(())
}

/// The field that a path leads into.
fn first_name(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The bytes of a document's element: its type, its name and its value.
fn element<'d>(document: RawDocument<'d>, name: &str) -> Option<&'d [u8]> {
    let mut elements = document.iter();
    while let Some((own, _, bytes)) = elements.next_with_bytes() {
        if own == name {
            return Some(bytes);
        }
    }
    None
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

/// The paths of a collection that maintenance may write: the maintained ones, and those that `touch` sets to the date.
fn paths_written(patterns: &[Arc<Pattern>], namespace: &Namespace) -> Vec<Box<str>> {
    let mut paths = Vec::new();
    for pattern in patterns.iter().filter(|pattern| pattern.target == *namespace) {
        paths.extend(pattern.kind().written_paths());
        paths.extend(pattern.declaration.options.touch.iter().map(|path| path.as_str().into()));
    }
    paths
}
