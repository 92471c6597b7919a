//! Writes to a time-series collection: measurements go into buckets, and leave them.
//!
//! A bucket is one document, so a change of its measurements is one change of that document, through the same door as any
//! other. The bucket's record is held while it is changed, so writers of one bucket follow each other. Inserts are in
//! `insert`.

mod insert;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_collation::collator;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::stage::weaker_on_buckets;
use kilim_query::time_series::{Bucket, OnBounds, Rows, TimeSeries};

use super::admit::check_not_blocked;
use super::door;
use super::update::{Candidates, apply_update, change_record, matching};
use super::{DeleteRequest, UpdateOutcome, UpdateRequest};
use crate::catalog::{Collection, View};
use crate::change::Change;
use crate::namespace::Namespace;
use crate::unit::Unit;
pub use insert::insert_measurements;

/// Deletes the measurements that match, or the first of them. A bucket of which nothing is left goes.
pub fn delete_measurements(unit: &mut Unit<'_>, view: &View, request: &DeleteRequest) -> Result<u64> {
    let series = series_of(view)?;
    check_no_transaction(unit, &view.namespace)?;
    check_not_blocked(unit, &view.namespace)?;
    if let Some(done) = super::done::answered(unit, request.statement) {
        return Ok(done.as_delete());
    }
    unit.writes_measurements = true;
    let (measured, places) = match unit.collection(&view.on)? {
        Some(collection) => {
            let snapshot = unit.snapshot();
            (collection.measured_paths(&snapshot), collection.measured_places(&snapshot))
        }
        None => Default::default(),
    };
    let bounds = OnBounds { places: &places, ..series.on_bounds(&measured, &view.collation) };
    let weaker = Arc::new(weaker_on_buckets(&request.filter, &bounds));
    let read = matching(&weaker, None, request.hint.as_ref(), &request.collation);
    let Some(mut candidates) = Candidates::find(unit, &view.on, read)? else { return Ok(0) };
    let mut removed = 0;
    while let Some(found) = candidates.next(unit)? {
        let row = found.row;
        let done =
            change_record(unit, &view.on, found, &candidates.filter, |unit, collection, before, _| {
                let (after, gone) =
                    without_matching(collection, before.stored, &request.filter, request.one)?;
                if gone > 0 {
                    unit.transaction().shrinks();
                    let change = match &after {
                        Some(after) => Change::update(collection, row, before, after.as_raw(), unit.cause),
                        None => Change::delete(collection, row, before, unit.cause),
                    };
                    door::write(unit, change, &|_| false)?;
                }
                Ok(gone)
            })?;
        let gone = done.unwrap_or(0);
        removed += gone;
        if gone > 0 && request.one {
            unit.record_statement(request.statement, super::done::deleted);
            unit.written()?;
            break;
        }
        if gone > 0 {
            unit.streamed()?;
        }
    }
    Ok(removed)
}

/// A bucket without the measurements that match, and how many these are; none where nothing is left.
fn without_matching(
    collection: &Collection,
    stored: RawDocument<'_>,
    filter: &Filter,
    one: bool,
) -> Result<(Option<Document>, u64)> {
    let series = series_in(collection)?;
    let bucket = Bucket::decode(series, stored).ok_or_else(unreadable)?;
    let (mut kept, mut gone) = (Vec::new(), 0);
    for measurement in Rows::of(stored, &series.time_field, series.meta_field.as_deref(), None)? {
        match (one && gone > 0) || !filter.matches(measurement.as_raw())? {
            true => kept.push(measurement),
            false => gone += 1,
        }
    }
    if kept.is_empty() || gone == 0 {
        return Ok((None, gone));
    }
    let kept = kept.iter().map(Document::as_raw);
    let bucket = bucket.with(series, kept, collator(&collection.collation));
    Ok((Some(bucket.into_document()), gone))
}

/// Changes the meta of measurements. `request` is in the names of buckets. Counts measurements.
pub fn update_metas(unit: &mut Unit<'_>, view: &View, request: &UpdateRequest<'_>) -> Result<UpdateOutcome> {
    let series = series_of(view)?;
    check_no_transaction(unit, &view.namespace)?;
    check_not_blocked(unit, &view.namespace)?;
    unit.writes_measurements = true;
    let mut outcome = UpdateOutcome::default();
    let read = matching(&request.filter, None, request.hint.as_ref(), &request.collation);
    let Some(mut candidates) = Candidates::find(unit, &view.on, read)? else { return Ok(outcome) };
    while let Some(found) = candidates.next(unit)? {
        let row = found.row;
        let done = change_record(
            unit,
            &view.on,
            found,
            &candidates.filter,
            |unit, collection, before, position| {
                let count = Rows::of(before.stored, &series.time_field, None, Some(&[]))?.count() as u64;
                let images = apply_update(unit, collection, row, before, position, request)?;
                Ok((count, images.after.is_some()))
            },
        )?;
        if let Some((count, modified)) = done {
            outcome.matched += count;
            outcome.modified += if modified { count } else { 0 };
            unit.streamed()?;
        }
    }
    Ok(outcome)
}

/// Refuses a statement that changes or removes measurements within a transaction.
pub fn check_no_transaction(unit: &Unit<'_>, namespace: &Namespace) -> Result<()> {
    match unit.is_transaction() {
        false => Ok(()),
        true => Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Cannot perform a multi-document transaction on a time-series collection: {namespace}"),
        )),
    }
}

fn series_of(view: &View) -> Result<&TimeSeries> {
    view.time_series.as_deref().ok_or_else(|| view.is_no_collection())
}

fn series_in(collection: &Collection) -> Result<&TimeSeries> {
    collection.time_series.as_deref().ok_or_else(|| dropped(&collection.namespace))
}

fn dropped(namespace: &Namespace) -> Error {
    Error::user(ErrorCode::NamespaceNotFound, format!("{namespace} was dropped during the operation"))
}

fn unreadable() -> Error {
    Error::user(ErrorCode::BadValue, "a bucket is of an unknown version, and cannot be changed")
}
