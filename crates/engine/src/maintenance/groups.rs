//! Groups of children as a change comes to them: which rows leave them and which enter, at once or with a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{RawDocument, Value};
use kilim_error::Result;
use kilim_patterns::{Row, key_bytes};
use kilim_storage::Space;

use super::carry::Work;
use super::group::Group;
use super::pending::is_async;
use crate::ids::PatternId;
use crate::layout::group_lock;
use crate::limits;
use crate::patterns::Pattern;
use crate::session::Deferred;
use crate::unit::Unit;

/// Rows of one group that a change takes out and puts in.
#[derive(Default)]
pub(crate) struct Delta {
    key: Option<Value>,
    pub out: Vec<Row>,
    pub into: Vec<Row>,
    /// What enters comes behind everything that is there.
    pub newest: bool,
    /// The parent is left to a job.
    pub leaves_parent: bool,
}

/// What a transaction's statements left for its groups, merged.
pub(crate) type DeferredDeltas = BTreeMap<(PatternId, Vec<u8>), Delta>;

impl Delta {
    /// Takes a row out. One that entered within the same transaction is no row.
    fn take_out(&mut self, row: Row) {
        match self.into.iter().rposition(|entered| entered.is_same(&row)) {
            Some(at) => drop(self.into.remove(at)),
            None => self.out.push(row),
        }
    }
}

/// Holds the groups that a new child enters, before anything else is held.
pub(crate) fn hold_ahead(unit: &mut Unit<'_>, work: &Work) -> Result<()> {
    let touched = &work.touched[0];
    let Some(child) = &touched.after else { return Ok(()) };
    let mut locks = Vec::new();
    for pattern in work.patterns().iter().filter(|pattern| pattern.is_maintained()) {
        let Some(rollup) = pattern.kind().rollup() else { continue };
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

/// Rows of one pattern's groups that leave and enter, by group.
pub(crate) type Deltas = BTreeMap<Vec<u8>, Delta>;

/// Adds the rows of one child to those of its groups. `commits`: a transaction does, whose statements may have brought rows
/// that leave again.
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
    work: &mut Work,
    pattern: &Arc<Pattern>,
    deltas: Deltas,
) -> Result<()> {
    let rollup = pattern.rollup()?;
    if unit.commits {
        // By pattern in the order of the graph, then by key: two commits do not wait for each other, and what they wait
        // for never waits for them.
        for key in deltas.keys() {
            unit.hold_in_line(Space::Meta, &group_lock(pattern.id, key))?;
        }
    }
    // More groups than may be pending are shown at once, however many that is.
    let many = !unit.commits
        && deltas.len() > pattern.declaration.options.max_sync as usize
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
        Group { pattern, rollup, key: key.as_raw(), key_bytes }.change(unit, work, &delta)?;
    }
    Ok(())
}

/// Shows the groups of a child in their parents.
pub(crate) fn show_all(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    child: RawDocument<'_>,
) -> Result<()> {
    let rollup = pattern.rollup()?;
    let mut groups = rollup.rows_of(Some(child)).into_iter();
    groups.try_for_each(|row| Group::new(pattern, rollup, row.key.as_raw()).refresh(unit, work))
}

/// Leaves a parent's fields for the commit.
pub(crate) fn defer_parent(unit: &mut Unit<'_>, pattern: &Pattern, key: &Value) {
    unit.defer(Deferred {
        database: pattern.target.database.clone(),
        pattern: pattern.id,
        key_bytes: key_bytes(key.as_raw()),
        key: key.clone(),
        out: Vec::new(),
        into: Vec::new(),
    });
}

/// What a transaction left for its commit, by group.
pub(crate) fn merge<'d>(deferred: impl Iterator<Item = &'d Deferred>) -> DeferredDeltas {
    let mut deltas = DeferredDeltas::new();
    for one in deferred {
        // Not the newest rows: others may have been numbered behind them and have committed before.
        let delta = deltas.entry((one.pattern, one.key_bytes.clone())).or_default();
        delta.key.get_or_insert_with(|| one.key.clone());
        one.out.iter().for_each(|row| delta.take_out(row.clone()));
        delta.into.extend(one.into.iter().cloned());
    }
    deltas
}

impl Work {
    /// What was left for the groups of a pattern.
    pub(crate) fn take_deferred(&mut self, pattern: PatternId) -> Deltas {
        if self.deferred.is_empty() {
            return Deltas::new();
        }
        let mut own = self.deferred.split_off(&(pattern, Vec::new()));
        self.deferred.append(&mut own.split_off(&(PatternId(pattern.0 + 1), Vec::new())));
        own.into_iter().map(|((_, key), delta)| (key, delta)).collect()
    }
}
