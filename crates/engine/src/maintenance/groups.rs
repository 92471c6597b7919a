//! Groups of children: their states, and the parents that show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, compare, doc};
use kilim_error::{Error, Result};
use kilim_patterns::{GroupState, Kind, Outcome, Rollup, Row, WhenNotMatched, with_value};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::Space;

use super::carry::{Side, Touched, Work};
use super::locks::group_lock;
use super::pending::{self, Left, Room, is_async, is_read_by_others, room, wait_for_room};
use super::sources::{Use, find_unique};
use super::{Pattern, PatternId, refill};
use crate::layout;
use crate::limits;
use crate::operator::{self, ExecContext};
use crate::planner::ReadRequest;
use crate::write::Unit;

/// The states that a change has come to.
#[derive(Default)]
pub(super) struct Groups {
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

    pub fn write(&self, unit: &mut Unit<'_>, touched: &[Touched]) {
        for ((id, key), Known { pattern, state, parent }) in &self.known {
            let place = layout::group_key(*id, key);
            let Kind::Rollup(rollup) = &pattern.declaration.kind else { continue };
            let parent = parent.and_then(|at| touched[at].after.as_ref()).map(Document::as_raw);
            match state.rows {
                0 => unit.transaction().delete(Space::Meta, &place),
                _ => unit.transaction().put(Space::Meta, place, rollup.encode_group(state, parent)),
            }
        }
    }
}

/// What a transaction leaves for its commit: rows that leave groups and rows that enter them, or a parent that
/// waits for its group's fields.
#[derive(Debug, Clone)]
pub(crate) struct Deferred {
    pub database: String,
    pattern: PatternId,
    key: Value,
    key_bytes: Vec<u8>,
    out: Vec<Row>,
    into: Vec<Row>,
}

/// Rows of one group that a change takes out and puts in.
#[derive(Default)]
struct Delta {
    key: Option<Value>,
    out: Vec<Row>,
    into: Vec<Row>,
    /// What enters comes behind everything that is there.
    newest: bool,
    /// The parent is left to a job.
    leaves_parent: bool,
}

/// Holds the groups that a new child enters, before anything else is held.
pub(super) fn hold_ahead(unit: &mut Unit<'_>, work: &Work) -> Result<()> {
    let touched = &work.touched[0];
    let Some(child) = &touched.after else { return Ok(()) };
    let mut locks = Vec::new();
    for pattern in work.patterns().iter().filter(|pattern| pattern.is_maintained()) {
        let Kind::Rollup(rollup) = &pattern.declaration.kind else { continue };
        if pattern.source.as_ref() != Some(&touched.collection.namespace) {
            continue;
        }
        // A child that a stage fails on is in no group.
        for key in rollup.groups_of(child.as_raw()).unwrap_or_default() {
            locks.push(group_lock(pattern.id, &key));
        }
    }
    locks.sort_unstable();
    locks.dedup();
    for lock in locks {
        unit.hold_alone(Space::Meta, &lock)?;
    }
    Ok(())
}

/// The rows of a child. One that a stage fails on gives none: its write was possible before.
pub(super) fn rows(rollup: &Rollup, child: Option<RawDocument<'_>>) -> Vec<Row> {
    child.and_then(|child| rollup.rows(child).ok()).unwrap_or_default()
}

/// Takes the rows of touched children out of their groups and into others, and touches the parents.
pub(super) fn change(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
) -> Result<()> {
    let Some(source) = &pattern.source else { return Ok(()) };
    let mut deltas: BTreeMap<Vec<u8>, Delta> = BTreeMap::new();
    for at in work.places(source) {
        let touched = &work.touched[at];
        let out = rows(rollup, touched.before.as_ref().map(Document::as_raw));
        let into = rows(rollup, touched.after.as_ref().map(Document::as_raw));
        if touched.before.is_some() && touched.after.is_some() && rollup.same_rows(&out, &into)? {
            continue;
        }
        let newest = touched.before.is_none();
        for (row, leaves) in
            out.into_iter().map(|row| (row, true)).chain(into.into_iter().map(|row| (row, false)))
        {
            let delta = deltas
                .entry(row.key_bytes.clone())
                .or_insert_with(|| Delta { newest: true, ..Delta::default() });
            delta.key.get_or_insert_with(|| row.key.clone());
            delta.newest &= newest;
            if leaves { delta.out.push(row) } else { delta.into.push(row) }
        }
    }
    // More groups than may be pending are shown at once, however many that is.
    let many = deltas.len() > pattern.declaration.options.max_sync as usize
        && deltas.len() <= limits::PENDING_SOURCES_MAX;
    let leaves_parent = is_async(pattern) || many;
    for (key_bytes, delta) in deltas {
        let Some(key) = delta.key.clone() else { continue };
        if work.defers() {
            unit.defer(Deferred {
                database: pattern.target.database.clone(),
                pattern: pattern.id,
                key,
                key_bytes,
                out: delta.out,
                into: delta.into,
            });
            continue;
        }
        let delta = Delta { leaves_parent, ..delta };
        apply(unit, work, pattern, rollup, key.as_raw(), &key_bytes, &delta)?;
    }
    Ok(())
}

