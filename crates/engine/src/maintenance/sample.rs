//! Records chosen at random.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use kilim_error::Result;
use kilim_storage::{Direction, Snapshot, Space};

use super::look::count_of;
use crate::catalog::{Collection, RecordId};
use crate::layout;

/// From this share on, visiting all and leaving some out costs less than looking for each.
pub(super) const SCANNED_SHARE: f64 = 0.2;

/// About this share of a collection's records, in order, each once; at least one where there are any.
///
/// Numbers are drawn, and each stands for the first record from there on. So a record behind a gap is drawn more often:
/// good enough to find drift, and as cheap as the sample is small.
pub(super) fn chosen(collection: &Collection, snapshot: &Snapshot, share: f64) -> Result<Vec<RecordId>> {
    let count = count_of(snapshot, collection)?;
    let end = collection.shared.next_record.load(Ordering::Relaxed).max(1);
    let wanted = (count as f64 * share).ceil() as usize;
    let mut drawn: Vec<u64> = (0..wanted).map(|_| rand::random_range(0..end)).collect();
    drawn.sort_unstable();
    let mut records: Vec<RecordId> = Vec::with_capacity(drawn.len());
    for number in drawn {
        if records.last().is_some_and(|last| last.0 >= number) {
            continue;
        }
        let lower = layout::record_key(collection.id, RecordId(number));
        let upper = layout::record_key(collection.id, RecordId(u64::MAX));
        let bounds = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
        match snapshot.scan(Space::Records, bounds.0, bounds.1, Direction::Forward).next() {
            Some(row) => records.push(layout::record_id_of(&row?.0)),
            None => break,
        }
    }
    if records.is_empty() && count > 0 {
        let lower = layout::record_key(collection.id, RecordId(0));
        let upper = layout::record_key(collection.id, RecordId(u64::MAX));
        let bounds = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
        let first = snapshot.scan(Space::Records, bounds.0, bounds.1, Direction::Forward).next();
        records.extend(first.transpose()?.map(|row| layout::record_id_of(&row.0)));
    }
    Ok(records)
}
