//! All records of a collection, in insertion order or against it; of a clustered one, in the order of `_id`.

use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::{Direction, Scan, Snapshot, Space};

use super::fetch::read_record;
use super::row::document_of;
use super::{ExecContext, Row, RowData, Source, Stats, Work, seen};
use crate::ids::{CollectionId, RecordId};
use crate::index::Index;
use crate::layout;
use crate::maintenance::Patches;

pub(super) struct CollectionScan {
    scan: Option<Scan>,
    /// Where the scan is one of index entries: what their records are read from.
    records: Option<(CollectionId, Snapshot)>,
    filter: Option<Arc<Filter>>,
    begun: bool,
    behind: Option<Arc<Patches>>,
}

impl CollectionScan {
    pub(super) fn new(
        from: RecordId,
        filter: Option<Arc<Filter>>,
        backward: bool,
        order: Option<&Index>,
        source: &Source<'_>,
    ) -> CollectionScan {
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let nothing = matches!(filter.as_deref(), Some(Filter::False));
        let scan = (!nothing).then(|| {
            if let Some(index) = order {
                let (lower, upper) = (layout::index_prefix(index.id), (index.id.0 + 1).to_be_bytes());
                let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                return source.snapshot.scan(Space::Index, lower, upper, direction);
            }
            let lower = layout::record_key(source.collection, from);
            let upper = layout::record_key(source.collection, RecordId(u64::MAX));
            source.snapshot.scan(
                Space::Records,
                Bound::Included(&lower[..]),
                Bound::Included(&upper[..]),
                direction,
            )
        });
        let records = order.map(|_| (source.collection, source.snapshot.clone()));
        CollectionScan { scan, records, filter, begun: false, behind: source.behind.cloned() }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        context.tick()?;
        if !self.begun {
            // mongod opens its cursor in a unit of work of its own, and counts are compared with it.
            self.begun = true;
            return Ok(Work::NeedTime);
        }
        let Some((key, value)) = self.scan.as_mut().and_then(Iterator::next).transpose()? else {
            self.scan = None;
            return Ok(Work::Eof);
        };
        let (record, stored) = match &self.records {
            None => (layout::record_id_of(&key), value),
            Some((collection, snapshot)) => {
                // Entries of `_id` are unique, so they begin with the record's number.
                let record = layout::record_id_of(&value[..8]);
                (record, read_record(snapshot, *collection, record)?)
            }
        };
        stats.docs_examined += 1;
        context.figures.docs_examined += 1;
        let Some(stored) = seen(self.behind.as_ref(), stored)? else { return Ok(Work::NeedTime) };
        if let Some(filter) = &self.filter
            && !filter.matches(document_of(&stored))?
        {
            return Ok(Work::NeedTime);
        }
        Ok(Work::Row(Row::new(record, RowData::Record(stored))))
    }
}
