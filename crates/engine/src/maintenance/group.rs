//! One group of children: its state, and the parent that shows it.
//!
//! A unit holds the group's lock until its commit when it reads or changes the state. The lock also covers the record of
//! what is pending for the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, Path, RawValue, compare, doc};
use kilim_error::{Error, Result};
use kilim_patterns::{Due, GroupState, Outcome, Rollup, Row, key_bytes, with_value};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::Space;

use super::evaluation::Evaluation;
use super::evaluation::Touched;
use super::evaluation::{Side, Store};
use super::groups::Delta;
use super::pending::Room;
use super::pending::is_read_by_others;
use super::pending::room;
use super::pending::wait_for_room;
use super::sources::Use;
use super::sources::find_unique;
use crate::ids::PatternId;
use crate::layout::group_lock;
use crate::operator::ExecContext;
use crate::patterns::Pattern;
use crate::plan::ReadRequest;
use crate::records::View;
use crate::unit::{Unit, pending};
use crate::{layout, planner};

/// The states of the groups that an evaluation has read or changed.
#[derive(Default)]
pub(crate) struct Groups {
    known: BTreeMap<(PatternId, Vec<u8>), Known>,
    /// A pattern whose stored states are not believed, because they are being computed again.
    distrusted: Option<PatternId>,
}

/// The state of a group after the change.
struct Known {
    pattern: Arc<Pattern>,
    state: GroupState,
    /// The index of its parent in `touched`.
    parent: Option<usize>,
}

impl Groups {
    pub fn distrust(&mut self, pattern: PatternId, really: bool) {
        self.distrusted = really.then_some(pattern);
    }

    /// Whether the stored states of a pattern are not believed.
    pub fn distrusts(&self, pattern: PatternId) -> bool {
        self.distrusted == Some(pattern)
    }

    fn know(&mut self, group: &Group<'_>, state: GroupState, parent: Option<usize>) {
        self.known.insert(group.place(), Known { pattern: group.pattern.clone(), state, parent });
    }

    pub fn write(&self, unit: &mut Unit<'_>, touched: &[Touched]) {
        for ((id, key), Known { pattern, state, parent }) in &self.known {
            let place = layout::group_key(*id, key);
            let Some(rollup) = pattern.kind().rollup() else { continue };
            let parent = parent.and_then(|at| touched[at].after.as_ref()).map(Document::as_raw);
            match state.rows {
                0 => unit.transaction().delete(Space::Meta, &place),
                _ => unit.transaction().put(Space::Meta, place, rollup.encode_group(state, parent)),
            }
        }
    }
}

/// A group of a pattern, by its key.
pub(crate) struct Group<'g> {
    pub pattern: &'g Arc<Pattern>,
    pub rollup: &'g Rollup,
    pub key: RawValue<'g>,
    pub key_bytes: Vec<u8>,
}

