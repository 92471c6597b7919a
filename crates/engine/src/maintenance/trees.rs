//! Trees as a change comes to them: nodes that take other places, and what that writes.
//!
//! Whoever changes the shape of a tree holds the tree until his commit: alone, or with others where all that he does is
//! add a leaf which nobody counts. So two moves never pass each other, and a circle is seen by the second of them. What
//! users write into nodes otherwise takes no part in this.
//!
//! A transaction's statements leave their steps for its commit, which takes them one after the other on the newest state
//! of the tree.
//!
//! Where many nodes are below one that moves, a job writes them. Each of its pages shares the tree, so no node moves between
//! what it reads and its commit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use kilim_bson::{Document, RawDocument, RawValue, Value, compare};
use kilim_error::{Error, Result};
use kilim_patterns::{Copied, Due, Forest, LabelSide, Nodes, Position, Shift, Step, Tree, key_bytes};
use kilim_storage::{Snapshot, Space};

use super::evaluation::{Evaluation, Side, Store, note_replaced};
use super::look_at_trees::{Stored, TreeLook, shifts_in};
use super::pending::{Room, is_async, is_read_by_others, is_worked_on, room, wait_for_room};
use super::sources::{Use, find_unique};
use crate::catalog::{Collection, RecordId};
use crate::ids::PatternId;
use crate::layout::{self, group_lock};
use crate::limits;
use crate::patterns::{Pattern, PatternState, about};
use crate::records;
use crate::session::Deferred;
use crate::unit::pending::wait_until_written;
use crate::unit::{Unit, pending};

/// A step of a tree, and the place of its document among those that are touched. None where a transaction's statement
/// left it for the commit.
pub(crate) struct Planted {
    pub at: Option<usize>,
    pub step: Step,
}

/// What is to be noted of trees with a change.
pub(crate) type Notes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The documents of a tree as they are read and found.
pub(crate) trait Ground {
    fn tree(&self) -> &Tree;

