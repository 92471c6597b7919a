//! Rows gathered to be given back in order, in plans and in pipelines.
//!
//! With a limit it keeps the best rows only. Without, it holds everything in memory up to a bound; beyond
//! that it writes sorted runs to disk if that is allowed, and fails otherwise, as MongoDB does.

use std::collections::BinaryHeap;

use kilim_error::{Error, ErrorCode, Result};

use kilim_query::interrupt;

use super::Row;
use super::spill::{Merge, Run, SortEntry};
use crate::limits::SORT_BYTES_MAX;

pub(crate) struct SortBuffer {
    limit: Option<u64>,
    allow_disk_use: bool,
    pub(super) bytes_max: usize,
    bytes: usize,
    sequence: u64,
    /// With a limit a heap whose top is the worst row, without one just a list.
    best: BinaryHeap<SortEntry>,
    all: Vec<SortEntry>,
    runs: Vec<Run>,
    output: Option<Output>,
    /// Bytes that came by, and how often they went to disk.
    pub(crate) sorted_bytes: u64,
    pub(crate) spills: u64,
}

enum Output {
    /// Each row once, in this order.
    Memory {
        rows: Vec<Option<Row>>,
        order: std::vec::IntoIter<u32>,
    },
    Best(std::vec::IntoIter<SortEntry>),
    Disk {
        merge: Box<Merge>,
        left: u64,
    },
}

impl SortBuffer {
    pub(crate) fn new(limit: Option<u64>, allow_disk_use: bool) -> SortBuffer {
        SortBuffer {
            limit,
            allow_disk_use,
            bytes_max: SORT_BYTES_MAX,
            bytes: 0,
            sequence: 0,
            best: BinaryHeap::new(),
            all: Vec::new(),
            runs: Vec::new(),
            output: None,
            sorted_bytes: 0,
            spills: 0,
        }
    }

    /// Takes a row that has its document, and the key whose bytes order it.
    pub(crate) fn push(&mut self, key: &[u8], row: Row) -> Result<()> {
        if self.admits(key, &row) { self.keep(key, row) } else { Ok(()) }
    }

    /// The same with a row that others hold too: only one that is kept is cloned.
    pub(crate) fn push_shared(&mut self, key: &[u8], row: &Row) -> Result<()> {
        if self.admits(key, row) { self.keep(key, row.clone()) } else { Ok(()) }
    }

    /// Whether a row is behind all that are kept, as the beginning of its key tells. One that is, is counted.
    pub(crate) fn refuses(&mut self, leading: &[u8], row: &Row) -> bool {
        let behind = |worst: &SortEntry| worst.key.get(..leading.len()).is_some_and(|worst| worst < leading);
        let refused = self.best.peek().is_none_or(behind) && self.is_full();
        if refused {
            self.sorted_bytes += (leading.len() + row.document().as_bytes().len()) as u64;
        }
        refused
    }

    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.best.len() as u64 >= limit)
    }

    /// Counts a row, and says whether it is among the best so far.
    fn admits(&mut self, key: &[u8], row: &Row) -> bool {
        self.sorted_bytes += (key.len() + row.document().as_bytes().len()) as u64;
        !self.is_full() || self.best.peek().is_some_and(|worst| *worst.key > *key)
    }

    fn keep(&mut self, key: &[u8], row: Row) -> Result<()> {
        let full = self.is_full();
        let entry = SortEntry { key: key.into(), sequence: self.sequence, row };
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
        if self.bytes > self.bytes_max { self.spill() } else { Ok(()) }
    }

    /// Ends the gathering; from here on [`SortBuffer::next`] gives the rows.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.output = Some(if self.runs.is_empty() && self.limit.is_some() {
            Output::Best(self.sorted()?.into_iter())
        } else if self.runs.is_empty() {
            let entries = std::mem::take(&mut self.all);
            let order = order_of(&entries)?.into_iter();
            Output::Memory { rows: entries.into_iter().map(|entry| Some(entry.row)).collect(), order }
        } else {
            if !self.all.is_empty() || !self.best.is_empty() {
                self.spill()?;
            }
            let merge = Box::new(Merge::new(std::mem::take(&mut self.runs))?);
            Output::Disk { merge, left: self.limit.unwrap_or(u64::MAX) }
        });
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.output.is_some()
    }

    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        let entry = match &mut self.output {
            None => return Err(Error::bug("a sort was asked for rows before it had all")),
            Some(Output::Memory { rows, order }) => {
                return Ok(order.next().and_then(|at| rows[at as usize].take()));
            }
            Some(Output::Best(entries)) => entries.next(),
            Some(Output::Disk { left: 0, .. }) => None,
            Some(Output::Disk { merge, left }) => {
                *left -= 1;
                merge.next()?
            }
        };
        Ok(entry.map(|entry| entry.row))
    }

    /// Writes what is held to disk.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if !self.allow_disk_use {
            return Err(Error::user(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting.",
                    self.bytes_max
                ),
            ));
        }
        self.spills += 1;
        let entries = self.sorted()?;
        self.runs.push(Run::write(entries.into_iter())?);
        self.bytes = 0;
        Ok(())
    }

    fn sorted(&mut self) -> Result<Vec<SortEntry>> {
        if self.limit.is_some() {
            return Ok(std::mem::take(&mut self.best).into_sorted_vec());
        }
        let mut entries = std::mem::take(&mut self.all);
        interrupt::sort(&mut entries, Ord::cmp)?;
        Ok(entries)
    }
}

