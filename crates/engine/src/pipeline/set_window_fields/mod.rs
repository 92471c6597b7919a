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

use std::sync::Arc;

use kilim_bson::{RawValue, Writer, encode_value_with};
use kilim_error::{Error, Result};
use kilim_query::expression::{Bindings, Env, Evaluated};
use kilim_query::stage::{self, check_nesting, check_partition};

use self::frame::Running;
use self::rows::Rows;
use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Step};
use crate::operator::{ExecContext, Row, RowData};

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
    /// Its last row has come.
    ended: bool,
    /// The first row of the next partition, and its key.
    next: Option<(Row, Vec<u8>)>,
    /// There are no more partitions.
    exhausted: bool,
}

impl Partition {
    /// Makes the next partition the current one; whether there is one.
    fn advance(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        if self.next.is_none() && !self.exhausted {
            self.next = self.pull(context)?;
        }
        let Some((row, key)) = self.next.take() else {
            self.exhausted = true;
            return Ok(false);
        };
        self.rows.clear();
        self.rows.push(row)?;
        self.key = key;
        self.ended = false;
        Ok(true)
    }

    /// The row at a place of the partition, none beyond its end.
    fn row(&mut self, place: u64, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        while place >= self.rows.end() {
            if self.ended {
                return Ok(None);
            }
            match self.pull(context)? {
                None => (self.ended, self.exhausted) = (true, true),
                Some((row, key)) if key == self.key => self.rows.push(row)?,
                Some(next) => {
                    self.ended = true;
                    self.next = Some(next);
                }
            }
        }
        self.rows.get(place).map(Some)
    }

    fn pull(&mut self, context: &mut ExecContext<'_>) -> Result<Option<(Row, Vec<u8>)>> {
        context.tick()?;
        let Some(row) = self.input.next(context)? else { return Ok(None) };
        let mut key = Vec::new();
        if let Some(partition) = &self.stage.partition {
            let mut env = Env::new(row.document(), &self.bindings);
            row.describe_key(&mut env);
            let value = partition.evaluate(&env)?;
            check_partition(value.raw_or_null())?;
            encode_value_with(&mut key, value.raw_or_null(), false, self.stage.collator());
        }
        Ok(Some((row.shared(), key)))
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

    /// The current row, which may be the first of the next partition.
    fn current_row(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.partition.rows.end() > 0
            && let Some(row) = self.partition.row(self.current, context)?
        {
            return Ok(Some(row));
        }
        if !self.partition.advance(context)? {
            return Ok(None);
        }
        self.current = 0;
        let sort = self.stage.sort.as_deref();
        let begun = self.stage.output.iter().map(|(_, function)| {
            Ok(Running::new(function.begin(&self.bindings)?, function.frame().clone(), sort))
        });
        self.running = begun.collect::<Result<_>>()?;
        self.partition.row(0, context)
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

impl Step for SetWindowFields {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(row) = self.current_row(context)? else { return Ok(None) };
        for running in &mut self.running {
            running.advance(self.current, &row, &mut self.partition, &self.bindings, context)?;
        }
        self.check_memory()?;
        context.figures.used_disk |= self.partition.rows.has_spilled();
        let values: Vec<Evaluated<'_>> =
            self.running.iter_mut().map(Running::value).collect::<Result<_>>()?;
        let mut env = Env::new(row.document(), &self.bindings);
        row.describe(&mut env);
        let document = self.stage.projection.with_values(&env, &values)?;
        check_nesting(document.as_raw())?;
        let made = row.with(RowData::Document(document));
        self.current += 1;
        // Rows that were given and that all functions have seen are not needed any more.
        let seen = self.running.iter().map(Running::entered).fold(self.current, u64::min);
        self.partition.rows.release(seen);
        Ok(Some(made))
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
