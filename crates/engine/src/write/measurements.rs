//! Writes to a time-series collection: measurements go into buckets, and leave them.
//!
//! A bucket is one document, so a change of its measurements is one change of that document, through the same door as any
//! other. Measurements of one command that have the same meta are put into their bucket together. The bucket's record is
//! held while it is changed, so writers of one bucket follow each other.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, Value};
use kilim_collation::collator;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::stage::weaker_on_buckets;
use kilim_query::time_series::{Bucket, Rows, TimeSeries};

use super::admit::check_not_blocked;
use super::done::inserted;
use super::door;
use super::store::new_row;
use super::update::{Candidates, apply_update, change_record, matching};
use super::{DeleteRequest, InsertOutcome, UpdateOutcome, UpdateRequest};
use crate::catalog::{Collection, View};
use crate::change::{Before, Change};
use crate::namespace::Namespace;
use crate::unit::Unit;

/// A measurement on its way.
struct Measurement<'d> {
    document: RawDocument<'d>,
    millis: i64,
    statement: i32,
}

/// Inserts measurements. One without a time is refused, with its position.
pub fn insert_measurements(
    unit: &mut Unit<'_>,
    view: &View,
    documents: &[RawDocument<'_>],
    ordered: bool,
    statements: impl Fn(usize) -> i32,
) -> Result<InsertOutcome> {
    let series = series_of(view)?;
    let namespace = &view.namespace;
    if unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            format!(
                "time-series insert failed: {namespace} :: caused by :: Cannot insert into a time-series collection in a \
                 multi-document transaction: {namespace}"
            ),
        ));
    }
    check_not_blocked(unit, namespace)?;
    unit.writes_measurements = true;
    let mut outcome = InsertOutcome::default();
    let mut groups: Vec<(Option<Value>, Vec<Measurement<'_>>)> = Vec::new();
    let mut by_meta: HashMap<Option<Vec<u8>>, usize> = HashMap::new();
    for (position, &document) in documents.iter().enumerate() {
        let statement = statements(position);
        if unit.answered(statement).is_some() {
            outcome.inserted += 1;
            continue;
        }
        let Some(millis) = series.time_of(document) else {
            let message = format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                series.time_field
            );
            outcome.errors.push((position, Error::user(ErrorCode::BadValue, message)));
            match ordered {
                true => break,
                false => continue,
            }
        };
        let meta = series.meta_of(document);
        let key = meta.clone().map(|meta| Document::into_bytes([("", meta)].into_iter().collect()));
        let group = *by_meta.entry(key).or_insert_with(|| {
            groups.push((meta, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(Measurement { document, millis, statement });
    }
    for (meta, measurements) in groups {
        let mut left = &measurements[..];
        while !left.is_empty() {
            let taken = fill_bucket(unit, view, &meta, left)?;
            outcome.inserted += taken;
            left = &left[taken..];
            unit.streamed()?;
        }
    }
    Ok(outcome)
}

/// Puts as many of these measurements as it takes into the open bucket of their meta, or into a new one. How many these are:
/// at least one.
fn fill_bucket(
    unit: &mut Unit<'_>,
    view: &View,
    meta: &Option<Value>,
    measurements: &[Measurement<'_>],
) -> Result<usize> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(&view.on)? else { return Err(dropped(&view.namespace)) };
        let series = series_in(&collection)?;
        if series_of(view)?.meta_field != series.meta_field
            || series_of(view)?.time_field != series.time_field
        {
            return Err(dropped(&view.namespace));
        }
        let filled = collection.shared.open_buckets.get(meta).map_or(Ok(0), |row| {
            let Some(stored) = unit.lock_record(&collection, row)? else { return Ok(0) };
            let Some(bucket) = Bucket::decode(series, stored.document()) else { return Ok(0) };
            let Some((after, taken)) = filled(&collection, bucket, meta, measurements)? else { return Ok(0) };
            let before = Before::of(stored.document());
            let change = Change::update(&collection, row, before, after.as_raw(), unit.cause);
            put(unit, change, &measurements[..taken])
        });
        let filled = filled.and_then(|taken| match (taken, measurements.first()) {
            (0, Some(first)) => {
                let bucket = Bucket::new(series, meta.clone(), first.millis);
                let (after, taken) = filled_new(&collection, bucket, meta, measurements)?;
                let row = new_row(&collection);
                // Others may look for it as soon as they know it.
                unit.lock_record(&collection, row)?;
                let insert = Change::insert(&collection, after.as_raw(), unit.cause);
                let taken = put(unit, Change { row: Some(row), ..insert }, &measurements[..taken])?;
                collection.shared.open_buckets.open(meta, row);
                Ok(taken)
            }
            _ => Ok(taken),
        });
        match filled {
            Err(error) if unit.can_retry(&error)? => {}
            result => return result,
        }
    }
}

/// A bucket with as many measurements as it takes; none where it does not take the first.
fn filled(
    collection: &Collection,
    mut bucket: Bucket,
    meta: &Option<Value>,
    measurements: &[Measurement<'_>],
) -> Result<Option<(Document, usize)>> {
    let series = series_in(collection)?;
    let collator = collator(&collection.collation);
    let mut taken = 0;
    for Measurement { document, millis, .. } in measurements {
        if !bucket.takes(series, meta, *millis, *document) {
            break;
        }
        bucket.push(series, *document, collator);
        taken += 1;
    }
    Ok((taken > 0).then(|| (bucket.into_document(), taken)))
}

fn filled_new(
    collection: &Collection,
    bucket: Bucket,
    meta: &Option<Value>,
    measurements: &[Measurement<'_>],
) -> Result<(Document, usize)> {
    filled(collection, bucket, meta, measurements)?
        .ok_or_else(|| Error::bug("a bucket that was made for a measurement does not take it"))
}

fn put(unit: &mut Unit<'_>, change: Change<'_>, measurements: &[Measurement<'_>]) -> Result<usize> {
    door::write(unit, change, &|_| false)?;
    for measurement in measurements {
        unit.record_statement(measurement.statement, inserted());
    }
    Ok(measurements.len())
}

/// Deletes the measurements that match, or the first of them. A bucket of which nothing is left goes.
pub fn delete_measurements(unit: &mut Unit<'_>, view: &View, request: &DeleteRequest) -> Result<u64> {
    let series = series_of(view)?;
    check_no_transaction(unit, &view.namespace)?;
    check_not_blocked(unit, &view.namespace)?;
    if let Some(done) = super::done::answered(unit, request.statement) {
        return Ok(done.as_delete());
    }
    unit.writes_measurements = true;
    let weaker = Arc::new(weaker_on_buckets(series, &request.filter));
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
            unit.record_statement(request.statement, super::done::deleted());
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
    for measurement in Rows::of(stored, &series.time_field, series.meta_field.as_deref(), None) {
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
                let count = Rows::of(before.stored, &series.time_field, None, Some(&[])).count() as u64;
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
    Error::user(ErrorCode::BadValue, "a bucket is not of version 1, and cannot be changed")
}
