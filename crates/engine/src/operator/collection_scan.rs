//! All records of a collection, in insertion order or against it.

use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::{Direction, Scan, Space};

use super::row::document_of;
use super::{ExecContext, Row, RowData, Source, Stats, Work, seen};
use crate::catalog::RecordId;
use crate::layout;
use crate::maintenance::Patches;

pub(super) struct CollectionScan {
    scan: Option<Scan>,
    filter: Option<Arc<Filter>>,
    begun: bool,
    behind: Option<Arc<Patches>>,
}

impl CollectionScan {
    pub(super) fn new(filter: Option<Arc<Filter>>, backward: bool, source: &Source<'_>) -> CollectionScan {
        let nothing = matches!(filter.as_deref(), Some(Filter::False));
        let scan = (!nothing).then(|| {
            let lower = layout::record_key(source.collection, RecordId(0));
            let upper = layout::record_key(source.collection, RecordId(u64::MAX));
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            source.snapshot.scan(
                Space::Records,
                Bound::Included(&lower[..]),
                Bound::Included(&upper[..]),
                direction,
            )
        });
        CollectionScan { scan, filter, begun: false, behind: source.behind.cloned() }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        context.tick()?;
        if !self.begun {
            // mongod opens its cursor in a unit of work of its own, and counts are compared with it.
            self.begun = true;
            return Ok(Work::NeedTime);
        }
        let Some((key, stored)) = self.scan.as_mut().and_then(Iterator::next).transpose()? else {
            self.scan = None;
            return Ok(Work::Eof);
        };
        stats.docs_examined += 1;
        let Some(stored) = seen(self.behind.as_ref(), stored)? else { return Ok(Work::NeedTime) };
        if let Some(filter) = &self.filter
            && !filter.matches(document_of(&stored))?
        {
            return Ok(Work::NeedTime);
        }
        Ok(Work::Row(Row { record: layout::record_id_of(&key), data: RowData::Record(stored) }))
    }
}
