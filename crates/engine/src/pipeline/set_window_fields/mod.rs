//! `$setWindowFields` behind its `$sort`: partitions come one behind the other, each in order.
//!
//! Of a partition only those rows are held that some window function has yet to see, and those that are not given yet
//! (`rows`). Each function has a frame that moves with the current row (`frame`): for each row, the documents that come into
//! the frame enter the function's slide, then those that are out of it leave.
//!
//! Rows that are held go to disk beyond the stage's bound. What functions hold of their frames cannot; beyond the bound
//! they fail, as on MongoDB.

mod frame;
mod rows;

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Writer, encode_value_with};
use kilim_error::{Error, Result};
use kilim_query::expression::{Bindings, Dependencies, Env, Evaluated, check_bytes};
use kilim_query::stage::{self, Beyond, Stage, check_nesting, check_partition};

use self::frame::Running;
use self::rows::Rows;
use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Step};
use crate::operator::{ExecContext, Row, RowData, Shown, Viewer};

pub(super) struct SetWindowFields {
    stage: Arc<stage::SetWindowFields>,
    bindings: Bindings,
    partition: Partition,
    running: Vec<Running>,
    /// The row whose fields come next, by its place in the partition.
    current: u64,
    /// The most bytes that functions held, one by one and together with the rows.
    peaks: Vec<usize>,
    total_peak: usize,
}

/// The rows of the current partition, as far as they were asked for.
struct Partition {
    stage: Arc<stage::SetWindowFields>,
    bindings: Bindings,
    input: Box<dyn Step>,
    rows: Rows,
    /// The key that its rows share.
    key: Vec<u8>,
    /// The key of the row that came last.
    last_key: Vec<u8>,
    /// Its last row has come.
    ended: bool,
    /// The first row of the next partition, whose key is the last that came.
    next: Option<Row>,
    /// There are no more partitions.
    exhausted: bool,
}

impl Partition {
    /// Makes the next partition the current one; whether there is one.
    fn advance(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        if self.next.is_none() && !self.exhausted {
            self.next = self.pull(context)?;
        }
        let Some(row) = self.next.take() else {
            self.exhausted = true;
            return Ok(false);
        };
        self.rows.clear();
        self.rows.push(row)?;
        std::mem::swap(&mut self.key, &mut self.last_key);
        self.ended = false;
        Ok(true)
    }

    /// The row at a place of the partition, none beyond its end.
    fn row(&mut self, place: u64, context: &mut ExecContext<'_>) -> Result<Option<Cow<'_, Row>>> {
        match self.reach(place, context)? {
            true => self.rows.get(place).map(Some),
            false => Ok(None),
        }
    }

    /// Has rows come up to a place of the partition; whether there is one.
    fn reach(&mut self, place: u64, context: &mut ExecContext<'_>) -> Result<bool> {
        while place >= self.rows.end() {
            if self.ended {
                return Ok(false);
            }
            match self.pull(context)? {
                None => (self.ended, self.exhausted) = (true, true),
                Some(row) if self.last_key == self.key => self.rows.push(row)?,
                Some(next) => {
                    self.ended = true;
                    self.next = Some(next);
                }
            }
        }
        Ok(true)
    }

    /// The next row of all, with its partition's key in `last_key`.
    fn pull(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(row) = self.input.next(context)? else { return Ok(None) };
        self.last_key.clear();
        if let Some(partition) = &self.stage.partition {
            let mut env = Env::new(row.document(), &self.bindings);
            row.describe_key(&mut env);
            let value = partition.evaluate(&env)?;
            check_partition(value.raw_or_null())?;
            let key = &mut self.last_key;
            encode_value_with(key, value.raw_or_null(), false, self.stage.collator());
        }
        Ok(Some(row))
    }
}

/// Room for a field of the output: a name and a number.
const OUTPUT_BYTES: usize = 32;

/// Rows that so few others wait for are held as they were read.
const ROWS_HELD_AS_READ: u64 = 100;

/// Finds the stages behind which only their output is read.
pub(super) fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let (before, behind) = stages.split_at_mut(at + 1);
        if let Some(Stage::SetWindowFields(stage)) = before.last_mut() {
            let mut needed = Dependencies::default();
            let known =
                behind.iter().any(|stage| stage.behaviour().dependencies(&mut needed) == Beyond::Nothing);
            if known && stage.gives_all_of(&needed) {
                Arc::make_mut(stage).only_output_is_read = true;
            }
        }
    }
}

/// Whether rows need not be cut down before this stage: few are held at once, and none is copied.
pub(super) fn takes_as_read(stage: &Stage) -> bool {
    match stage {
        Stage::SetWindowFields(stage) => stage.only_output_is_read && stage.holds_at_most(ROWS_HELD_AS_READ),
        _ => false,
    }
}

