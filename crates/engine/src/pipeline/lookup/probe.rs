//! Records by one value of an indexed field, without a planner: the index is chosen once, a value is a range of
//! its keys.
//!
//! Keys alone say what equals a value that is neither null nor an array: an index has a key for every element
//! and encodes equal values alike. Null and arrays go by the planner, and so do texts where the index is of another
//! collation.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Path, RawValue, encode_value_with};
use kilim_collation::{Collation, collator};
use kilim_error::Result;
use kilim_query::filter::holds_text;
use kilim_storage::{Direction, Snapshot, Space};

use super::{Examined, FOUND_BYTES_MAX};
use crate::catalog::Collection;
use crate::ids::RecordId;
use crate::index::Index;
use crate::layout;
use crate::operator::{ExecContext, Row, RowData};
use crate::records::Records;

/// Behind every key that begins with what stands before it.
const BEHIND: u8 = 0xFF;

#[derive(Clone)]
pub(in crate::pipeline) struct IndexProbe {
    records: Records,
    pub(in crate::pipeline) index: Arc<Index>,
    /// The index has texts in the order in which they compare here, so that its keys tell of them too.
    tells_of_texts: bool,
    /// Where keys are put together.
    lower: Vec<u8>,
    upper: Vec<u8>,
}

impl IndexProbe {
    /// By the index that has the least beside this field, if one begins with it and holds every record; one of the
    /// same collation before all others.
    pub(in crate::pipeline) fn choose(
        collection: &Collection,
        path: &Path,
        snapshot: &Snapshot,
        collation: &Option<Collation>,
    ) -> Option<IndexProbe> {
        // A number in a path is a field name or an array position, and keys are made for both.
        if path.components().iter().any(|component| component.index.is_some())
            || collection.shape.paged().is_some()
        {
            return None;
        }
        let usable = |index: &&Arc<Index>| {
            !index.spec.hidden
                && index.ready_since <= snapshot.commit_time()
                && index.spec.partial.is_none()
                && index.spec.has_ordered_keys()
                && index.spec.key[0].path == *path
        };
        let chosen = collection.indexes.iter().filter(usable).min_by_key(|index| {
            (index.spec.collation != *collation, index.spec.key.len(), !index.spec.unique)
        });
        chosen.inspect(|index| index.usage.note()).map(|index| IndexProbe {
            records: Records::new(collection.home(), snapshot),
            index: index.clone(),
            tells_of_texts: index.spec.collation == *collation,
            lower: Vec::new(),
            upper: Vec::new(),
        })
    }

    /// Whether keys may tell of a value, as far as texts are concerned.
    pub(in crate::pipeline) fn may_tell(&self, value: RawValue<'_>) -> bool {
        self.tells_of_texts || !holds_text(value)
    }

    /// Appends the records with that value, or says that keys do not tell. Stops beyond [`FOUND_BYTES_MAX`], which
    /// nobody accepts.
    pub(in crate::pipeline) fn find(
        &mut self,
        value: RawValue<'_>,
        examined: &mut Examined,
        found: &mut Vec<Row>,
    ) -> Result<bool> {
        if !self.encode(value) {
            return Ok(false);
        }
        if self.index.spec.unique && self.index.spec.key.len() == 1 {
            if let Some(holder) = self.records.snapshot().get(Space::Index, &self.lower)? {
                let record = layout::record_id_of(&holder[..8]);
                self.push(record, examined, found)?;
            }
            return Ok(true);
        }
        self.upper.clear();
        self.upper.extend_from_slice(&self.lower);
        self.upper.push(BEHIND);
        // One record has several such keys where another part of the key is an array.
        let mut seen =
            (self.index.multikey.is_multikey() && self.index.spec.key.len() > 1).then(HashSet::new);
        let scan = self.records.snapshot().scan(
            Space::Index,
            Bound::Included(&self.lower[..]),
            Bound::Excluded(&self.upper[..]),
            Direction::Forward,
        );
        let mut bytes = 0;
        for entry in scan {
            let (key, held) = entry?;
            let record = self.record_of(&key, &held);
            if seen.as_mut().is_none_or(|seen| seen.insert(record)) {
                bytes += self.push(record, examined, found)?;
                if bytes > FOUND_BYTES_MAX {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Appends the records with any of these values, in one walk from the least key to the greatest. Says of each
    /// value whether keys told; one that they do not tell is not looked for.
    pub(in crate::pipeline) fn find_all<'v>(
        &mut self,
        values: impl ExactSizeIterator<Item = RawValue<'v>>,
        examined: &mut Examined,
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<Vec<bool>> {
        let mut told = Vec::with_capacity(values.len());
        let mut keys = Vec::with_capacity(values.len());
        for value in values {
            told.push(self.encode(value));
            if told.last() == Some(&true) {
                keys.push(std::mem::take(&mut self.lower));
            }
        }
        keys.sort_unstable();
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(told) };
        self.upper.clear();
        self.upper.extend_from_slice(last);
        self.upper.push(BEHIND);
        let mut seen = HashSet::new();
        let scan = self.records.snapshot().scan(
            Space::Index,
            Bound::Included(&first[..]),
            Bound::Excluded(&self.upper[..]),
            Direction::Forward,
        );
        let (mut wanted, mut bytes) = (0, 0);
        for entry in scan {
            context.tick()?;
            let (key, held) = entry?;
            examined.keys += 1;
            // Keys of one part are never the beginning of each other.
            while wanted < keys.len() && !key.starts_with(&keys[wanted]) && keys[wanted][..] < key[..] {
                wanted += 1;
            }
            if wanted == keys.len() {
                break;
            }
            if key.starts_with(&keys[wanted]) {
                let record = self.record_of(&key, &held);
                if seen.insert(record) {
                    examined.keys -= 1;
                    bytes += self.push(record, examined, found)?;
                    if bytes > FOUND_BYTES_MAX {
                        break;
                    }
                }
            }
        }
        Ok(told)
    }

    /// Whether a record has null in a unique index of one field, or lacks the field.
    pub(in crate::pipeline) fn has_null(&mut self) -> Result<bool> {
        self.put_key(RawValue::Null);
        Ok(self.records.snapshot().get(Space::Index, &self.lower)?.is_some())
    }

    /// Puts the least key of a value into `lower`, unless keys do not tell what equals it.
    fn encode(&mut self, value: RawValue<'_>) -> bool {
        let by_keys = !matches!(value, RawValue::Null | RawValue::Undefined | RawValue::Array(_));
        by_keys && self.may_tell(value) && self.put_key(value)
    }

    /// Puts the least key of a value into `lower`; false if the index stores it shortened.
    fn put_key(&mut self, value: RawValue<'_>) -> bool {
        self.lower.clear();
        self.lower.extend_from_slice(&layout::index_prefix(self.index.id));
        let start = self.lower.len();
        let spec = &self.index.spec;
        encode_value_with(&mut self.lower, value, spec.key[0].descending, collator(&spec.collation));
        self.lower.len() - start <= layout::KEY_BYTES_MAX
    }

    fn record_of(&self, key: &[u8], held: &[u8]) -> RecordId {
        layout::record_id_of(if self.index.spec.unique { &held[..8] } else { key })
    }

    fn push(&self, record: RecordId, examined: &mut Examined, found: &mut Vec<Row>) -> Result<usize> {
        examined.keys += 1;
        examined.documents += 1;
        let row = record.into();
        let image = self.records.fetch_stored(row)?;
        let bytes = image.as_bytes().len();
        found.push(Row::new(row, RowData::Record(image)));
        Ok(bytes)
    }
}