/// The order of entries that came one after the other. What moves while it is found is small: an entry's place,
/// and the first bytes of its key, which decide most comparisons without a look at the key.
fn order_of(entries: &[SortEntry]) -> Result<Vec<u32>> {
    let beginning = |key: &[u8]| match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    };
    let mut order: Vec<(u64, u32)> =
        entries.iter().enumerate().map(|(at, entry)| (beginning(&entry.key), at as u32)).collect();
    interrupt::sort(&mut order, |one, other| {
        let keys = || entries[one.1 as usize].key.cmp(&entries[other.1 as usize].key);
        one.0.cmp(&other.0).then_with(keys).then(one.1.cmp(&other.1))
    })?;
    Ok(order.into_iter().map(|(_, at)| at).collect())
}

#[cfg(test)]
mod tests {
    use kilim_query::sort::Sort;

    use super::*;
    use crate::operator::RowData;

    #[test]
    fn a_sort_that_spills_gives_the_same_rows_as_one_that_does_not() {
        for limit in [None, Some(7), Some(70)] {
            let order = |bytes_max: usize| {
                let sort = Sort::parse(kilim_bson::doc! {"n": 1}.as_raw()).expect("a sort");
                let mut buffer = SortBuffer::new(limit, true);
                buffer.bytes_max = bytes_max;
                for record in 0..100u64 {
                    let document = kilim_bson::doc! {"n": (record * 37 % 50) as i32};
                    // Records and documents take different ways to disk.
                    let data = match record % 2 {
                        0 => RowData::Document(document),
                        _ => {
                            let mut stored = vec![0; 8];
                            stored.extend_from_slice(document.as_bytes());
                            // SAFETY: eight bytes and a document.
                            RowData::Record(unsafe { crate::records::Image::from_bytes(stored.into()) })
                        }
                    };
                    let row = Row::new(crate::ids::RecordId(record).into(), data);
                    let mut key = Vec::new();
                    sort.key_of(row.document(), &mut key).expect("a key");
                    buffer.push(&key, row).expect("taken");
                }
                buffer.finish().expect("finished");
                let mut records = Vec::new();
                while let Some(row) = buffer.next().expect("a row") {
                    let wanted = (row.id.record.0 * 37 % 50) as i32;
                    let number = row.document().get("n");
                    assert!(matches!(number, Some(kilim_bson::RawValue::Int32(number)) if number == wanted));
                    records.push(row.id.record.0);
                }
                (records, buffer.spills)
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