    /// The document with this `_id`, and its record.
    fn find(&mut self, id: RawValue<'_>) -> Result<Option<Stored>>;

    /// Looks at all of them.
    fn look<T>(&mut self, look: impl FnOnce(&TreeLook<'_>) -> Result<T>) -> Result<T>;

    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    fn is_complete(&self) -> bool;

    /// Whether a job has yet to write nodes.
    fn is_behind(&self) -> bool;

    /// The labels that a job has yet to write.
    fn shifts(&mut self) -> Result<&[Shift]>;
}

/// A node that was read or written.
pub(crate) struct Plant {
    /// None where it is deleted, or not there yet.
    pub document: Option<Document>,
    record: Option<RecordId>,
    /// As it was read, where it was written since.
    pub original: Option<Option<Document>>,
}

/// A tree with what steps make of it, before anything is stored.
pub(crate) struct Grown<G> {
    ground: G,
    pub plants: HashMap<Vec<u8>, Plant, RandomState>,
    by_record: HashMap<RecordId, Vec<u8>, RandomState>,
    /// Nodes whose parents are not those by which the ground finds them, and those with labels of their own.
    changed: HashSet<Vec<u8>, RandomState>,
    pub notes: Notes,
    /// How many nodes below one that moves are written with it; none if all are.
    pub most: Option<usize>,
    /// Nodes below which all is left to a job, how many that are, and how far their labels moved.
    pub left: Vec<(Value, u64, Option<Shift>)>,
    /// The scopes whose labels are all written.
    settled: HashSet<Vec<u8>, RandomState>,
}

impl<G: Ground> Grown<G> {
    pub fn new(ground: G) -> Grown<G> {
        let (plants, by_record) = (HashMap::default(), HashMap::default());
        let (changed, notes, left, settled) =
            (HashSet::default(), Notes::new(), Vec::new(), HashSet::default());
        Grown { ground, plants, by_record, changed, notes, most: None, left, settled }
    }

    /// A document as it is before the steps that are to come.
    pub fn begin_with(
        &mut self,
        id: RawValue<'_>,
        document: Option<Document>,
        record: Option<RecordId>,
    ) -> Result<()> {
        let key = key_bytes(id);
        if self.plants.contains_key(&key) {
            return Ok(());
        }
        // Where readers are served what is stored, so is the writer; and a transaction saw it as it was when it began.
        let document = document.map(|document| seen(&mut self.ground, document)).transpose()?;
        self.changed.insert(key.clone());
        self.plant(key, document, record);
        Ok(())
    }

    fn plant(&mut self, key: Vec<u8>, document: Option<Document>, record: Option<RecordId>) {
        if let Some(record) = record {
            self.by_record.insert(record, key.clone());
        }
        self.plants.insert(key, Plant { document, record, original: None });
    }

    /// Takes up documents that were found, unless they are known.
    fn take_up(&mut self, found: Vec<Stored>) -> Vec<Document> {
        let mut known = Vec::with_capacity(found.len());
        for (record, document) in found {
            match self.by_record.get(&record).map(|key| (key, &self.plants[key])) {
                Some((key, _)) if self.changed.contains(key) => {}
                Some((_, plant)) => known.extend(plant.document.clone()),
                None => {
                    let key = key_bytes(document.get("_id").unwrap_or(RawValue::Null));
                    match self.plants.get(&key) {
                        Some(plant) => {
                            // A step begins with a transaction's own document as it was before.
                            if !self.changed.contains(&key) {
                                known.extend(plant.document.clone());
                            }
                            self.by_record.insert(record, key);
                        }
                        None => {
                            known.push(document.clone());
                            self.plant(key, Some(document), Some(record));
                        }
                    }
                }
            }
        }
        known
    }

    /// Documents that were found, and those that have become children of a node.
    fn with_changed(&mut self, found: Vec<Stored>, parent: RawValue<'_>) -> Vec<Document> {
        let mut children = self.take_up(found);
        let tree = self.ground.tree();
        let own = |document: &&Document| {
            let own = tree.parent_of(document.as_raw()).unwrap_or(RawValue::Null);
            compare(own, parent).is_eq()
        };
        children.extend(self.changed_documents().filter(own).cloned());
        children
    }

    /// The documents that are not what the ground has.
    fn changed_documents(&self) -> impl Iterator<Item = &Document> {
        self.changed.iter().filter_map(|key| self.plants[key].document.as_ref())
    }
}

/// A document with the labels that are seen.
fn seen(ground: &mut impl Ground, document: Document) -> Result<Document> {
    let tree = ground.tree();
    if tree.label_paths().is_none() {
        return Ok(document);
    }
    let shifts = ground.shifts()?.to_vec();
    Ok(ground.tree().shifted(document.as_raw(), &shifts).unwrap_or(document))
}

impl<G: Ground> Nodes for Grown<G> {
    fn node(&mut self, id: RawValue<'_>) -> Result<Option<Document>> {
        let key = key_bytes(id);
        if let Some(plant) = self.plants.get(&key) {
            return Ok(plant.document.clone());
        }
        let (record, document) = match self.ground.find(id)? {
            Some((record, document)) => (Some(record), Some(seen(&mut self.ground, document)?)),
            None => (None, None),
        };
        self.plant(key, document.clone(), record);
        Ok(document)
    }

    fn children(&mut self, id: RawValue<'_>) -> Result<Vec<Document>> {
        let found = self.ground.look(|look| look.children(id))?;
        Ok(self.with_changed(found, id))
    }

    fn children_at(&mut self, id: RawValue<'_>, order: i64) -> Result<Vec<Document>> {
        let found = self.ground.look(|look| look.children_at(id, order))?;
        Ok(self.with_changed(found, id))
    }

    fn visit_children(&mut self, id: RawValue<'_>, visit: &mut dyn FnMut(RawDocument<'_>)) -> Result<()> {
        for (record, document) in self.ground.look(|look| look.children(id))? {
            let known = match self.by_record.get(&record) {
                Some(key) => self.changed.contains(key),
                None => self.changed.contains(&key_bytes(document.get("_id").unwrap_or(RawValue::Null))),
            };
            if !known {
                visit(document.as_raw());
            }
        }
        self.changed_documents().for_each(|document| visit(document.as_raw()));
        Ok(())
    }

    fn next_label(&mut self, scope: RawValue<'_>, from: i64, side: LabelSide) -> Result<Option<i64>> {
        let (by_record, changed) = (&self.by_record, &self.changed);
        let counts = |record| by_record.get(&record).is_none_or(|key| !changed.contains(key));
        let nearest = self.ground.look(|look| look.next_label(scope, from, side, counts))?;
        let tree = self.ground.tree();
        let own = self
            .changed_documents()
            .filter(|one| compare(tree.scope_of(one.as_raw()).as_raw(), scope).is_eq());
        let labels = own.filter_map(|document| tree.labels(document.as_raw())).flatten().chain(nearest);
        Ok(match side {
            LabelSide::Below => labels.filter(|label| *label < from).max(),
            LabelSide::Above => labels.filter(|label| *label > from).min(),
        })
    }

    fn labelled(&mut self, scope: RawValue<'_>, from: i64, to: i64) -> Result<Vec<Document>> {
        let found = self.ground.look(|look| look.labelled(scope, from, to))?;
        let mut labelled = self.take_up(found);
        let tree = self.ground.tree();
        let own = |document: &&Document| {
            let labels = tree.labels(document.as_raw());
            labels.is_some_and(|labels| labels.iter().any(|label| (from..=to).contains(label)))
                && compare(tree.scope_of(document.as_raw()).as_raw(), scope).is_eq()
        };
        labelled.extend(self.changed_documents().filter(own).cloned());
        Ok(labelled)
    }

    fn all(&mut self, scope: RawValue<'_>) -> Result<Vec<Document>> {
        let found = self.ground.look(|look| look.all_in(scope))?;
        let mut all = self.take_up(found);
        let tree = self.ground.tree();
        let own = |document: &&Document| compare(tree.scope_of(document.as_raw()).as_raw(), scope).is_eq();
        all.extend(self.changed_documents().filter(own).cloned());
        Ok(all)
    }
}

impl<G: Ground> Forest for Grown<G> {
    fn write(&mut self, id: RawValue<'_>, document: Document) -> Result<()> {
        self.change(id, Some(document))
    }

    fn remove(&mut self, id: RawValue<'_>) -> Result<()> {
        self.change(id, None)
    }

    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.notes.get(key) {
            Some(note) => Ok(note.clone()),
            None => self.ground.note(key),
        }
    }

    fn set_note(&mut self, key: &[u8], note: Option<Vec<u8>>) -> Result<()> {
        self.notes.insert(key.to_vec(), note);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.ground.is_complete()
    }

    fn is_behind(&self) -> bool {
        self.ground.is_behind()
    }

    fn most_at_once(&self) -> Option<usize> {
        self.most
    }

    fn leave_below(&mut self, id: RawValue<'_>, count: u64, shift: Option<Shift>) -> Result<()> {
        self.left.push((id.to_value(), count, shift));
        Ok(())
    }

    fn reserved(&mut self, scope: RawValue<'_>) -> Result<Option<[i64; 2]>> {
        if self.settled.contains(&key_bytes(scope)) {
            return Ok(None);
        }
        let shift = self.ground.shifts()?.iter().find(|shift| shift.is_in(scope));
        Ok(shift.map(|shift| [shift.from, shift.to]))
    }

    fn settle_labels(&mut self, scope: RawValue<'_>) -> Result<()> {
        let shift = self.ground.shifts()?.iter().find(|shift| shift.is_in(scope)).cloned();
        let Some(shift) = shift.filter(|_| self.settled.insert(key_bytes(scope))) else { return Ok(()) };
        let found = self.ground.look(|look| look.shifted(&shift))?;
        for document in self.take_up(found) {
            let id = document.get("_id").unwrap_or(RawValue::Null).to_value();
            self.write(id.as_raw(), document)?;
        }
        Ok(())
    }
}

impl<G: Ground> Grown<G> {
    fn change(&mut self, id: RawValue<'_>, document: Option<Document>) -> Result<()> {
        let key = key_bytes(id);
        if !self.plants.contains_key(&key) {
            self.node(id)?;
        }
        let Some(plant) = self.plants.get_mut(&key) else { return Ok(()) };
        let before = std::mem::replace(&mut plant.document, document);
        plant.original.get_or_insert(before);
        self.changed.insert(key);
        Ok(())
    }
}

/// The ground of a write: what is read is as of the newest commit, and stays so until this one.
struct HeldGround<'g, 'e> {
    unit: &'g mut Unit<'e>,
    pattern: &'g Arc<Pattern>,
    tree: &'g Tree,
    collection: Arc<Collection>,
    locks: &'g [Vec<u8>],
    is_alone: bool,
    is_complete: bool,
    snapshot: Option<Snapshot>,
    /// None until somebody asks.
    shifts: Option<Vec<Shift>>,
}

impl HeldGround<'_, '_> {
    /// Finds out which labels a job has yet to write. Whoever holds the tree keeps others from adding to them.
    fn find_shifts(&mut self) -> Result<()> {
        if self.shifts.is_none() {
            let shifts = match self.is_behind() {
                true => shifts_in(&self.unit.newest_snapshot()?, self.pattern)?,
                false => Vec::new(),
            };
            self.shifts = Some(shifts);
        }
        Ok(())
    }
}

impl Ground for HeldGround<'_, '_> {
    fn tree(&self) -> &Tree {
        self.tree
    }

