//! Counts the keys of one range. Rows carry nothing, so nothing is read beside the keys.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::{Scan, Snapshot, Space};

use super::fetch::read_record;
use super::index_scan::{Entry, direction};
use super::key_ranges::KeyRanges;
use super::row::document_of;
use super::{ExecContext, Row, RowData, Source, Stats, Work};
use crate::ids::{CollectionId, RecordId};
use crate::plan::IndexScan;

pub(super) struct CountScan {
    plan: Arc<IndexScan>,
    collection: CollectionId,
    snapshot: Snapshot,
    scan: Option<Scan>,
    seen: Option<HashSet<RecordId>>,
}

impl CountScan {
    pub(super) fn new(plan: Arc<IndexScan>, source: &Source<'_>) -> CountScan {
        let scan = match KeyRanges::new(&plan.index, &plan.bounds, true) {
            KeyRanges::One(range) => Some(source.snapshot.scan(
                Space::Index,
                Bound::Included(&range.lower[..]),
                Bound::Excluded(&range.upper[..]),
                direction(false),
            )),
            _ => None,
        };
        CountScan {
            seen: plan.repeats_records().then(HashSet::new),
            collection: source.collection,
            snapshot: source.snapshot.clone(),
            scan,
            plan,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        context.tick()?;
        // mongod also counts the key behind the last one, and counts are compared with it.
        stats.keys_examined += 1;
        context.figures.keys_examined += 1;
        let Some((entry, value)) = self.scan.as_mut().and_then(Iterator::next).transpose()? else {
            self.scan = None;
            return Ok(Work::Eof);
        };
        let parts = Entry::split(&self.plan.index, &entry, &value)?;
        let record = parts.record;
        if let Some(seen) = &mut self.seen
            && !seen.insert(record)
        {
            return Ok(Work::NeedTime);
        }
        if parts.is_long {
            stats.docs_examined += 1;
            context.figures.docs_examined += 1;
            let stored = read_record(&self.snapshot, self.collection, record)?;
            if !self.plan.recheck.matches(document_of(&stored))? {
                if let Some(seen) = &mut self.seen {
                    seen.remove(&record);
                }
                return Ok(Work::NeedTime);
            }
        }
        Ok(Work::Row(Row::new(record, RowData::Key { entry, value })))
    }
}
