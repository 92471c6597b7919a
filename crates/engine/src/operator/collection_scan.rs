//! All records of a collection, in insertion order or against it; of a clustered one, in the order of `_id`.

use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::{Direction, Scan, Space};

use super::{ExecContext, ReadContext, Row, RowData, Stats, Worked};
use crate::ids::RecordId;
use crate::index::Index;
use crate::layout;
use crate::records::{Look, RecordScan, Records};

pub(super) struct CollectionScan {
    walk: Walk,
    filter: Option<Arc<Filter>>,
    begun: bool,
}

enum Walk {
    Records(RecordScan),
    /// The entries of `_id`'s index, and what they point to.
    Entries(Scan, Records),
    Ended,
}

impl CollectionScan {
    pub(super) fn new(
        from: RecordId,
        filter: Option<Arc<Filter>>,
        backward: bool,
        order: Option<&Index>,
        source: &ReadContext,
    ) -> CollectionScan {
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let nothing = matches!(filter.as_deref(), Some(Filter::False));
        let walk = match order {
            _ if nothing => Walk::Ended,
            Some(index) => {
                let (lower, upper) = (layout::index_prefix(index.id), (index.id.0 + 1).to_be_bytes());
                let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                let entries = source.records.snapshot().scan(Space::Index, lower, upper, direction);
                Walk::Entries(entries, source.records.clone())
            }
            None => Walk::Records(source.records.scan(from.., direction)),
        };
        CollectionScan { walk, filter, begun: false }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        context.tick()?;
        if !self.begun {
            // mongod opens its cursor in a unit of work of its own, and counts are compared with it.
            self.begun = true;
            return Ok(Worked::NeedTime);
        }
        let Some(look) = self.walk.next(self.filter.as_deref())? else {
            self.walk = Walk::Ended;
            return Ok(Worked::Eof);
        };
        stats.docs_examined += 1;
        context.figures.docs_examined += 1;
        Ok(match look {
            Look::Row(id, image) => Worked::Row(Row::new(id, RowData::Record(image))),
            Look::Passed => Worked::NeedTime,
        })
    }
}

impl Walk {
    fn next(&mut self, filter: Option<&Filter>) -> Result<Option<Look>> {
        let (entries, records) = match self {
            Walk::Records(scan) => return scan.next_matching(filter),
            Walk::Entries(entries, records) => (entries, records),
            Walk::Ended => return Ok(None),
        };
        let Some((_, value)) = entries.next().transpose()? else { return Ok(None) };
        // Entries of `_id` are unique, so they begin with the record's number.
        let id = layout::record_id_of(&value[..8]).into();
        let Some(image) = records.fetch(id)? else { return Ok(Some(Look::Passed)) };
        let matches = match filter {
            Some(filter) => records.matches(filter, id, &image)?,
            None => true,
        };
        Ok(Some(if matches { Look::Row(id, records.shown(id, image)?) } else { Look::Passed }))
    }
}
