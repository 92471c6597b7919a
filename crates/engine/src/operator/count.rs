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
            Worked::Row(()) if stats.skipped < self.skip => stats.skipped += 1,
            Worked::Row(()) => stats.counted += 1,
            Worked::NeedTime => {}
            Worked::Eof => return Ok(Worked::Eof),
        }
        Ok(Worked::NeedTime)
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
