//! One group of children: its state, and the parent that shows it.
//!
//! Whoever looks at a state or changes it holds the group until his commit, and with it what is pending for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, Path, RawValue, compare, doc};
use kilim_error::{Error, Result};
use kilim_patterns::{Due, GroupState, Outcome, Rollup, Row, key_bytes, with_value};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::Space;

use super::carry::Touched;
use super::carry::Work;
use super::carry::{Side, Store};
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
use crate::unit::{Unit, pending};
use crate::{layout, planner};

/// The states that a change has come to.
#[derive(Default)]
pub(crate) struct Groups {
    known: BTreeMap<(PatternId, Vec<u8>), Known>,
    /// A pattern whose stored states are not to be believed.
    distrusted: Option<PatternId>,
}

/// A group as a change leaves it.
struct Known {
    pattern: Arc<Pattern>,
    state: GroupState,
    /// Where its parent stands among what is touched.
    parent: Option<usize>,
}

impl Groups {
    pub fn distrust(&mut self, pattern: PatternId, really: bool) {
        self.distrusted = really.then_some(pattern);
    }

    /// Whether everything of a pattern is made anew.
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

    /// Takes rows out of it and puts others in, and shows what it is then in its parent.
    pub fn change(&self, unit: &mut Unit<'_>, work: &mut Work, delta: &Delta) -> Result<()> {
        self.hold(unit)?;
        let parent = match delta.leaves_parent {
            true => None,
            false => self.parent(unit, work)?,
        };
        let known = match work.groups.known.remove(&self.place()) {
            Some(known) => Some(known.state),
            None => self.stored(unit, work, parent)?,
        };
        let state = match known {
            None => self.read_anew(unit, work, Side::After)?,
            Some(mut state) => {
                let Delta { out, into, newest, .. } = delta;
                match self.rollup.change_group(self.key, &mut state, out, into, *newest) {
                    Ok(Outcome::Done) => state,
                    Ok(Outcome::Refill(parts))
                        if self.refill(unit, work, &mut state, &parts, Side::After)? =>
                    {
                        state
                    }
                    // An accumulator that fails on a row is as it is on the whole group.
                    Ok(Outcome::ReadAnew | Outcome::Refill(_)) | Err(Error::User(_)) => {
                        self.read_anew(unit, work, Side::After)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        // What a job shows later is stored whole until then.
        let parent = match delta.leaves_parent && self.leave_parent(unit, work)? {
            true => None,
            false => {
                let parent = match parent {
                    Some(parent) => Some(parent),
                    None => self.parent(unit, work)?,
                };
                self.show(unit, work, &state, parent)?
            }
        };
        work.groups.know(self, state, parent);
        Ok(())
    }

    /// Leaves the parent to a job, if there is room.
    fn leave_parent(&self, unit: &mut Unit<'_>, work: &mut Work) -> Result<bool> {
        let pattern = self.pattern;
        if is_read_by_others(work.patterns(), pattern) {
            return Ok(false);
        }
        // The group is held, and with it what is pending for it.
        let known = unit.engine.lag.is_open(pattern.id)
            && pending::newest(unit, pattern.id, &self.key_bytes)?.is_some();
        if !known {
            match room(unit, pattern, &work.leaving)? {
                Room::Free => {}
                Room::Later => return Err(wait_for_room(unit, pattern, &work.leaving)),
                Room::Never => return Ok(false),
            }
        }
        work.leaving.leave(unit, pattern, self.key, Due::Group(None), 1)?;
        Ok(true)
    }

    /// Shows it in its parent for a job; nothing is pending for it then. Where nothing is, the job has outlived its
    /// pattern: another has taken the pattern's place and what was pending over, and its groups are not known here any
    /// more.
    pub fn catch_up(&self, unit: &mut Unit<'_>, store: Store<'_>) -> Result<()> {
        let pattern = self.pattern;
        let place = layout::pending_key(pattern.id, &self.key_bytes);
        self.hold(unit)?;
        unit.hold_alone(Space::Meta, &place)?;
        if pending::newest(unit, pattern.id, &self.key_bytes)?.is_none() {
            return Ok(());
        }
        let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
        let mut work = Work::new(patterns);
        let state = self.state(unit, &mut work)?;
        let parent = self.parent(unit, &mut work)?;
        self.show(unit, &mut work, &state, parent)?;
        work.finish(unit, store)?;
        // What was written may have changed the group's children by other patterns: then it is pending again.
        if !work.leaving.has(pattern.id, &self.key_bytes) {
            unit.transaction().delete(Space::Meta, &place);
        }
        Ok(())
    }

    /// Makes sure that it has a state, and shows it in its parent.
    pub fn refresh(&self, unit: &mut Unit<'_>, work: &mut Work) -> Result<()> {
        let state = self.state(unit, work)?;
        let parent = self.parent(unit, work)?;
        let parent = self.show(unit, work, &state, parent)?;
        // A state that was made for a parent that is made only now.
        if let Some(known) = work.groups.known.get_mut(&self.place()) {
            known.parent = parent;
        }
        Ok(())
    }

    /// The place of its parent, held to be written.
    fn parent(&self, unit: &mut Unit<'_>, work: &mut Work) -> Result<Option<usize>> {
        let Group { pattern, rollup, key, .. } = self;
        // A parent that this very change inserts is not found by its key yet, nor is one whose key it changes.
        // Of many, those that were found by it are found by it again.
        let few = work.touched.len() <= 16 || &*rollup.on != "_id";
        let same = |touched: &Touched| {
            (few || touched.record.is_none())
                && touched.collection.namespace == pattern.target
                && touched.after.as_ref().is_some_and(|after| {
                    rollup
                        .key_of_parent(after.as_raw())
                        .is_some_and(|own| compare(own.as_raw(), *key).is_eq())
                })
        };
        Ok(match work.touched.iter().position(same) {
            Some(at) => Some(at),
            None => find_unique(unit, &pattern.target, &rollup.on, *key, Use::Write)?
                .map(|parent| work.touch_newest(pattern, parent)),
        })
    }

    /// Writes its fields into its parent; the parent's place, also where it was made just now.
    fn show(
        &self,
        unit: &mut Unit<'_>,
        work: &mut Work,
        state: &GroupState,
        parent: Option<usize>,
    ) -> Result<Option<usize>> {
        let Group { pattern, rollup, key, .. } = self;
        let inserts = rollup.inserts_parents();
        match parent {
            Some(at) if inserts && state.rows == 0 && work.touched[at].by.is_some() => {
                work.touched[at].after = None
            }
            Some(at) => {
                let Some(parent) = &work.touched[at].after else { return Ok(Some(at)) };
                if let Some(made) = rollup.merged(parent.as_raw(), *key, state)? {
                    work.touched[at].after = Some(made);
                }
            }
            None if inserts && state.rows > 0 => {
                let collection = unit.join_or_create(&pattern.target)?;
                let bare = match &*rollup.on {
                    "_id" => doc! {"_id": *key},
                    on => with_value(doc! {"_id": kilim_bson::ObjectId::new()}.as_raw(), on, Some(*key)),
                };
                let after = Some(rollup.merged(bare.as_raw(), *key, state)?.unwrap_or(bare));
                let by = Some(Arc::clone(pattern));
                let (record, before, refreshed_by) = (None, None, None);
                return Ok(Some(work.add(Touched { collection, record, before, after, by, refreshed_by })));
            }
            None => {}
        }
        Ok(parent)
    }

    /// Its state, held, without what this change does to its children: that comes to it by [`Group::change`].
    pub fn state(&self, unit: &mut Unit<'_>, work: &mut Work) -> Result<GroupState> {
        self.hold(unit)?;
        if let Some(known) = work.groups.known.get(&self.place()) {
            return Ok(known.state.clone());
        }
        let parent = self.parent(unit, work)?;
        let defers = work.deferred.contains_key(&self.place());
        let whole = match self.stored(unit, work, parent)? {
            None => None,
            Some(mut state) => match self.rollup.missing(&state) {
                Outcome::Done => return Ok(state),
                Outcome::Refill(parts) if !defers => {
                    self.refill(unit, work, &mut state, &parts, Side::Before)?.then_some(state)
                }
                Outcome::Refill(_) | Outcome::ReadAnew => None,
            },
        };
        let state = match whole {
            Some(state) => state,
            None => {
                // Its children are read as the transaction's statements left them, so these are counted.
                work.deferred.remove(&self.place());
                self.read_anew(unit, work, Side::Before)?
            }
        };
        work.groups.know(self, state.clone(), parent);
        Ok(state)
    }

    fn stored(&self, unit: &mut Unit<'_>, work: &Work, parent: Option<usize>) -> Result<Option<GroupState>> {
        if work.groups.distrusts(self.pattern.id) {
            return Ok(None);
        }
        let place = layout::group_key(self.pattern.id, &self.key_bytes);
        let Some(bytes) = unit.transaction().latest(Space::Meta, &place)? else { return Ok(None) };
        // The state goes with the parent as it was written last.
        let parent = parent.and_then(|at| work.touched[at].before.as_ref()).map(Document::as_raw);
        Ok(self.rollup.restore_group(&bytes, parent))
    }

    /// Its state from all of its children, as they are on one side of this change.
    fn read_anew(&self, unit: &mut Unit<'_>, work: &Work, side: Side) -> Result<GroupState> {
        let Group { rollup, key, .. } = self;
        let Some(source) = &self.pattern.source else { return rollup.empty_group(*key) };
        let mut all: Vec<(u64, Vec<Row>)> = Vec::new();
        if let Some(collection) = unit.join(source)? {
            // What is queued is published first: this group's children are, since the group is held.
            let snapshot = unit.newest_snapshot()?;
            let filter = match rollup.key_field() {
                Some(field) => Filter::Field {
                    path: Path::parse(field),
                    predicate: Predicate::Compare(Comparison::Eq, key.to_value().into()),
                },
                None => Filter::True,
            };
            let request = ReadRequest::new(Arc::new(filter));
            let plan = crate::read::plan_collection(unit, &collection, request, &snapshot)?;
            let mut executor = planner::execute(plan, snapshot);
            let operation = unit.operation.clone();
            let interrupt = || operation.check();
            let mut context = ExecContext::new(&interrupt);
            while let Some(row) = executor.next_record(&mut context)? {
                unit.engine.metrics.documents_examined.add(1);
                if work.place_of(&collection, row.id.record).is_none() {
                    all.push((row.id.record.0, rollup.rows_of(Some(row.document()))));
                }
            }
        }
        for at in work.places(source) {
            let touched = &work.touched[at];
            let order = touched.record.map_or(u64::MAX, |record| record.0);
            all.push((order, rollup.rows_of(touched.on(side))));
        }
        all.sort_by_key(|(order, _)| *order);
        let own = all.iter().flat_map(|(_, rows)| rows).filter(|row| row.key_bytes == self.key_bytes);
        rollup.group_of(*key, own)
    }
}