impl<'g> Group<'g> {
    pub fn new(pattern: &'g Arc<Pattern>, rollup: &'g Rollup, key: RawValue<'g>) -> Group<'g> {
        Group { pattern, rollup, key, key_bytes: key_bytes(key) }
    }

    fn place(&self) -> (PatternId, Vec<u8>) {
        (self.pattern.id, self.key_bytes.clone())
    }

    fn hold(&self, unit: &mut Unit<'_>) -> Result<()> {
        unit.hold_alone(Space::Meta, &group_lock(self.pattern.id, &self.key_bytes))
    }

    /// Takes rows out of the group and puts others in, and shows the new state in its parent.
    pub fn change(&self, unit: &mut Unit<'_>, evaluation: &mut Evaluation, delta: &Delta) -> Result<()> {
        self.hold(unit)?;
        let parent = match delta.parent_is_pending {
            true => None,
            false => self.parent(unit, evaluation)?,
        };
        let known = match evaluation.groups.known.remove(&self.place()) {
            Some(known) => Some(known.state),
            None => self.stored(unit, evaluation, parent)?,
        };
        let state = match known {
            None => self.read_anew(unit, evaluation, Side::After)?,
            Some(mut state) => {
                let Delta { out, into, newest, .. } = delta;
                match self.rollup.change_group(self.key, &mut state, out, into, *newest) {
                    Ok(Outcome::Done) => state,
                    Ok(Outcome::Refill(parts))
                        if self.refill(unit, evaluation, &mut state, &parts, Side::After)? =>
                    {
                        state
                    }
                    // The accumulator failed on a row. Read from all children, the group says what the pipeline says.
                    Ok(Outcome::ReadAnew | Outcome::Refill(_)) | Err(Error::User(_)) => {
                        self.read_anew(unit, evaluation, Side::After)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        // If the parent is pending, the state is stored without reference to the parent, whole.
        let parent = match delta.parent_is_pending && self.make_parent_pending(unit, evaluation)? {
            true => None,
            false => {
                let parent = match parent {
                    Some(parent) => Some(parent),
                    None => self.parent(unit, evaluation)?,
                };
                self.show(unit, evaluation, &state, parent)?
            }
        };
        evaluation.groups.know(self, state, parent);
        Ok(())
    }

    /// Makes the parent pending, if there is room. False if it must be written now.
    fn make_parent_pending(&self, unit: &mut Unit<'_>, evaluation: &mut Evaluation) -> Result<bool> {
        let pattern = self.pattern;
        if is_read_by_others(evaluation.patterns(), pattern) {
            return Ok(false);
        }
        // The group's lock covers what is pending for it.
        let known = unit.engine.pending.has(pattern.id)
            && pending::newest(unit, pattern.id, &self.key_bytes)?.is_some();
        if !known {
            match room(unit, pattern, &evaluation.new_pending, 1)? {
                Room::Free => {}
                Room::Later => return Err(wait_for_room(unit, pattern, &evaluation.new_pending, 1)),
                Room::Never => return Ok(false),
            }
        }
        evaluation.new_pending.add(unit, pattern, self.key, Due::Group(None), 1)?;
        Ok(true)
    }

    /// Shows the group in its parent, for a job, and removes the record of what is pending. If there is no such record, the
    /// job has outlived its pattern: another definition has replaced the pattern and taken over what was pending, and this
    /// job does nothing.
    pub fn catch_up(&self, unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
        let pattern = self.pattern;
        let place = layout::pending_key(pattern.id, &self.key_bytes);
        self.hold(unit)?;
        unit.hold_alone(Space::Meta, &place)?;
        if pending::newest(unit, pattern.id, &self.key_bytes)?.is_none() {
            return Ok(());
        }
        let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
        let mut evaluation = Evaluation::new(patterns);
        let state = self.state(unit, &mut evaluation)?;
        let parent = self.parent(unit, &mut evaluation)?;
        self.show(unit, &mut evaluation, &state, parent)?;
        evaluation.finish(unit, store)?;
        // The write may have changed the group's children by way of other patterns. Then it is pending again.
        if !evaluation.new_pending.has(pattern.id, &self.key_bytes) {
            unit.transaction().delete(Space::Meta, &place);
        }
        Ok(())
    }

    /// Makes sure that the group has a state, and shows it in its parent.
    pub fn refresh(&self, unit: &mut Unit<'_>, evaluation: &mut Evaluation) -> Result<()> {
        let state = self.state(unit, evaluation)?;
        let parent = self.parent(unit, evaluation)?;
        let parent = self.show(unit, evaluation, &state, parent)?;
        // The state was computed before its parent was made.
        if let Some(known) = evaluation.groups.known.get_mut(&self.place()) {
            known.parent = parent;
        }
        Ok(())
    }

    /// The index of its parent in `touched`, held to be written.
    fn parent(&self, unit: &mut Unit<'_>, evaluation: &mut Evaluation) -> Result<Option<usize>> {
        let Group { pattern, rollup, key, .. } = self;
        // A parent that this change inserts, or whose key it changes, is not found by the index yet, so the touched documents
        // are searched first. If they are many, only the new ones are searched: the index finds the others.
        let few = evaluation.touched.len() <= 16 || &*rollup.on != "_id";
        let same = |touched: &Touched| {
            (few || touched.record.is_none())
                && touched.collection.namespace == pattern.target
                && touched.after.as_ref().is_some_and(|after| {
                    rollup
                        .key_of_parent(after.as_raw())
                        .is_some_and(|own| compare(own.as_raw(), *key).is_eq())
                })
        };
        Ok(match evaluation.touched.iter().position(same) {
            Some(at) => Some(at),
            None => find_unique(unit, &pattern.target, &rollup.on, *key, Use::Write)?
                .map(|parent| evaluation.touch_newest(pattern, parent)),
        })
    }

    /// Writes the group's fields into its parent, and makes or removes the parent where the pattern does that. Gives the
    /// parent's index in `touched`.
    fn show(
        &self,
        unit: &mut Unit<'_>,
        evaluation: &mut Evaluation,
        state: &GroupState,
        parent: Option<usize>,
    ) -> Result<Option<usize>> {
        let Group { pattern, rollup, key, .. } = self;
        let inserts = rollup.inserts_parents();
        match parent {
            Some(at) if inserts && state.rows == 0 && evaluation.touched[at].by.is_some() => {
                evaluation.write(pattern, at, None);
            }
            Some(at) => {
                let Some(parent) = &evaluation.touched[at].after else { return Ok(Some(at)) };
                if let Some(made) = rollup.merged(parent.as_raw(), *key, state)? {
                    evaluation.write(pattern, at, Some(made));
                }
            }
            None if inserts && state.rows > 0 => {
                let collection = unit.join_or_create(&pattern.target)?;
                let bare = match &*rollup.on {
                    "_id" => doc! {"_id": *key},
                    on => with_value(doc! {"_id": kilim_bson::ObjectId::new()}.as_raw(), on, Some(*key)),
                };
                let after = Some(rollup.merged(bare.as_raw(), *key, state)?.unwrap_or(bare));
                let (by, writers) = (Some(Arc::clone(pattern)), vec![Arc::clone(pattern)]);
                let (record, before, refreshed_by) = (None, None, None);
                return Ok(Some(evaluation.add(Touched {
                    collection,
                    record,
                    before,
                    after,
                    by,
                    writers,
                    refreshed_by,
                })));
            }
            None => {}
        }
        Ok(parent)
    }

    /// The state of the group, which is held, before this change: [`Group::change`] adds what the change does to children.
    pub fn state(&self, unit: &mut Unit<'_>, evaluation: &mut Evaluation) -> Result<GroupState> {
        self.hold(unit)?;
        if let Some(known) = evaluation.groups.known.get(&self.place()) {
            return Ok(known.state.clone());
        }
        let parent = self.parent(unit, evaluation)?;
        let defers = evaluation.deferred.contains_key(&self.place());
        let whole = match self.stored(unit, evaluation, parent)? {
            None => None,
            Some(mut state) => match self.rollup.missing(&state) {
                Outcome::Done => return Ok(state),
                Outcome::Refill(parts) if !defers => {
                    self.refill(unit, evaluation, &mut state, &parts, Side::Before)?.then_some(state)
                }
                Outcome::Refill(_) | Outcome::ReadAnew => None,
            },
        };
        let state = match whole {
            Some(state) => state,
            None => {
                // The children are read with what the transaction's statements did to them, so the deferred rows are in it.
                evaluation.deferred.remove(&self.place());
                self.read_anew(unit, evaluation, Side::Before)?
            }
        };
        evaluation.groups.know(self, state.clone(), parent);
        Ok(state)
    }

    fn stored(
        &self,
        unit: &mut Unit<'_>,
        evaluation: &Evaluation,
        parent: Option<usize>,
    ) -> Result<Option<GroupState>> {
        if evaluation.groups.distrusts(self.pattern.id) {
            return Ok(None);
        }
        let place = layout::group_key(self.pattern.id, &self.key_bytes);
        let Some(bytes) = unit.transaction().latest(Space::Meta, &place)? else { return Ok(None) };
        // Parts of the state are stored in the parent, as it was written last.
        let parent = parent.and_then(|at| evaluation.touched[at].before.as_ref()).map(Document::as_raw);
        Ok(self.rollup.restore_group(&bytes, parent))
    }

    /// The state computed from all children of the group, as they are before or after this change.
    fn read_anew(&self, unit: &mut Unit<'_>, evaluation: &Evaluation, side: Side) -> Result<GroupState> {
        let Group { rollup, key, .. } = self;
        let Some(source) = &self.pattern.source else { return rollup.empty_group(*key) };
        let mut all: Vec<(u64, Vec<Row>)> = Vec::new();
        if let Some(collection) = unit.join(source)? {
            // All changes of this group's children are queued, because the group is held. So they are in this snapshot.
            let snapshot = unit.newest_snapshot()?;
            let filter = match rollup.key_field() {
                Some(field) => Filter::Field {
                    path: Path::parse(field),
                    predicate: Predicate::Compare(Comparison::Eq, key.to_value().into()),
                },
                None => Filter::True,
            };
            let request = ReadRequest { array: View::Stored, ..ReadRequest::new(Arc::new(filter)) };
            let plan = crate::read::plan_collection(unit, &collection, request, &snapshot)?;
            let mut executor = planner::execute(plan, snapshot);
            let operation = unit.operation.clone();
            let interrupt = || operation.check();
            let mut context = ExecContext::new(&interrupt);
            while let Some(row) = executor.next_record(&mut context)? {
                unit.engine.metrics.documents_examined.add(1);
                if evaluation.place_of(&collection, row.id.record).is_none() {
                    all.push((row.id.record.0, rollup.rows_of(Some(row.document()))));
                }
            }
        }
        for at in evaluation.places(source) {
            let touched = &evaluation.touched[at];
            let order = touched.record.map_or(u64::MAX, |record| record.0);
            all.push((order, rollup.rows_of(touched.on(side))));
        }
        all.sort_by_key(|(order, _)| *order);
        let own = all.iter().flat_map(|(_, rows)| rows).filter(|row| row.key_bytes == self.key_bytes);
        rollup.group_of(*key, own)
    }
}