impl SetWindowFields {
    pub(super) fn new(
        stage: &Arc<stage::SetWindowFields>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> SetWindowFields {
        let allow_disk_use = opening.reader.options().allow_disk_use;
        SetWindowFields {
            stage: stage.clone(),
            bindings: opening.bindings.clone(),
            partition: Partition {
                stage: stage.clone(),
                bindings: opening.bindings.clone(),
                input,
                rows: Rows::new(allow_disk_use, STAGE_BYTES_MAX),
                key: Vec::new(),
                last_key: Vec::new(),
                // The first row begins the first partition.
                ended: true,
                next: None,
                exhausted: false,
            },
            running: Vec::new(),
            current: 0,
            peaks: vec![0; stage.output.len()],
            total_peak: 0,
        }
    }

    /// Has the current row come, which may be the first of the next partition; whether there is one.
    fn reach_current(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        if self.partition.rows.end() > 0 && self.partition.reach(self.current, context)? {
            return Ok(true);
        }
        if !self.partition.advance(context)? {
            return Ok(false);
        }
        self.current = 0;
        let sort = self.stage.sort.as_deref();
        let begun = self.stage.output.iter().map(|(_, function)| {
            Ok(Running::new(function.begin(&self.bindings)?, function.frame().clone(), sort))
        });
        self.running = begun.collect::<Result<_>>()?;
        Ok(true)
    }

    /// Moves all frames to the current row; whether there is one.
    fn advance(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        if !self.reach_current(context)? {
            return Ok(false);
        }
        for running in &mut self.running {
            running.advance(self.current, &mut self.partition, &self.bindings, context)?;
        }
        self.check_memory()?;
        context.figures.used_disk |= self.partition.rows.has_spilled();
        Ok(true)
    }

    /// The current row is given. Rows that were given and that all functions have seen are not needed any more.
    fn release_given(&mut self) {
        self.current += 1;
        let seen = self.running.iter().map(Running::entered).fold(self.current, u64::min);
        self.partition.rows.release(seen);
    }

    /// Refuses what functions hold beyond the bound.
    fn check_memory(&mut self) -> Result<()> {
        let mut held = 0;
        for (running, peak) in self.running.iter().zip(&mut self.peaks) {
            let bytes = running.bytes();
            *peak = bytes.max(*peak);
            held += bytes;
        }
        self.total_peak = self.total_peak.max(held + self.partition.rows.bytes());
        if held > STAGE_BYTES_MAX {
            return Err(Error::location(
                5_414_201,
                format!(
                    "Exceeded memory limit in DocumentSourceSetWindowFields, used {held} bytes but max allowed is \
                     {STAGE_BYTES_MAX}"
                ),
            ));
        }
        Ok(())
    }
}

fn values_of(running: &mut [Running]) -> Result<Vec<Evaluated<'_>>> {
    running.iter_mut().map(Running::value).collect()
}

/// A document of the output alone.
fn output_alone(stage: &stage::SetWindowFields, values: &[Evaluated<'_>]) -> Result<Document> {
    let mut out = Writer::with_capacity(OUTPUT_BYTES * values.len());
    for ((name, _), value) in stage.output.iter().zip(values) {
        if let Some(value) = value.raw() {
            out.append(name, value);
            check_bytes(out.len())?;
        }
    }
    let document = out.finish();
    check_nesting(document.as_raw())?;
    Ok(document)
}

/// Shows the output of a row to a viewer that takes fields. What could make a document too large or too deep goes by way of
/// one.
fn show_values(
    stage: &stage::SetWindowFields,
    values: &[Evaluated<'_>],
    viewer: &mut dyn Viewer,
    context: &mut ExecContext<'_>,
) -> Result<()> {
    let is_small = |value: &Evaluated<'_>| match value.raw() {
        None | Some(RawValue::Null | RawValue::Bool(_) | RawValue::DateTime(_)) => true,
        Some(value) => value.is_number(),
    };
    if !values.iter().all(is_small) {
        let document = output_alone(stage, values)?;
        return viewer.see(Shown::Document(document.as_raw()), context);
    }
    match values {
        [one] => viewer.see(Shown::Fields(&[one.raw()]), context),
        all => {
            let all: Vec<Option<RawValue<'_>>> = all.iter().map(Evaluated::raw).collect();
            viewer.see(Shown::Fields(&all), context)
        }
    }
}

impl Step for SetWindowFields {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.advance(context)? {
            return Ok(None);
        }
        let row = self.partition.rows.get(self.current)?;
        let document = if self.stage.only_output_is_read {
            match &mut self.running[..] {
                // Mostly there is one, which needs no list.
                [one] => output_alone(&self.stage, &[one.value()?])?,
                all => output_alone(&self.stage, &values_of(all)?)?,
            }
        } else {
            let mut env = Env::new(row.document(), &self.bindings);
            row.describe(&mut env);
            let projection = &self.stage.projection;
            let document = match &mut self.running[..] {
                [one] => projection.with_values(&env, &[one.value()?])?,
                all => projection.with_values(&env, &values_of(all)?)?,
            };
            check_nesting(document.as_raw())?;
            document
        };
        let made = row.with(RowData::Document(document));
        self.release_given();
        Ok(Some(made))
    }

    fn show(&mut self, viewer: &mut dyn Viewer, context: &mut ExecContext<'_>) -> Result<()> {
        let names: Vec<Box<str>> = self.stage.output.iter().map(|(name, _)| name.clone()).collect();
        if !self.stage.only_output_is_read || !viewer.takes_fields(&names) {
            while let Some(row) = self.next(context)? {
                viewer.see(Shown::Row(&row), context)?;
            }
            return Ok(());
        }
        while self.advance(context)? {
            match &mut self.running[..] {
                [one] => show_values(&self.stage, &[one.value()?], viewer, context)?,
                all => show_values(&self.stage, &values_of(all)?, viewer, context)?,
            }
            self.release_given();
        }
        Ok(())
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.partition.input)
    }

    fn report(&self, out: &mut Writer) {
        out.open_document("maxFunctionMemoryUsageBytes");
        for ((path, _), peak) in self.stage.output.iter().zip(&self.peaks) {
            out.append(path, RawValue::Int64(*peak as i64));
        }
        out.close();
        out.append("maxTotalMemoryUsageBytes", RawValue::Int64(self.total_peak as i64));
        out.append("usedDisk", RawValue::Bool(self.partition.rows.has_spilled()));
    }
}