    fn find(&mut self, id: RawValue<'_>) -> Result<Option<Stored>> {
        let found = find_unique(self.unit, &self.pattern.target, "_id", id, Use::Copy)?;
        Ok(found.map(|newest| (newest.record, newest.document)))
    }

    fn look<T>(&mut self, look: impl FnOnce(&TreeLook<'_>) -> Result<T>) -> Result<T> {
        if !self.is_alone {
            // Others add leaves, which this has to see.
            self.locks.iter().try_for_each(|lock| self.unit.hold_alone(Space::Meta, lock))?;
            self.is_alone = true;
        }
        self.find_shifts()?;
        if self.snapshot.is_none() {
            // What is queued is published first. The tree is held, so its shape is that of this snapshot until the commit.
            self.snapshot = Some(self.unit.newest_snapshot()?);
        }
        let (Some(snapshot), Some(shifts)) = (&self.snapshot, &self.shifts) else {
            return Err(Error::bug("a snapshot is not there"));
        };
        self.unit.operation.check()?;
        look(&TreeLook { tree: self.tree, collection: &self.collection, snapshot, shifts })
    }

    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let place = layout::group_key(self.pattern.id, key);
        Ok(self.unit.transaction().latest(Space::Meta, &place)?.map(|note| note.to_vec()))
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn is_behind(&self) -> bool {
        self.unit.engine.pending.has(self.pattern.id)
    }

    fn shifts(&mut self) -> Result<&[Shift]> {
        self.find_shifts()?;
        Ok(self.shifts.as_deref().unwrap_or_default())
    }
}

/// Noted once everything else is.
const COMPLETE: &[u8] = b"c";

/// Whether all nodes of a tree have their fields.
fn is_filled(pattern: &Pattern) -> bool {
    matches!(pattern.state, PatternState::Active | PatternState::Suspect)
}

/// Whether all nodes of a tree have their fields, and what can be noted is noted.
fn is_complete(unit: &mut Unit<'_>, pattern: &Pattern) -> Result<bool> {
    let place = layout::group_key(pattern.id, COMPLETE);
    Ok(is_filled(pattern) && unit.transaction().latest(Space::Meta, &place)?.is_some())
}

/// Whether everything that can be noted of a pattern's tree is noted. Other patterns note nothing.
pub(crate) fn is_noted(snapshot: &Snapshot, pattern: &Pattern) -> Result<bool> {
    match pattern.kind().tree() {
        Some(_) => Ok(snapshot.get(Space::Meta, &layout::group_key(pattern.id, COMPLETE))?.is_some()),
        None => Ok(true),
    }
}

/// Notes that everything of a pattern's tree is noted.
pub(crate) fn note_all(unit: &mut Unit<'_>, pattern: &Pattern) {
    if pattern.kind().tree().is_some() {
        unit.transaction().put(Space::Meta, layout::group_key(pattern.id, COMPLETE), b"1".to_vec());
    }
}

/// Writes what is noted of trees.
pub(crate) fn write_notes(unit: &mut Unit<'_>, notes: Vec<(PatternId, Notes)>) {
    for (pattern, notes) in notes {
        for (key, note) in notes {
            let place = layout::group_key(pattern, &key);
            match note {
                Some(note) => unit.transaction().put(Space::Meta, place, note),
                None => unit.transaction().delete(Space::Meta, &place),
            }
        }
    }
}

/// The tree that a pattern keeps, for whoever was told that it keeps one.
fn tree_of(pattern: &Pattern) -> Result<&Tree> {
    pattern.kind().tree().ok_or_else(|| Error::bug("a pattern without a tree changes one"))
}

/// The locks of the trees that steps are taken in.
fn locks_of<'s>(pattern: &Pattern, tree: &Tree, steps: impl Iterator<Item = &'s Step>) -> Vec<Vec<u8>> {
    let images = steps.flat_map(|step| step.before.iter().chain(&step.after));
    let scopes = images.map(|document| key_bytes(tree.scope_of(document.as_raw()).as_raw()));
    let mut locks: Vec<Vec<u8>> = scopes.map(|scope| group_lock(pattern.id, &scope)).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

/// Holds the trees that a new document comes to, before anything else is held.
pub(crate) fn hold_ahead(unit: &mut Unit<'_>, evaluation: &Evaluation) -> Result<()> {
    let touched = &evaluation.touched[0];
    let Some(after) = &touched.after else { return Ok(()) };
    for pattern in evaluation.patterns().iter().filter(|pattern| pattern.is_maintained()) {
        let Some(tree) = pattern.kind().tree().filter(|_| pattern.target == touched.collection.namespace)
        else {
            continue;
        };
        let step = step_of_insert(after);
        let locks = locks_of(pattern, tree, std::iter::once(&step));
        hold(unit, &locks, tree.excludes_others(&step) || !is_filled(pattern))?;
    }
    Ok(())
}

fn step_of_insert(document: &Document) -> Step {
    let id = document.get("_id").map_or(Value::Null, RawValue::to_value);
    let after = Some(document.clone());
    Step { id, before: None, after, position: None, refresh: false, is_thorough: false }
}

fn hold(unit: &mut Unit<'_>, locks: &[Vec<u8>], alone: bool) -> Result<()> {
    for lock in locks {
        match (unit.is_committing(), alone) {
            // By pattern in the order of the graph, then by key: two commits do not wait for each other, and what they
            // wait for never waits for them.
            (true, _) => unit.hold_in_line(Space::Meta, lock)?,
            (false, true) => unit.hold_alone(Space::Meta, lock)?,
            (false, false) => unit.hold_shared(Space::Meta, lock)?,
        }
    }
    Ok(())
}

/// Takes steps in a tree, and touches the documents that they change.
pub(crate) fn replant(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    mut steps: Vec<Planted>,
) -> Result<()> {
    let tree = tree_of(pattern)?;
    if evaluation.defers() {
        return steps.into_iter().try_for_each(|planted| defer(unit, evaluation, pattern, tree, planted));
    }
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(()) };
    for planted in &mut steps {
        planted.step.is_thorough = evaluation.groups.distrusts(pattern.id);
        if planted.at.is_some() && planted.step.position.is_none() {
            planted.step.position = position_of(unit, pattern);
        }
    }
    let locks = locks_of(pattern, tree, steps.iter().map(|planted| &planted.step));
    let is_alone = steps.iter().any(|planted| tree.excludes_others(&planted.step)) || !is_filled(pattern);
    hold(unit, &locks, is_alone)?;
    let max_sync = pattern.declaration.options.max_sync as usize;
    let can_leave = steps.len() == 1 || tree.label_paths().is_none();
    let mut most =
        most_at_once(evaluation.patterns(), pattern, tree).filter(|_| can_leave && !unit.keeps_jobs_out());
    let Growth { plants, notes, .. } = loop {
        let held = HeldTrees { pattern, tree, collection: &collection, locks: &locks, is_alone };
        let growth = held.grow(unit, evaluation, &steps, most)?;
        match leave_to_job(unit, evaluation, pattern, &growth)? {
            Leaving::Done => break growth,
            Leaving::NoRoom => most = None,
            // What is little is written with the change, also where everything is left to jobs by choice.
            Leaving::Busy(_) if most < Some(max_sync) => most = Some(max_sync),
            Leaving::Busy(id) => match is_worked_on(unit, pattern) {
                true => return Err(wait_until_written(unit, pattern, key_bytes(id.as_raw()))),
                false => most = None,
            },
        }
    };
    let own: HashMap<Vec<u8>, &Planted, RandomState> =
        steps.iter().map(|planted| (key_bytes(planted.step.id.as_raw()), planted)).collect();
    let mut changed: Vec<(Vec<u8>, Plant)> =
        plants.into_iter().filter(|(_, plant)| plant.original.is_some()).collect();
    // In one order for all, so that writers of the same nodes get in each other's way early.
    changed.sort_by_key(|(_, plant)| plant.record);
    for (key, plant) in changed {
        unit.operation.check()?;
        flush(unit, evaluation, pattern, tree, own.get(&key).copied(), plant)?;
    }
    for Planted { at, step } in &steps {
        if let (Some(at), Some(given), false) = (at, &step.after, step.refresh)
            && evaluation.touched[*at].by.is_none()
        {
            let gave_way = match (&step.before, evaluation.touched[*at].on(Side::After)) {
                (Some(before), _) => tree.restored(before.as_raw(), given.as_raw()).is_some(),
                (None, Some(made)) => tree.gave_way(given.as_raw(), made),
                (None, None) => false,
            };
            if gave_way {
                note_replaced(pattern)?;
            }
        }
    }
    evaluation.note(pattern.id, notes);
    Ok(())
}

/// What steps make of a tree.
struct Growth {
    plants: HashMap<Vec<u8>, Plant, RandomState>,
    notes: Notes,
    left: Vec<Left>,
    /// Another node below which labels move already, in the scope of those that are to move.
    shifting: Option<Value>,
}

/// What is due below a node, for a job.
struct Left {
    id: Value,
    due: Due,
    /// About how many documents there are to write. None where something is due already.
    documents: Option<u64>,
}

/// Trees that a unit holds.
struct HeldTrees<'h> {
    pattern: &'h Arc<Pattern>,
    tree: &'h Tree,
    collection: &'h Arc<Collection>,
    locks: &'h [Vec<u8>],
    is_alone: bool,
}

