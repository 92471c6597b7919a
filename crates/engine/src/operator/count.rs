//! Counts rows and hands none on.

use kilim_error::Result;

use super::{ExecContext, Operator, ReadContext, Stats, Worked};
use crate::records::Records;

pub(super) struct Count {
    pub(super) input: Box<Operator>,
    skip: u64,
    limit: Option<u64>,
}

impl Count {
    pub(super) fn new(skip: u64, limit: Option<u64>, input: Box<Operator>) -> Count {
        Count { input, skip, limit }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if self.limit.is_some_and(|limit| stats.counted >= limit) || self.input.is_finished() {
            return Ok(Worked::Eof);
        }
        match self.input.pass(context)? {
            Worked::Row(()) => {
                self.add(stats, 1);
                self.count_ahead(stats, context)?;
            }
            Worked::NeedTime => {}
            Worked::Eof => return Ok(Worked::Eof),
        }
        Ok(Worked::NeedTime)
    }

    /// Counts what can be counted together, as if it had been counted one by one.
    fn count_ahead(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<()> {
        let most = match self.skip.checked_sub(stats.skipped) {
            Some(skipping @ 1..) => skipping,
            _ => self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(stats.counted)),
        };
        let passed = match usize::try_from(most).unwrap_or(usize::MAX) {
            0 => 0,
            most => self.input.pass_ahead(context, most)?,
        };
        self.add(stats, passed);
        stats.works += passed;
        stats.need_time += passed;
        Ok(())
    }

    fn add(&self, stats: &mut Stats, rows: u64) {
        match stats.skipped < self.skip {
            true => stats.skipped += rows,
            false => stats.counted += rows,
        }
    }
}

/// The number of records as the collection's counter has it.
pub(super) struct RecordCount {
    records: Records,
    skip: u64,
    limit: Option<u64>,
}

impl RecordCount {
    pub(super) fn new(skip: u64, limit: Option<u64>, source: &ReadContext) -> RecordCount {
        RecordCount { records: source.records.clone(), skip, limit }
    }

    pub(super) fn work(&mut self, stats: &mut Stats) -> Result<Worked> {
        let counter = self.records.home().counts(self.records.snapshot())?;
        let records = u64::try_from(counter.count).unwrap_or(0);
        stats.skipped = records.min(self.skip);
        stats.counted = (records - stats.skipped).min(self.limit.unwrap_or(u64::MAX));
        Ok(Worked::Eof)
    }
}