fn apply(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    key: RawValue<'_>,
    key_bytes: &[u8],
    delta: &Delta,
) -> Result<()> {
    unit.hold_alone(Space::Meta, &group_lock(pattern.id, key_bytes))?;
    let place = (pattern.id, key_bytes.to_vec());
    let parent = match delta.leaves_parent {
        true => None,
        false => parent_of(unit, work, pattern, rollup, key)?,
    };
    let known = match work.groups.known.remove(&place) {
        Some(known) => Some(known.state),
        None => stored(unit, work, pattern, rollup, key_bytes, parent)?,
    };
    let state = match known {
        None => read_anew(unit, work, pattern, rollup, key, Side::After)?,
        Some(mut state) => {
            match rollup.change_group(key, &mut state, &delta.out, &delta.into, delta.newest) {
                Ok(Outcome::Done) => state,
                Ok(Outcome::Refill(parts))
                    if refill::refill(unit, work, pattern, rollup, key, &mut state, &parts, Side::After)? =>
                {
                    state
                }
                // An accumulator that fails on a row is as it is on the whole group.
                Ok(Outcome::ReadAnew | Outcome::Refill(_)) | Err(Error::User(_)) => {
                    read_anew(unit, work, pattern, rollup, key, Side::After)?
                }
                Err(error) => return Err(error),
            }
        }
    };
    // What a job shows later is stored whole until then.
    let parent = match delta.leaves_parent && leave_parent(unit, work, pattern, key)? {
        true => None,
        false => {
            let parent = match parent {
                Some(parent) => Some(parent),
                None => parent_of(unit, work, pattern, rollup, key)?,
            };
            show(unit, work, pattern, rollup, key, &state, parent)?
        }
    };
    work.groups.known.insert(place, Known { pattern: pattern.clone(), state, parent });
    Ok(())
}

/// Leaves the parent of a group to a job, if there is room.
fn leave_parent(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    key: RawValue<'_>,
) -> Result<bool> {
    if is_read_by_others(work.patterns(), pattern) {
        return Ok(false);
    }
    // The group is held, and with it what is pending for it.
    let known = unit.engine.lag.is_open(pattern.id)
        && pending::newest(unit, pattern.id, &Rollup::key_bytes(key))?.is_some();
    if !known {
        match room(unit, pattern, &work.leaving)? {
            Room::Free => {}
            Room::Later => return Err(wait_for_room(unit, pattern, &work.leaving)),
            Room::Never => return Ok(false),
        }
    }
    work.leaving.leave(unit, pattern, key, Left::Group, 1)?;
    Ok(true)
}

/// Shows a group in its parent for a job; nothing is pending for it then. Where nothing is, the job has outlived its
/// pattern: another has taken the pattern's place and what was pending over, and its groups are not known here any more.
pub(super) fn catch_up_group(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    key: RawValue<'_>,
) -> Result<()> {
    let key_bytes = Rollup::key_bytes(key);
    let place = layout::pending_key(pattern.id, &key_bytes);
    unit.hold_alone(Space::Meta, &group_lock(pattern.id, &key_bytes))?;
    unit.hold_alone(Space::Meta, &place)?;
    if pending::newest(unit, pattern.id, &key_bytes)?.is_none() {
        return Ok(());
    }
    let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
    let mut work = Work::new(patterns);
    let state = state_of(unit, &mut work, pattern, rollup, key)?;
    let parent = parent_of(unit, &mut work, pattern, rollup, key)?;
    show(unit, &mut work, pattern, rollup, key, &state, parent)?;
    work.finish(unit)?;
    // What was written may have changed the group's children by other patterns: then it is pending again.
    if !work.leaving.has(pattern.id, &key_bytes) {
        unit.transaction().delete(Space::Meta, &place);
    }
    Ok(())
}