impl HeldTrees<'_> {
    /// Takes steps. `most`: how many nodes below one that moves are written with it.
    fn grow(
        &self,
        unit: &mut Unit<'_>,
        evaluation: &Evaluation,
        steps: &[Planted],
        most: Option<usize>,
    ) -> Result<Growth> {
        let HeldTrees { pattern, tree, locks, is_alone, .. } = *self;
        let is_complete = is_complete(unit, pattern)?;
        let collection = self.collection.clone();
        let (snapshot, shifts) = (None, None);
        let ground =
            HeldGround { unit, pattern, tree, collection, locks, is_alone, is_complete, snapshot, shifts };
        let mut grown = Grown { most, ..Grown::new(ground) };
        for Planted { at, step } in steps {
            let record = at.and_then(|at| evaluation.touched[at].record);
            grown.begin_with(step.id.as_raw(), step.before.clone(), record)?;
        }
        for Planted { step, .. } in steps {
            tree.take(step, &mut grown).map_err(|error| {
                about(error, &pattern.target, &pattern.declaration.name, Some(tree.parent_path()))
            })?;
        }
        // A leaf that somebody waited for holds the tree alone by now.
        let is_alone = grown.ground.is_alone;
        let known = self.known(grown.ground.unit, steps, is_alone)?;
        // How far labels still move because of what was due before.
        let kept = |grown: &Grown<HeldGround<'_, '_>>, before: &Due| {
            Shift::of(before).filter(|shift| !grown.settled.contains(&key_bytes(shift.scope.as_raw())))
        };
        let (mut left, mut shifting) = (Vec::new(), None);
        for (id, documents, shift) in std::mem::take(&mut grown.left) {
            let mut own = shift.clone();
            for (other, before) in &known {
                let Some(kept) = kept(&grown, before) else { continue };
                let is_same = compare(other.as_raw(), id.as_raw()).is_eq();
                match &shift {
                    Some(shift) if shift.is_in(kept.scope.as_raw()) => shifting = Some(other.clone()),
                    None if is_same => own = Some(kept),
                    _ => {}
                }
            }
            if let Some(due) = tree.due_below(&mut grown, id.as_raw(), own.as_ref())? {
                left.push(Left { id, due, documents: Some(documents) });
            }
        }
        // What was due before may be another by now.
        for (id, before) in known {
            let is_held = |document: &Document| {
                let scope = key_bytes(tree.scope_of(document.as_raw()).as_raw());
                locks.contains(&group_lock(pattern.id, &scope))
            };
            if left.iter().any(|one| compare(one.id.as_raw(), id.as_raw()).is_eq()) {
                continue;
            }
            let kept = kept(&grown, &before);
            let due = match grown.node(id.as_raw())?.as_ref().is_some_and(is_held) {
                true => tree.due_below(&mut grown, id.as_raw(), kept.as_ref())?,
                // It was deleted, or went to another tree when nothing was below it any more.
                false if kept.is_none() => Some(Shift::taken_off(&before)),
                false => None,
            };
            if let Some(due) = due
                && !is_same_due(&due, &before)
            {
                left.push(Left { id, due, documents: None });
            }
        }
        let Grown { plants, notes, .. } = grown;
        Ok(Growth { plants, notes, left, shifting })
    }

    /// What is due already below nodes that these steps may concern. A step that shares the tree with others changes nothing
    /// above any node but its own.
    fn known(&self, unit: &mut Unit<'_>, steps: &[Planted], is_alone: bool) -> Result<Vec<(Value, Due)>> {
        if !unit.engine.pending.has(self.pattern.id) {
            return Ok(Vec::new());
        }
        if is_alone {
            let all = crate::patterns::all_of(&unit.newest_snapshot()?, self.pattern.id)?;
            return Ok(all.into_iter().map(|pending| (pending.key, pending.due)).collect());
        }
        let mut known = Vec::new();
        for Planted { step, .. } in steps {
            let own = pending::newest(unit, self.pattern.id, &key_bytes(step.id.as_raw()))?;
            known.extend(own.map(|pending| (pending.key, pending.due)));
        }
        Ok(known)
    }
}

