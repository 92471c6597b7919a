//! Counts the keys of one range. Rows carry nothing, so nothing is read beside the keys.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::{Scan, Space};

use super::index_scan::{Entry, Found, direction};
use super::key_ranges::KeyRanges;
use super::{ExecContext, ReadContext, Row, RowData, Stats, Worked};
use crate::plan::IndexScan;
use crate::records::{Records, RowId};

pub(super) struct CountScan {
    plan: Arc<IndexScan>,
    records: Records,
    scan: Option<Scan>,
    seen: Option<HashSet<RowId>>,
}

impl CountScan {
    pub(super) fn new(plan: Arc<IndexScan>, source: &ReadContext) -> CountScan {
        let scan = match KeyRanges::new(&plan.index, &plan.bounds, true) {
            KeyRanges::One(range) => Some(source.records.snapshot().scan(
                Space::Index,
                Bound::Included(&range.lower[..]),
                Bound::Excluded(&range.upper[..]),
                direction(false),
            )),
            _ => None,
        };
        CountScan {
            seen: plan.repeats_records().then(HashSet::new),
            records: source.records.clone(),
            scan,
            plan,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        Ok(match self.find(stats, context)? {
            Worked::Row(Found { id, entry, value }) => {
                Worked::Row(Row::new(id, RowData::Key { entry, value }))
            }
            Worked::NeedTime => Worked::NeedTime,
            Worked::Eof => Worked::Eof,
        })
    }

    /// Counts keys ahead without a look at them, as far as there is a way, and so many at most.
    pub(super) fn pass(
        &mut self,
        stats: &mut Stats,
        context: &mut ExecContext<'_>,
        max: usize,
    ) -> Result<usize> {
        let Some(scan) = &mut self.scan else { return Ok(0) };
        if self.seen.is_some() || self.plan.index.multikey.has_long_keys() {
            return Ok(0);
        }
        let passed = scan.pass_over(None, max)?;
        context.tick()?;
        stats.keys_examined += passed as u64;
        context.figures.keys_examined += passed as u64;
        Ok(passed)
    }

    /// Looks at the next key.
    pub(super) fn find(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked<Found>> {
        context.tick()?;
        // mongod also counts the key behind the last one, and counts are compared with it.
        stats.keys_examined += 1;
        context.figures.keys_examined += 1;
        let Some((entry, value)) = self.scan.as_mut().and_then(Iterator::next).transpose()? else {
            self.scan = None;
            return Ok(Worked::Eof);
        };
        let parts = Entry::split(&self.plan.index, &entry, &value)?;
        let row = parts.row;
        if let Some(seen) = &mut self.seen
            && !seen.insert(row)
        {
            return Ok(Worked::NeedTime);
        }
        if parts.is_long {
            stats.docs_examined += 1;
            context.figures.docs_examined += 1;
            let matches = match self.records.fetch(row)? {
                Some(image) => self.records.matches(&self.plan.recheck, row, &image)?,
                None => false,
            };
            if !matches {
                if let Some(seen) = &mut self.seen {
                    seen.remove(&row);
                }
                return Ok(Worked::NeedTime);
            }
        }
        Ok(Worked::Row(Found { id: row, entry, value }))
    }
}