/// The place of a group's parent, held to be written.
fn parent_of(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    key: RawValue<'_>,
) -> Result<Option<usize>> {
    // A parent that this very change inserts is not found by its key yet, nor is one whose key it changes.
    // Of many, those that were found by it are found by it again.
    let few = work.touched.len() <= 16 || &*rollup.on != "_id";
    let same = |touched: &Touched| {
        (few || touched.record.is_none())
            && touched.collection.namespace == pattern.target
            && touched.after.as_ref().is_some_and(|after| {
                rollup.key_of_parent(after.as_raw()).is_some_and(|own| compare(own.as_raw(), key).is_eq())
            })
    };
    Ok(match work.touched.iter().position(same) {
        Some(at) => Some(at),
        None => find_unique(unit, &pattern.target, &rollup.on, key, Use::Write)?
            .map(|parent| work.touch_newest(pattern, parent)),
    })
}

/// Writes a group's fields into its parent; the parent's place, also where it was made just now.
fn show(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    key: RawValue<'_>,
    state: &GroupState,
    parent: Option<usize>,
) -> Result<Option<usize>> {
    let inserts = rollup.when_not_matched == WhenNotMatched::Insert;
    match parent {
        Some(at) if inserts && state.rows == 0 && work.touched[at].by.is_some() => {
            work.touched[at].after = None
        }
        Some(at) => {
            let Some(parent) = &work.touched[at].after else { return Ok(Some(at)) };
            if let Some(made) = rollup.merged(parent.as_raw(), key, state)? {
                work.touched[at].after = Some(made);
            }
        }
        None if inserts && state.rows > 0 => {
            let collection = unit.join_or_create(&pattern.target)?;
            let bare = match &*rollup.on {
                "_id" => doc! {"_id": key},
                on => with_value(doc! {"_id": kilim_bson::ObjectId::new()}.as_raw(), on, Some(key)),
            };
            let after = Some(rollup.merged(bare.as_raw(), key, state)?.unwrap_or(bare));
            let by = Some(pattern.clone());
            let (record, before, refreshed_by) = (None, None, None);
            return Ok(Some(work.add(Touched { collection, record, before, after, by, refreshed_by })));
        }
        None => {}
    }
    Ok(parent)
}

/// Makes sure that the groups of a child have states, and shows them in their parents.
pub(super) fn show_all(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    child: RawDocument<'_>,
) -> Result<()> {
    for row in rows(rollup, Some(child)) {
        let state = state_of(unit, work, pattern, rollup, row.key.as_raw())?;
        let parent = parent_of(unit, work, pattern, rollup, row.key.as_raw())?;
        let parent = show(unit, work, pattern, rollup, row.key.as_raw(), &state, parent)?;
        // A state that was made for a parent that is made only now.
        if let Some(known) = work.groups.known.get_mut(&(pattern.id, row.key_bytes)) {
            known.parent = parent;
        }
    }
    Ok(())
}

/// The state of a group, held, without what this change does to its children: that comes to it by [`change`].
pub(super) fn state_of(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    key: RawValue<'_>,
) -> Result<GroupState> {
    let key_bytes = Rollup::key_bytes(key);
    unit.hold_alone(Space::Meta, &group_lock(pattern.id, &key_bytes))?;
    if let Some(known) = work.groups.known.get(&(pattern.id, key_bytes.clone())) {
        return Ok(known.state.clone());
    }
    let parent = parent_of(unit, work, pattern, rollup, key)?;
    let state = match stored(unit, work, pattern, rollup, &key_bytes, parent)? {
        None => read_anew(unit, work, pattern, rollup, key, Side::Before)?,
        Some(mut state) => match rollup.missing(&state) {
            Outcome::Done => return Ok(state),
            Outcome::Refill(parts)
                if refill::refill(unit, work, pattern, rollup, key, &mut state, &parts, Side::Before)? =>
            {
                state
            }
            Outcome::Refill(_) | Outcome::ReadAnew => {
                read_anew(unit, work, pattern, rollup, key, Side::Before)?
            }
        },
    };
    let known = Known { pattern: pattern.clone(), state: state.clone(), parent };
    work.groups.known.insert((pattern.id, key_bytes), known);
    Ok(state)
}