fn is_same_due(one: &Due, other: &Due) -> bool {
    match (one, other) {
        (Due::Copy(Copied::To(one)), Due::Copy(Copied::To(other))) => one.as_bytes() == other.as_bytes(),
        _ => false,
    }
}

/// How many nodes below one that moves are written with it; none if nothing of the tree can be left to a job.
pub(super) fn most_at_once(patterns: &[Arc<Pattern>], pattern: &Pattern, tree: &Tree) -> Option<usize> {
    let can_leave = tree.leaves_to_jobs() && is_filled(pattern) && !is_read_by_others(patterns, pattern);
    let most = if is_async(pattern) { 0 } else { pattern.declaration.options.max_sync as usize };
    can_leave.then_some(most)
}

/// Whether nodes could be left to a job.
enum Leaving {
    Done,
    /// There is no room for so many, so everything is written with the change.
    NoRoom,
    /// Labels below this node are moving already. There is one such move at a time in a scope: another distance for labels
    /// that have not moved yet would be one more for each move.
    Busy(Value),
}

/// Leaves nodes to a job.
fn leave_to_job(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    growth: &Growth,
) -> Result<Leaving> {
    let Growth { left, shifting, .. } = growth;
    let new = left.iter().filter(|one| one.documents.is_some()).count();
    if new > limits::PENDING_SOURCES_MAX / 2 {
        return Ok(Leaving::NoRoom);
    }
    if let Some(id) = shifting {
        return Ok(Leaving::Busy(id.clone()));
    }
    if new > 0 {
        match room(unit, pattern, &evaluation.new_pending, new)? {
            Room::Free => {}
            Room::Later => return Err(wait_for_room(unit, pattern, &evaluation.new_pending, new)),
            Room::Never => return Ok(Leaving::NoRoom),
        }
    }
    for Left { id, due, documents } in left {
        evaluation.new_pending.add(unit, pattern, id.as_raw(), due.clone(), documents.unwrap_or(0))?;
    }
    Ok(Leaving::Done)
}

