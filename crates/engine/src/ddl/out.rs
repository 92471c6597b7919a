//! `$out`: writes all documents into a collection, in place of what is there.
//!
//! They go into a collection of another name, with the indexes and options of the one they are to replace. Only once
//! all are written does it take the other's name, in one commit; a failure leaves everything as it was. What a crash
//! leaves behind is dropped at the next start.
//!
//! Where patterns maintain the collection or read from it, its documents are replaced by the door instead, in one commit
//! as well; one that would be too large is refused.

use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage;
use kilim_query::time_series::TimeSeries;

use crate::catalog::{Collection, bucket_options};
use crate::cursor::check_size;
use crate::engine::{Engine, new_uuid};
use crate::index::IndexSpec;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::{ExecContext, Row};
use crate::pipeline::Step;
use crate::unit::Unit;
use crate::write::{insert, insert_measurements};

/// What the collection in the making is called.
const TEMPORARY: &str = "tmp.agg_out.";
/// Documents handed to the write door at once.
const BATCH_DOCUMENTS: usize = 1000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Runs a pipeline to its end and replaces the target by what it gave.
pub fn out(unit: &mut Unit<'_>, stage: &stage::Out, input: &mut dyn Step) -> Result<()> {
    let target = Namespace { database: stage.database.to_string(), collection: stage.collection.to_string() };
    let engine = unit.engine;
    target.check_creatable().map_err(|error| {
        Error::user(ErrorCode::IllegalOperation, format!("error with target namespace: {error}"))
    })?;
    engine.check_no_view(&target)?;
    let existing = engine.collection(&target);
    if existing.as_ref().is_some_and(|existing| existing.capped.is_some()) {
        let message = format!("namespace '{target}' is capped so it can't be used for $out");
        return Err(Error::location(17_152, message));
    }
    let temporary = Namespace {
        database: target.database.clone(),
        collection: format!("{TEMPORARY}{}", uuid_text(&new_uuid(engine.environment()))),
    };
    let operation = unit.operation.clone();
    let options = existing.as_ref().map(|existing| existing.options.clone()).unwrap_or_default();
    engine.create_temporary(&temporary, options)?;
    let written = write(unit, &temporary, existing.as_deref(), input).and_then(|()| {
        check_unchanged(engine, &target, existing.as_deref())?;
        match existing.is_some() && engine.is_concerned(&target) {
            // Patterns look at documents: those that stay are changed, not deleted and made again.
            true => {
                engine.replace_documents(&operation, &temporary, &target)?;
                drop_quietly(engine, &operation, &temporary)
            }
            false => engine.rename_collection(&operation, &temporary, &target, true),
        }
    });
    if written.is_err() {
        // Whoever asked gets the error that came first; what cannot be dropped now is dropped at the next start.
        // The drop waits until nobody writes to the collection any more, which this unit still does.
        let _ = unit.settle();
        let _ = drop_quietly(engine, &operation, &temporary);
    }
    written
}

/// The same for a target that is a time-series collection: it is made, or its measurements are replaced.
pub fn out_measurements(
    unit: &mut Unit<'_>,
    stage: &stage::Out,
    series: TimeSeries,
    input: &mut dyn Step,
) -> Result<()> {
    let target = Namespace { database: stage.database.to_string(), collection: stage.collection.to_string() };
    let engine = unit.engine;
    target.check_creatable().map_err(|error| {
        Error::user(ErrorCode::IllegalOperation, format!("error with target namespace: {error}"))
    })?;
    let buckets = target.of_buckets();
    let existing = engine.collection(&buckets);
    check_series(engine, &target, existing.as_deref(), &series)?;
    let measurements = Namespace {
        database: target.database.clone(),
        collection: format!("{TEMPORARY}{}", uuid_text(&new_uuid(engine.environment()))),
    };
    let temporary = measurements.of_buckets();
    let operation = unit.operation.clone();
    let options = match &existing {
        Some(existing) => existing.options.clone(),
        None => bucket_options(&series, RawDocument::empty()),
    };
    engine.create_temporary(&temporary, options)?;
    let written = write(unit, &temporary, existing.as_deref(), input).and_then(|()| {
        check_unchanged(engine, &buckets, existing.as_deref())?;
        engine.rename_collection(&operation, &temporary, &buckets, true)
    });
    if written.is_err() {
        let _ = unit.settle();
        let _ = drop_quietly(engine, &operation, &temporary);
    }
    written
}

