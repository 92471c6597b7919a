//! All records of a collection, in insertion order or against it; of a clustered one, in the order of `_id`.

use std::ops::Bound;
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::{Direction, Scan, Space};

use super::{ExecContext, ReadContext, Row, RowData, Shown, Stats, Viewer, Worked};
use crate::ids::RecordId;
use crate::index::Index;
use crate::layout;
use crate::records::{BucketScan, Look, RecordScan, Records, Seen, Shape};

pub(super) struct CollectionScan {
    walk: Walk,
    filter: Option<Arc<Filter>>,
    begun: bool,
}

/// In which order records are wanted.
pub(super) enum Order<'i> {
    Insertion,
    /// As they lie. For all collections but large ones with buckets that is the order of insertion.
    Any,
    By(&'i Index),
}

enum Walk {
    Records(RecordScan),
    /// A collection with buckets that is yet to be looked at.
    Unopened(Records, RecordId),
    Buckets(Box<BucketScan>),
    /// The entries of `_id`'s index, and what they point to.
    Entries(Scan, Records),
    Ended,
}

impl CollectionScan {
    pub(super) fn new(
        from: RecordId,
        filter: Option<Arc<Filter>>,
        backward: bool,
        order: Order<'_>,
        source: &ReadContext,
    ) -> CollectionScan {
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let nothing = matches!(filter.as_deref(), Some(Filter::False));
        let walk = match order {
            _ if nothing => Walk::Ended,
            Order::By(index) => {
                let (lower, upper) = (layout::index_prefix(index.id), (index.id.0 + 1).to_be_bytes());
                let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                let entries = source.records.snapshot().scan(Space::Index, lower, upper, direction);
                Walk::Entries(entries, source.records.clone())
            }
            Order::Any if matches!(source.records.home().shape, Shape::Bucketed(_)) => {
                Walk::Unopened(source.records.clone(), from)
            }
            Order::Any | Order::Insertion => Walk::Records(source.records.scan(from.., direction)),
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

impl CollectionScan {
    /// Shows all rows that are left, those that lie in buckets as the values of fields of these names. False where rows are
    /// to be read one by one: nothing was shown then.
    pub(super) fn show(
        &mut self,
        stats: &mut Stats,
        names: &[Box<str>],
        viewer: &mut dyn Viewer,
        context: &mut ExecContext<'_>,
    ) -> Result<bool> {
        self.walk.open()?;
        let (None, Walk::Buckets(scan)) = (&self.filter, &mut self.walk) else { return Ok(false) };
        if !viewer.takes_fields(names) {
            return Ok(false);
        }
        self.begun = true;
        scan.each(names, &mut |seen| {
            context.tick()?;
            stats.works += 1;
            stats.docs_examined += 1;
            context.figures.docs_examined += 1;
            match seen {
                Seen::Passed => stats.need_time += 1,
                Seen::Row(id, image) => {
                    stats.advanced += 1;
                    viewer.see(Shown::Row(&Row::new(id, RowData::Record(image))), context)?;
                }
                Seen::Fields(values) => {
                    stats.advanced += 1;
                    viewer.see(Shown::Fields(values), context)?;
                }
            }
            Ok(())
        })?;
        self.walk = Walk::Ended;
        stats.is_eof = true;
        Ok(true)
    }
}

impl Walk {
    /// Looks how a collection with buckets is read.
    fn open(&mut self) -> Result<()> {
        if let Walk::Unopened(records, from) = self {
            *self = match records.by_bucket()? {
                Some(scan) => Walk::Buckets(Box::new(scan)),
                None => Walk::Records(records.scan(*from.., Direction::Forward)),
            };
        }
        Ok(())
    }

    fn next(&mut self, filter: Option<&Filter>) -> Result<Option<Look>> {
        self.open()?;
        let (entries, records) = match self {
            Walk::Records(scan) => return scan.next_matching(filter),
            Walk::Buckets(scan) => return scan.next_matching(filter),
            Walk::Unopened(..) => return Ok(Some(Look::Passed)),
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
        Ok(Some(if matches { Look::Row(id, image) } else { Look::Passed }))
    }
}