/// Writes a node, for a job: what it gets from those above it, and the labels that are seen, as of the newest commit.
pub(crate) fn catch_up_node(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    store: Store<'_>,
) -> Result<()> {
    let tree = tree_of(pattern)?;
    let Some(image) = records::newest(unit.transaction(), &collection.home(), record.into())? else {
        return Ok(());
    };
    // The tree first, as whoever changes its shape holds it before its nodes. Nobody moves a node until the commit. So a node
    // that moves later finds this one by the ancestors that it gets now.
    let scope = tree.scope_of(image.document());
    let locks = [group_lock(pattern.id, &key_bytes(scope.as_raw()))];
    hold(unit, &locks, false)?;
    let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
    let mut evaluation = Evaluation::new(patterns);
    let Some(at) = evaluation.touch(unit, pattern, collection, record)? else { return Ok(()) };
    let Some(node) = evaluation.touched[at].after.clone() else { return Ok(()) };
    if !compare(tree.scope_of(node.as_raw()).as_raw(), scope.as_raw()).is_eq() {
        return Err(Error::Conflict("a node went to another tree meanwhile"));
    }
    let collection = collection.clone();
    // Whoever changes what is due holds the tree alone. The labels may move with another ancestor than the one whose record
    // this is, and the node may lose that ancestor here: it was deleted, and its children went to its parent.
    let mut shifts = Vec::new();
    if tree.label_paths().is_some() {
        for id in tree.ancestor_ids(node.as_raw()).unwrap_or_default() {
            let newest = pending::newest(unit, pattern.id, &key_bytes(id.as_raw()))?;
            shifts.extend(newest.and_then(|newest| Shift::of(&newest.due)));
        }
    }
    let shifted = tree.shifted(node.as_raw(), &shifts);
    // The labels of those above are not looked at.
    let (is_alone, is_complete, snapshot, shifts) = (false, true, None, Some(Vec::new()));
    let locks = &locks;
    let ground =
        HeldGround { unit, pattern, tree, collection, locks, is_alone, is_complete, snapshot, shifts };
    let labelled = shifted.as_ref().unwrap_or(&node);
    let Some(made) = tree.caught_up(&mut Grown::new(ground), labelled.as_raw())?.or(shifted) else {
        return Ok(());
    };
    evaluation.write(pattern, at, Some(made));
    evaluation.finish(unit, store)
}

