//! The door: the steps of a change.
//!
//! A change is admitted, evaluated by the patterns that it concerns, validated, and stored: its record by the shape of its
//! collection, its index keys, then its event. Patterns only say what changes. Every document is stored here, once.
//!
//! The validator is asked after the evaluation, about the document as it will be stored. It cannot be asked earlier: in a
//! chain, a maintained field of the document may follow from other documents that the same change touches.
//!
//! Invariant: a failed change leaves the transaction as it was. One document is checked completely before its first byte is
//! written; where several documents belong together, a savepoint takes them all back.

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use super::admit::{check_admitted, check_storable};
use super::capped::make_room;
use super::event::tell;
use super::keys::KeyChanges;
use super::paged::write_paged;
use super::store::{new_row, store};
use super::validity::{check_rules, check_valid};
use super::versions::{check_version_kept, settled, write_as_version};
use crate::change::{Cause, Change, Form};
use crate::engine::Upkeep;
use crate::index::Index;
use crate::maintenance::{Evaluation, evaluate};
use crate::records::RowId;
use crate::unit::Unit;

/// Writes a change and everything that follows from it. `untouched` says which indexes keep their keys, because the change
/// cannot concern them. Gives the document as it was written, if patterns changed it.
pub(crate) fn write(
    unit: &mut Unit<'_>,
    change: Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    if let Some(alias) = &change.collection.alias {
        return write_as_version(unit, &change, alias);
    }
    check_admitted(unit, &change)?;
    if change.collection.shape.paged().is_some() {
        return write_paged(unit, change, untouched);
    }
    check_version_kept(unit, &change)?;
    write_versioned(unit, change, untouched)
}

/// Writes a change that is admitted, in the version in which its collection stores it.
pub(super) fn write_versioned(
    unit: &mut Unit<'_>,
    change: Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    if change.collection.shape.versions().is_some()
        && let Some(document) = settled(unit, &change)?
    {
        let form = if let Form::Described(_) = change.form { Form::Difference } else { change.form };
        let change = Change { after: Some(document.as_raw()), form, ..change };
        let shaped = admitted(unit, change, &|_| false)?;
        return Ok(Some(shaped.unwrap_or(document)));
    }
    admitted(unit, change, untouched)
}

/// Writes a change that is admitted.
pub(super) fn admitted(
    unit: &mut Unit<'_>,
    change: Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    if let (true, Some(document)) = (change.collection.namespace.holds_definitions(), change.after) {
        let namespace = &change.collection.namespace;
        if unit.is_transaction() {
            return Err(Error::user(
                ErrorCode::OperationNotSupportedInTransaction,
                format!("{namespace} holds definitions of patterns, which a transaction cannot insert"),
            ));
        }
        return unit.engine.adopt(&unit.operation, namespace, document).map(|()| None);
    }
    let evicted = make_room(unit, &change)?;
    if evicted.is_empty() {
        return carry_out(unit, &change, untouched);
    }
    all_or_nothing(unit, |unit| {
        let shaped = carry_out(unit, &change, untouched)?;
        for old in &evicted {
            let goes = Change::delete(change.collection, old.record, old.before(), Cause::Eviction);
            carry_out(unit, &goes, &|_| false)?;
        }
        Ok(shaped)
    })
}

/// Writes one change with what the patterns make of it.
fn carry_out(
    unit: &mut Unit<'_>,
    change: &Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    let Some(patterns) = unit.engine.patterns().evaluating(&change.collection.namespace) else {
        check_valid(unit, change)?;
        return put(unit, change, untouched).map(|_| None);
    };
    let deferred = unit.deferred();
    let shaped = evaluate(unit, patterns, change).and_then(|mut evaluation| {
        put_evaluated(unit, &mut evaluation, change.cause, Some(change), untouched)?;
        Ok(evaluation.into_shaped(change))
    });
    if shaped.is_err() {
        unit.undo_deferred(deferred);
    }
    shaped
}

/// Stores every document that an evaluation touched, once: first the one that was changed for `cause`, as `asked`, then those that
/// patterns changed, then the states of groups and what is pending.
fn put_evaluated(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    cause: Cause<'_>,
    asked: Option<&Change<'_>>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<()> {
    evaluation.check_in_force(unit)?;
    all_or_nothing(unit, |unit| {
        for at in 0..evaluation.len() {
            if !evaluation.prepare(unit, at) {
                continue;
            }
            let mut change = evaluation.change(at, cause);
            if let Some(asked) = asked.filter(|_| at == 0) {
                change.form = asked.form_of(change.after);
                change.elements = asked.elements;
            }
            check_valid(unit, &change)?;
            check_rules(evaluation.patterns(), &change)?;
            let row = put(unit, &change, &|index| evaluation.passes_by(at, index, untouched))?;
            evaluation.note_stored(at, row);
        }
        evaluation.conclude(unit);
        Ok(())
    })
}

/// Stores what maintenance evaluated for a job or at a commit.
pub(crate) fn put_evaluation(unit: &mut Unit<'_>, evaluation: &mut Evaluation) -> Result<()> {
    put_evaluated(unit, evaluation, Cause::Job, None, &|_| false)
}

/// Stores one document: its record, its keys, its event.
pub(crate) fn put(
    unit: &mut Unit<'_>,
    change: &Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<RowId> {
    check_storable(change)?;
    let row = change.row.unwrap_or_else(|| new_row(change.collection));
    let keys = KeyChanges::claim(unit, change, row, untouched)?;
    store(unit, change, row)?;
    keys.write(unit, change, row)?;
    tell(unit, change, row);
    Ok(row)
}

/// Takes all writes back if one of them fails.
pub(super) fn all_or_nothing<T>(
    unit: &mut Unit<'_>,
    write: impl FnOnce(&mut Unit<'_>) -> Result<T>,
) -> Result<T> {
    let (saved, caused) = (unit.transaction().savepoint(), unit.caused.clone());
    let written = write(unit);
    if written.is_err() {
        unit.transaction().restore(saved);
        unit.caused = caused;
    }
    written
}