fn stored(
    unit: &mut Unit<'_>,
    work: &Work,
    pattern: &Pattern,
    rollup: &Rollup,
    key: &[u8],
    parent: Option<usize>,
) -> Result<Option<GroupState>> {
    if work.groups.distrusted == Some(pattern.id) {
        return Ok(None);
    }
    let Some(bytes) = unit.transaction().latest(Space::Meta, &layout::group_key(pattern.id, key))? else {
        return Ok(None);
    };
    // The state goes with the parent as it was written last.
    let parent = parent.and_then(|at| work.touched[at].before.as_ref()).map(Document::as_raw);
    Ok(rollup.restore_group(&bytes, parent))
}

/// A group's state from all of its children, as they are on one side of this change.
fn read_anew(
    unit: &mut Unit<'_>,
    work: &Work,
    pattern: &Pattern,
    rollup: &Rollup,
    key: RawValue<'_>,
    side: Side,
) -> Result<GroupState> {
    let key_bytes = Rollup::key_bytes(key);
    let Some(source) = &pattern.source else { return rollup.empty_group(key) };
    let mut rows: Vec<(u64, Vec<Row>)> = Vec::new();
    if let Some(collection) = unit.join(source)? {
        // What is queued is published first: this group's children are, since the group is held.
        let snapshot = unit.newest_snapshot()?;
        let filter = match rollup.key_field() {
            Some(field) => Filter::Field {
                path: kilim_bson::Path::parse(field),
                predicate: Predicate::Compare(Comparison::Eq, key.to_value().into()),
            },
            None => Filter::True,
        };
        let request = ReadRequest::new(Arc::new(filter));
        let plan = crate::read::plan_collection(unit, &collection, request, &snapshot)?;
        let mut executor = operator::execute(plan, snapshot);
        let operation = unit.operation.clone();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        while let Some(row) = executor.next_record(&mut context)? {
            unit.engine.metrics.documents_examined.add(1);
            if work.place_of(&collection, row.record).is_none() {
                rows.push((row.record.0, self::rows(rollup, Some(row.document()))));
            }
        }
    }
    for at in work.places(source) {
        let touched = &work.touched[at];
        let order = touched.record.map_or(u64::MAX, |record| record.0);
        rows.push((order, self::rows(rollup, touched.on(side))));
    }
    rows.sort_by_key(|(order, _)| *order);
    let own = rows.iter().flat_map(|(_, rows)| rows).filter(|row| row.key_bytes == key_bytes);
    rollup.group_of(key, own)
}

/// Leaves a parent's fields for the commit.
pub(super) fn defer_parent(unit: &mut Unit<'_>, pattern: &Pattern, rollup: &Rollup, parent: RawDocument<'_>) {
    let Some(key) = rollup.key_of_parent(parent) else { return };
    unit.defer(Deferred {
        database: pattern.target.database.clone(),
        pattern: pattern.id,
        key_bytes: Rollup::key_bytes(key.as_raw()),
        key,
        out: Vec::new(),
        into: Vec::new(),
    });
}

/// Changes the groups that a transaction left for now, each once.
pub(super) fn take_up<'d>(
    unit: &mut Unit<'_>,
    work: &mut Work,
    deferred: impl Iterator<Item = &'d Deferred>,
) -> Result<()> {
    let mut deltas: BTreeMap<(PatternId, Vec<u8>), Delta> = BTreeMap::new();
    for one in deferred {
        let place = (one.pattern, one.key_bytes.clone());
        // Not the newest rows: others may have been numbered behind them and have committed before.
        let delta = deltas.entry(place).or_default();
        delta.key.get_or_insert_with(|| one.key.clone());
        // A row that enters and leaves again within the transaction is no row.
        for row in &one.out {
            match delta.into.iter().rposition(|entered| entered.is_same(row)) {
                Some(at) => drop(delta.into.remove(at)),
                None => delta.out.push(row.clone()),
            }
        }
        delta.into.extend(one.into.iter().cloned());
    }
    // In one order, so that two commits do not wait for each other; what they wait for never waits for them.
    for (pattern, key) in deltas.keys() {
        unit.hold_in_line(Space::Meta, &group_lock(*pattern, key))?;
    }
    let patterns = work.patterns().clone();
    for ((id, key_bytes), mut delta) in deltas {
        let Some(pattern) = patterns.iter().find(|pattern| pattern.id == id && pattern.is_maintained())
        else {
            continue;
        };
        let (Kind::Rollup(rollup), Some(key)) = (&pattern.declaration.kind, delta.key.take()) else {
            continue;
        };
        delta.leaves_parent = is_async(pattern);
        apply(unit, work, pattern, rollup, key.as_raw(), &key_bytes, &delta)?;
    }
    Ok(())
}