/// Takes the place that the statement gives to its node.
fn position_of(unit: &mut Unit<'_>, pattern: &Pattern) -> Option<Position> {
    unit.position.take_if(|(id, _)| *id == pattern.id).map(|(_, position)| position)
}

/// Touches a document that steps have changed. `own`: a step was its own.
fn flush(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    tree: &Tree,
    own: Option<&Planted>,
    plant: Plant,
) -> Result<()> {
    let Plant { document, original, .. } = plant;
    let original = original.flatten();
    if let Some(Planted { at: Some(at), .. }) = own {
        evaluation.write(pattern, *at, document);
        return Ok(());
    }
    let known = document.as_ref().or(original.as_ref());
    let id = match (known.and_then(|known| known.get("_id")), own) {
        (Some(id), _) => id.to_value(),
        // A transaction inserted it, and then deleted a node above it with all that lie below.
        (None, Some(planted)) => planted.step.id.clone(),
        (None, None) => return Ok(()),
    };
    let Some(newest) = find_unique(unit, &pattern.target, "_id", id.as_raw(), Use::Write)? else {
        return Ok(());
    };
    let at = evaluation.touch_newest(pattern, newest);
    let after = match (document, &evaluation.touched[at].after) {
        (Some(made), Some(newest)) => {
            let is_new = original.as_ref().is_none_or(|original| original.as_bytes() != newest.as_bytes());
            Some(match is_new {
                // Users write what is not maintained while the tree is held, and transactions wrote more in later
                // statements.
                true => {
                    tree.transplanted(made.as_raw(), original.as_ref().map(Document::as_raw), newest.as_raw())
                }
                false => made,
            })
        }
        _ => None,
    };
    evaluation.write(pattern, at, after);
    Ok(())
}

