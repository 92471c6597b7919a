//! Groups of children as a change comes to them: which rows leave them and which enter, at once or with a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, Value};
use kilim_error::Result;
use kilim_patterns::{Kind, Rollup, Row};
use kilim_storage::Space;

use super::carry::Work;
use super::group::Group;
use super::locks::group_lock;
use super::pending::is_async;
use super::{Pattern, PatternId};
use crate::limits;
use crate::unit::Unit;

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
pub(super) struct Delta {
    key: Option<Value>,
    pub out: Vec<Row>,
    pub into: Vec<Row>,
    /// What enters comes behind everything that is there.
    pub newest: bool,
    /// The parent is left to a job.
    pub leaves_parent: bool,
}

/// What a transaction's statements left for its groups, merged.
pub(super) type DeferredDeltas = BTreeMap<(PatternId, Vec<u8>), Delta>;

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
    // What the transaction's statements left comes together with what its commit does to the same children: a group is
    // changed once, whether its state is stored or read.
    let mut deltas = work.take_deferred(pattern.id);
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
            match leaves {
                true if unit.commits => delta.take_out(row),
                true => delta.out.push(row),
                false => delta.into.push(row),
            }
        }
    }
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
pub(super) fn show_all(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    rollup: &Rollup,
    child: RawDocument<'_>,
) -> Result<()> {
    let mut groups = rows(rollup, Some(child)).into_iter();
    groups.try_for_each(|row| Group::new(pattern, rollup, row.key.as_raw()).refresh(unit, work))
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

/// What a transaction left for its commit, by group.
pub(super) fn merge<'d>(deferred: impl Iterator<Item = &'d Deferred>) -> DeferredDeltas {
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
    fn take_deferred(&mut self, pattern: PatternId) -> BTreeMap<Vec<u8>, Delta> {
        let mut own = self.deferred.split_off(&(pattern, Vec::new()));
        self.deferred.append(&mut own.split_off(&(PatternId(pattern.0 + 1), Vec::new())));
        own.into_iter().map(|((_, key), delta)| (key, delta)).collect()
    }
}
