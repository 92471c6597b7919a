//! The groups that a change concerns: which rows leave them and which enter, now or at a transaction's commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{RawDocument, Value};
use kilim_error::Result;
use kilim_patterns::{Row, key_bytes};
use kilim_storage::Space;

use super::evaluation::Evaluation;
use super::group::Group;
use super::pending::is_async;
use crate::ids::PatternId;
use crate::layout::group_lock;
use crate::limits;
use crate::patterns::Pattern;
use crate::session::Deferred;
use crate::unit::Unit;

/// The rows that a change takes out of one group and puts into it.
#[derive(Default)]
pub(crate) struct Delta {
    key: Option<Value>,
    pub out: Vec<Row>,
    pub into: Vec<Row>,
    /// The entering rows come after all rows of the group, in the order of insertion.
    pub newest: bool,
    /// A job writes the parent later.
    pub parent_is_pending: bool,
}

/// The rows that a transaction's statements deferred, merged for each group.
pub(crate) type DeferredDeltas = BTreeMap<(PatternId, Vec<u8>), Delta>;

impl Delta {
    /// Takes a row out. If the same transaction put it in, both cancel out.
    fn take_out(&mut self, row: Row) {
        match self.into.iter().rposition(|entered| entered.is_same(&row)) {
            Some(at) => drop(self.into.remove(at)),
            None => self.out.push(row),
        }
    }
}

/// Holds the groups that a new child enters. Nothing else is held yet, so the unit may wait for them.
pub(crate) fn hold_ahead(unit: &mut Unit<'_>, evaluation: &Evaluation) -> Result<()> {
    let touched = &evaluation.touched[0];
    let Some(child) = &touched.after else { return Ok(()) };
    let mut locks = Vec::new();
    for pattern in evaluation.patterns().iter().filter(|pattern| pattern.is_maintained()) {
        let Some(rollup) = pattern.kind().rollup() else { continue };
        if pattern.source.as_ref() != Some(&touched.collection.namespace) {
            continue;
        }
        // A child on which a stage of the pipeline fails is in no group.
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

/// The deltas of one pattern's groups, by the bytes of the group's key.
pub(crate) type Deltas = BTreeMap<Vec<u8>, Delta>;

/// Adds the rows of one child to the deltas of their groups. `commits`: a transaction commits, and a row that leaves may be
/// one that its statements put in.
pub(crate) fn collect(deltas: &mut Deltas, out: Vec<Row>, into: Vec<Row>, newest: bool, commits: bool) {
    let out = out.into_iter().map(|row| (row, true));
    for (row, leaves) in out.chain(into.into_iter().map(|row| (row, false))) {
        let delta =
            deltas.entry(row.key_bytes.clone()).or_insert_with(|| Delta { newest: true, ..Delta::default() });
        delta.key.get_or_insert_with(|| row.key.clone());
        delta.newest &= newest;
        match leaves {
            true if commits => delta.take_out(row),
            true => delta.out.push(row),
            false => delta.into.push(row),
        }
    }
}

/// Takes rows out of their groups and puts others in, and touches the parents.
pub(crate) fn change(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    deltas: Deltas,
) -> Result<()> {
    let rollup = pattern.rollup()?;
    if unit.is_committing() {
        // All commits take groups by pattern in the order of the graph, then by key, so two commits do not wait for each
        // other. Writers outside of transactions do not wait while they hold a group.
        for key in deltas.keys() {
            unit.hold_in_line(Space::Meta, &group_lock(pattern.id, key))?;
        }
    }
    // If more parents than may be pending would be, all of them are written now.
    let many = !unit.is_committing()
        && deltas.len() > pattern.declaration.options.max_sync as usize
        && deltas.len() <= limits::PENDING_SOURCES_MAX;
    let parent_is_pending = is_async(pattern) || many;
    for (key_bytes, delta) in deltas {
        let Some(key) = delta.key.clone() else { continue };
        if evaluation.defers() {
            unit.defer(Deferred {
                database: pattern.target.database.clone(),
                pattern: pattern.id,
                key,
                key_bytes,
                out: delta.out,
                into: delta.into,
                step: None,
            });
            continue;
        }
        let delta = Delta { parent_is_pending, ..delta };
        Group { pattern, rollup, key: key.as_raw(), key_bytes }.change(unit, evaluation, &delta)?;
    }
    Ok(())
}

/// Shows the groups of a child in their parents.
pub(crate) fn show_all(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    child: RawDocument<'_>,
) -> Result<()> {
    let rollup = pattern.rollup()?;
    let mut groups = rollup.rows_of(Some(child)).into_iter();
    groups.try_for_each(|row| Group::new(pattern, rollup, row.key.as_raw()).refresh(unit, evaluation))
}

/// Defers the fields of a parent to the commit.
pub(crate) fn defer_parent(unit: &mut Unit<'_>, pattern: &Pattern, key: &Value) {
    unit.defer(Deferred {
        database: pattern.target.database.clone(),
        pattern: pattern.id,
        key_bytes: key_bytes(key.as_raw()),
        key: key.clone(),
        out: Vec::new(),
        into: Vec::new(),
        step: None,
    });
}

/// Merges what a transaction's statements deferred, by group.
pub(crate) fn merge<'d>(deferred: impl Iterator<Item = &'d Deferred>) -> DeferredDeltas {
    let mut deltas = DeferredDeltas::new();
    for one in deferred.filter(|one| one.step.is_none()) {
        // `newest` is false: other writers may have inserted later children and committed before this transaction.
        let delta = deltas.entry((one.pattern, one.key_bytes.clone())).or_default();
        delta.key.get_or_insert_with(|| one.key.clone());
        one.out.iter().for_each(|row| delta.take_out(row.clone()));
        delta.into.extend(one.into.iter().cloned());
    }
    deltas
}

impl Evaluation {
    /// Takes the deferred deltas of one pattern.
    pub(crate) fn take_deferred(&mut self, pattern: PatternId) -> Deltas {
        if self.deferred.is_empty() {
            return Deltas::new();
        }
        let mut own = self.deferred.split_off(&(pattern, Vec::new()));
        self.deferred.append(&mut own.split_off(&(PatternId(pattern.0 + 1), Vec::new())));
        own.into_iter().map(|((_, key), delta)| (key, delta)).collect()
    }
}
