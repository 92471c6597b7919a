//! Records in the order of their numbers.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::{Direction, Scan, Snapshot, Space};

use super::buckets::FIRST_BUCKET;
use super::home::record_key;
use super::read::see;
use super::shape::Rows;
use super::split::matches;
use super::{Home, Image, Overlay, Records, RowId};
use crate::ids::{CollectionId, RecordId};
use crate::layout;

/// The rows of a range of records.
pub(crate) struct RecordScan {
    home: Home,
    scan: Scan,
    /// What is left of the record that was read last.
    rows: Rows,
    overlay: Option<Arc<dyn Overlay>>,
    snapshot: Snapshot,
}

/// What came of a look at one row.
pub(crate) enum Look {
    Row(RowId, Image),
    /// It does not match, or it is not there any more.
    Passed,
}

impl Records {
    pub fn scan(&self, range: impl RangeBounds<RecordId>, direction: Direction) -> RecordScan {
        RecordScan {
            home: self.home.clone(),
            scan: open(&self.snapshot, self.home.collection, range, direction),
            rows: Rows::none(),
            overlay: self.overlay.clone(),
            snapshot: self.snapshot.clone(),
        }
    }

    /// All rows, in the order of insertion.
    pub fn all(&self) -> RecordScan {
        self.scan(.., Direction::Forward)
    }
}

impl RecordScan {
    /// Looks at the next row; none behind the last.
    pub fn next_matching(&mut self, filter: Option<&Filter>) -> Result<Option<Look>> {
        let Some((id, image)) = self.next_stored()? else { return Ok(None) };
        let image = match &self.overlay {
            None => image,
            Some(overlay) => match see(&**overlay, image)? {
                Some(image) => image,
                None => return Ok(Some(Look::Passed)),
            },
        };
        if let Some(filter) = filter
            && !matches(&self.snapshot, &self.home, id, image.document(), filter)?
        {
            return Ok(Some(Look::Passed));
        }
        Ok(Some(Look::Row(id, image)))
    }

    fn next_stored(&mut self) -> Result<Option<(RowId, Image)>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Ok(Some(row));
            }
            let Some((key, stored)) = self.scan.next().transpose()? else { return Ok(None) };
            // SAFETY: the bytes come from the store, where only this module puts records.
            self.rows = unsafe { self.home.rows(layout::record_id_of(&key), stored, &self.snapshot)? };
        }
    }
}

impl Iterator for RecordScan {
    type Item = Result<(RowId, Image)>;

    fn next(&mut self) -> Option<Result<(RowId, Image)>> {
        loop {
            match self.next_matching(None) {
                Ok(Some(Look::Row(id, image))) => return Some(Ok((id, image))),
                Ok(Some(Look::Passed)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The numbers of a range of records; what they hold is not looked at.
pub(crate) fn ids<R: RangeBounds<RecordId>>(
    snapshot: &Snapshot,
    collection: CollectionId,
    range: R,
    direction: Direction,
) -> impl Iterator<Item = Result<RecordId>> + use<R> {
    open(snapshot, collection, range, direction).map(|entry| Ok(layout::record_id_of(&entry?.0)))
}

/// All records, buckets among them.
pub(super) fn open_all(snapshot: &Snapshot, collection: CollectionId, direction: Direction) -> Scan {
    open(snapshot, collection, ..=RecordId(u64::MAX), direction)
}

/// A range of records. Without an end, it ends before the first bucket.
pub(super) fn open(
    snapshot: &Snapshot,
    collection: CollectionId,
    range: impl RangeBounds<RecordId>,
    direction: Direction,
) -> Scan {
    let first = record_key(collection, RecordId(0));
    let last = record_key(collection, RecordId(FIRST_BUCKET - 1));
    let key = |bound: Bound<&RecordId>| bound.map(|record| record_key(collection, *record));
    let (start, end) = (key(range.start_bound()), key(range.end_bound()));
    let lower = match &start {
        Bound::Included(key) => Bound::Included(&key[..]),
        Bound::Excluded(key) => Bound::Excluded(&key[..]),
        Bound::Unbounded => Bound::Included(&first[..]),
    };
    let upper = match &end {
        Bound::Included(key) => Bound::Included(&key[..]),
        Bound::Excluded(key) => Bound::Excluded(&key[..]),
        Bound::Unbounded => Bound::Included(&last[..]),
    };
    snapshot.scan(Space::Records, lower, upper, direction)
}