/// Refuses a target that is no time-series collection, or another one.
fn check_series(
    engine: &Engine,
    target: &Namespace,
    existing: Option<&Collection>,
    series: &TimeSeries,
) -> Result<()> {
    let Some(existing) = existing.and_then(|existing| existing.time_series.as_deref()) else {
        return match engine.collection(target).is_some() || engine.view(target).is_some() {
            true => Err(Error::user(
                ErrorCode::InvalidOptions,
                format!(
                    "{target} is no time-series collection, and $out with 'timeseries' does not make it one"
                ),
            )),
            false => Ok(()),
        };
    };
    match existing == series {
        true => Ok(()),
        false => Err(Error::user(
            ErrorCode::InvalidOptions,
            format!("the time-series collection {target} has other options than those of $out"),
        )),
    }
}

fn write(
    unit: &mut Unit<'_>,
    temporary: &Namespace,
    model: Option<&Collection>,
    input: &mut dyn Step,
) -> Result<()> {
    let view = temporary.of_measurements().and_then(|measurements| unit.engine.view(&measurements));
    let specs = secondary(model);
    let operation = unit.operation.clone();
    if !specs.is_empty() {
        unit.engine.build_indexes(&operation, temporary, specs)?;
    }
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let mut bytes = 0;
        rows.clear();
        while rows.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
            let Some(row) = input.next(&mut context)? else { break };
            check_size(row.document())?;
            bytes += row.document().as_bytes().len();
            rows.push(row);
        }
        if rows.is_empty() {
            unit.figures.add(context.figures);
            return unit.settle();
        }
        let documents: Vec<RawDocument<'_>> = rows.iter().map(Row::document).collect();
        let outcome = match &view {
            Some(view) => insert_measurements(unit, view, &documents, true, |_| 0)?,
            None => insert(unit, temporary, &documents, true, |_| 0)?,
        };
        if let Some((_, error)) = outcome.errors.into_iter().next() {
            return Err(error);
        }
    }
}

fn secondary(model: Option<&Collection>) -> Vec<IndexSpec> {
    let indexes = model.into_iter().flat_map(|model| model.indexes.iter());
    indexes.filter(|index| !index.is_id()).map(|index| index.spec.clone()).collect()
}

/// Refuses to replace a collection that is not the one whose indexes and options were taken over.
fn check_unchanged(engine: &Engine, target: &Namespace, seen: Option<&Collection>) -> Result<()> {
    let now = engine.collection(target);
    let now = now.as_deref();
    let options = |of: Option<&Collection>| of.map(|of| of.options.clone()).unwrap_or_default();
    let changed = if options(now) != options(seen) {
        "collection options"
    } else {
        let documents = |of| secondary(of).iter().map(IndexSpec::to_document).collect::<Vec<_>>();
        if documents(now) == documents(seen) {
            return Ok(());
        }
        "indexes"
    };
    Err(Error::user(
        ErrorCode::CommandFailed,
        format!("{changed} of target collection {target} changed while processing $out"),
    ))
}

fn drop_quietly(engine: &Engine, operation: &Arc<Operation>, namespace: &Namespace) -> Result<()> {
    engine.drop_collection(operation, namespace).map(drop)
}

impl Engine {
    /// Drops what an interrupted `$out` left behind.
    pub(crate) fn drop_leftovers(&self) -> Result<()> {
        let catalog = self.catalog();
        let mut left = catalog.iter().filter(|it| it.temporary).peekable();
        if left.peek().is_some() {
            let operation = self.operations.start(0);
            left.try_for_each(|collection| drop_quietly(self, &operation, &collection.namespace))?;
        }
        Ok(())
    }
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
