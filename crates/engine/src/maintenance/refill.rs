//! Refilling a group's state from its supporting index: only the first few children in an accumulator's order are read.

use std::ops::Bound;

use kilim_bson::{RawValue, encode_value};
use kilim_error::Result;
use kilim_patterns::{GroupState, Walk};
use kilim_storage::{Direction, Snapshot, Space};

use super::evaluation::Evaluation;
use super::evaluation::Side;
use super::group::Group;
use crate::catalog::Collection;
use crate::index::{Index, KeyPart};
use crate::layout;
use crate::records::Records;
use crate::unit::Unit;

/// Behind all keys that begin with the same parts.
const BEHIND: u8 = 0xFF;

impl Group<'_> {
    /// Computes the parts of the state that belong to some accumulators again, from the children before or after the change.
    /// False if an index for one of them is missing. The group is held.
    pub fn refill(
        &self,
        unit: &mut Unit<'_>,
        evaluation: &Evaluation,
        state: &mut GroupState,
        parts: &[usize],
        side: Side,
    ) -> Result<bool> {
        let (Some(source), Some(field)) = (&self.pattern.source, self.rollup.key_field()) else {
            return Ok(false);
        };
        let Some(collection) = unit.join(source)? else { return Ok(false) };
        // All changes of this group's children are queued, because the group is held. So they are in this snapshot.
        let snapshot = unit.newest_snapshot()?;
        for part in parts {
            let (Some(walk), Some(mut refill)) =
                (self.rollup.walk(*part), self.rollup.refill(self.key, *part)?)
            else {
                return Ok(false);
            };
            let Some((index, is_longer)) = index_for(&collection, field, walk, &snapshot) else {
                return Ok(false);
            };
            if is_longer {
                refill.expect_mixed_ties();
            }
            let records = Records::new(collection.home(), &snapshot);
            'walk: for (lower, upper) in ranges(index, walk, self.key) {
                let direction = if walk.backward { Direction::Backward } else { Direction::Forward };
                let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                for entry in snapshot.scan(Space::Index, bounds.0, bounds.1, direction) {
                    unit.operation.check()?;
                    let (entry, value) = entry?;
                    let record = match index.spec.unique {
                        true => layout::record_id_of(&value[..8]),
                        false => layout::record_id_of(&entry),
                    };
                    if evaluation.place_of(&collection, record).is_some() {
                        continue;
                    }
                    let Some(child) = records.get(record.into())? else { continue };
                    unit.engine.metrics.documents_examined.add(1);
                    for row in self.rollup.rows_of(Some(child.document())) {
                        if row.key_bytes == self.key_bytes && refill.offer(record.0, row)? {
                            break 'walk;
                        }
                    }
                }
            }
            for at in evaluation.places(source) {
                let touched = &evaluation.touched[at];
                let came = touched.record.map_or(u64::MAX, |record| record.0);
                for row in self.rollup.rows_of(touched.on(side)) {
                    if row.key_bytes == self.key_bytes {
                        refill.add(came, row);
                    }
                }
            }
            refill.finish(self.key, state)?;
        }
        Ok(true)
    }
}

/// An index whose entries are in the order of the walk, and whether it has parts behind those of the walk: its entries of
/// equal children then lie in another order than the children came. One without such parts is preferred. A multikey index
/// does not serve: a child has several entries there.
fn index_for<'c>(
    collection: &'c Collection,
    field: &str,
    walk: &Walk,
    snapshot: &Snapshot,
) -> Option<(&'c Index, bool)> {
    let wanted = KeyPart::all_of(walk.index(field).as_raw());
    let serves = |index: &&Index| {
        let spec = &index.spec;
        let ordered = match walk.order.is_empty() {
            true => spec.key == wanted,
            false => spec.key.starts_with(&wanted),
        };
        ordered
            && !spec.sparse
            && !spec.hidden
            && spec.partial.is_none()
            && spec.has_plain_keys()
            && !index.multikey.is_multikey()
            && !index.multikey.has_long_keys()
            && index.ready_since <= snapshot.commit_time()
    };
    let serving = collection.indexes.iter().map(|index| &**index).filter(serves);
    let best = serving.min_by_key(|index| index.spec.key.len())?;
    Some((best, best.spec.key.len() > wanted.len()))
}

/// The ranges of the index in which the group's entries lie, without those for null if the accumulator ignores null.
fn ranges(index: &Index, walk: &Walk, key: RawValue<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut first = layout::index_prefix(index.id).to_vec();
    encode_value(&mut first, key, index.spec.key[0].descending);
    let with = |value: Option<RawValue<'_>>, end: &[u8]| {
        let mut bound = first.clone();
        if let (Some(value), Some((_, descends))) = (value, walk.order.first()) {
            encode_value(&mut bound, value, *descends);
        }
        bound.extend_from_slice(end);
        bound
    };
    let (begin, end) = (with(None, &[]), with(None, &[BEHIND]));
    match walk.order.first() {
        // Entries for null and for a missing field lie together, near the low end.
        Some((_, false)) if walk.passes_null => {
            vec![(begin, with(Some(RawValue::Undefined), &[])), (with(Some(RawValue::Null), &[BEHIND]), end)]
        }
        Some((_, true)) if walk.passes_null => {
            vec![(begin, with(Some(RawValue::Null), &[])), (with(Some(RawValue::Undefined), &[BEHIND]), end)]
        }
        _ => vec![(begin, end)],
    }
}
