//! A sort that must see all rows before it gives the first.
//!
//! With a limit it keeps the best rows only. Without, it holds everything in memory up to 100 MB; beyond
//! that it writes sorted runs to disk if the request allows it, and fails otherwise, as MongoDB does.

use std::collections::BinaryHeap;
use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_query::sort::Sort;

use super::spill::{Merge, Run, SortEntry};
use super::{ExecContext, Operator, Row, RowData, Source, Stats, Work};

/// As on MongoDB; explain prints it.
pub const SORT_BYTES_MAX: usize = 100 * 1024 * 1024;

pub(super) struct Sorter {
    pub(super) input: Box<Operator>,
    sort: Arc<Sort>,
    limit: Option<u64>,
    allow_disk_use: bool,
    bytes_max: usize,
    key: Vec<u8>,
    bytes: usize,
    sequence: u64,
    /// With a limit a heap whose top is the worst row, without one just a list.
    best: BinaryHeap<SortEntry>,
    all: Vec<SortEntry>,
    runs: Vec<Run>,
    output: Option<Output>,
}

enum Output {
    Memory(std::vec::IntoIter<SortEntry>),
    Disk { merge: Box<Merge>, left: u64 },
}

impl Sorter {
    pub(super) fn new(
        sort: Arc<Sort>,
        limit: Option<u64>,
        input: Box<Operator>,
        source: &Source<'_>,
    ) -> Sorter {
        Sorter {
            input,
            sort,
            limit,
            allow_disk_use: source.allow_disk_use,
            bytes_max: SORT_BYTES_MAX,
            key: Vec::new(),
            bytes: 0,
            sequence: 0,
            best: BinaryHeap::new(),
            all: Vec::new(),
            runs: Vec::new(),
            output: None,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        if let Some(output) = &mut self.output {
            context.tick()?;
            let entry = match output {
                Output::Memory(entries) => entries.next(),
                Output::Disk { left: 0, .. } => None,
                Output::Disk { merge, left } => {
                    *left -= 1;
                    merge.next()?
                }
            };
            return Ok(match entry {
                Some(entry) => Work::Row(Row { record: entry.record, data: RowData::Record(entry.stored) }),
                None => Work::Eof,
            });
        }
        match self.input.work(context)? {
            Work::Row(row) => self.take(row, stats)?,
            Work::NeedTime => {}
            Work::Eof => self.finish(stats)?,
        }
        Ok(Work::NeedTime)
    }

    fn take(&mut self, row: Row, stats: &mut Stats) -> Result<()> {
        let RowData::Record(stored) = row.data else {
            return Err(Error::bug("a sort was given a row without its record"));
        };
        self.key.clear();
        self.sort.key_of(super::row::document_of(&stored), &mut self.key)?;
        stats.sorted_bytes += (self.key.len() + stored.len()) as u64;
        let full = self.limit.is_some_and(|limit| self.best.len() as u64 >= limit);
        if full && self.best.peek().is_none_or(|worst| *worst.key <= self.key[..]) {
            return Ok(());
        }
        let entry =
            SortEntry { key: self.key[..].into(), sequence: self.sequence, record: row.record, stored };
        self.sequence += 1;
        self.bytes += entry.bytes();
        if self.limit.is_some() {
            self.best.push(entry);
            if full && let Some(worst) = self.best.pop() {
                self.bytes -= worst.bytes();
            }
        } else {
            self.all.push(entry);
        }
        if self.bytes > self.bytes_max { self.spill(stats) } else { Ok(()) }
    }

    fn spill(&mut self, stats: &mut Stats) -> Result<()> {
        if !self.allow_disk_use {
            return Err(Error::user(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Executor error during find command :: caused by :: Sort exceeded memory limit of {} bytes, \
                     but did not opt in to external sorting.",
                    self.bytes_max
                ),
            ));
        }
        stats.spills += 1;
        let entries = self.sorted();
        self.runs.push(Run::write(entries.into_iter())?);
        self.bytes = 0;
        Ok(())
    }

    fn sorted(&mut self) -> Vec<SortEntry> {
        if self.limit.is_some() {
            return std::mem::take(&mut self.best).into_sorted_vec();
        }
        let mut entries = std::mem::take(&mut self.all);
        entries.sort_unstable();
        entries
    }

    fn finish(&mut self, stats: &mut Stats) -> Result<()> {
        self.output = Some(if self.runs.is_empty() {
            Output::Memory(self.sorted().into_iter())
        } else {
            if !self.all.is_empty() || !self.best.is_empty() {
                self.spill(stats)?;
            }
            let merge = Box::new(Merge::new(std::mem::take(&mut self.runs))?);
            Output::Disk { merge, left: self.limit.unwrap_or(u64::MAX) }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Kind;

    #[test]
    fn a_sort_that_spills_gives_the_same_rows_as_one_that_does_not() {
        for limit in [None, Some(7), Some(70)] {
            let order = |bytes_max: usize| {
                let input = Box::new(Operator { stats: Stats::default(), kind: Kind::Eof });
                let sort = Sort::parse(kilim_bson::doc! {"n": 1}.as_raw()).expect("a sort");
                let mut sorter = Sorter {
                    input,
                    sort: Arc::new(sort),
                    limit,
                    allow_disk_use: true,
                    bytes_max,
                    key: Vec::new(),
                    bytes: 0,
                    sequence: 0,
                    best: BinaryHeap::new(),
                    all: Vec::new(),
                    runs: Vec::new(),
                    output: None,
                };
                let mut stats = Stats::default();
                for record in 0..100u64 {
                    let mut stored = vec![0; 8];
                    stored.extend_from_slice(kilim_bson::doc! {"n": (record * 37 % 50) as i32}.as_bytes());
                    let data = RowData::Record(stored.into());
                    sorter
                        .take(Row { record: crate::catalog::RecordId(record), data }, &mut stats)
                        .expect("taken");
                }
                sorter.finish(&mut stats).expect("finished");
                let mut context = ExecContext::new(&|| Ok(()));
                let mut records = Vec::new();
                while let Work::Row(row) = sorter.work(&mut stats, &mut context).expect("a row") {
                    records.push(row.record.0);
                }
                (records, stats.spills)
            };
            let (expected, none) = order(SORT_BYTES_MAX);
            let (spilled, spills) = order(300);
            assert_eq!(none, 0);
            assert!(spills > 0);
            assert_eq!(spilled, expected, "limit {limit:?}");
            assert_eq!(expected.len() as u64, limit.unwrap_or(100));
        }
    }
}