/// Leaves a step for the transaction's commit. Until then the document has what it had.
fn defer(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    tree: &Tree,
    planted: Planted,
) -> Result<()> {
    let Planted { at, mut step } = planted;
    step.position = position_of(unit, pattern);
    if let (Some(at), Some(after)) = (at, &step.after) {
        let from = step.before.as_ref().map_or(RawDocument::empty(), Document::as_raw);
        if let Some(restored) = tree.restored(from, after.as_raw()) {
            note_replaced(pattern)?;
            evaluation.write(pattern, at, Some(restored));
        }
    }
    let key = step.id.clone();
    unit.defer(Deferred {
        database: pattern.target.database.clone(),
        pattern: pattern.id,
        key_bytes: key_bytes(key.as_raw()),
        key,
        out: Vec::new(),
        into: Vec::new(),
        step: Some(Box::new(step)),
    });
    Ok(())
}

/// The ground of a forecast: a snapshot that nobody holds.
pub(crate) struct SeenGround<'g> {
    pub look: TreeLook<'g>,
    pub pattern: &'g Pattern,
}

impl Ground for SeenGround<'_> {
    fn tree(&self) -> &Tree {
        self.look.tree
    }

    fn find(&mut self, id: RawValue<'_>) -> Result<Option<Stored>> {
        // Where it is stored matters to nobody: it is not written.
        Ok(self.look.node(id)?.map(|document| (RecordId(u64::MAX), document)))
    }

    fn look<T>(&mut self, look: impl FnOnce(&TreeLook<'_>) -> Result<T>) -> Result<T> {
        look(&self.look)
    }

    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let place = layout::group_key(self.pattern.id, key);
        Ok(self.look.snapshot.get(Space::Meta, &place)?.map(|note| note.to_vec()))
    }

    fn is_complete(&self) -> bool {
        is_filled(self.pattern) && is_noted(self.look.snapshot, self.pattern).unwrap_or(false)
    }

    fn is_behind(&self) -> bool {
        crate::patterns::count_of(self.look.snapshot, self.pattern.id).map_or(true, |count| count > 0)
    }

    fn shifts(&mut self) -> Result<&[Shift]> {
        Ok(self.look.shifts)
    }
}
