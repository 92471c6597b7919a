//! One document by `_id`: one read of the index, one of the record.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Value, compare_with, encode_value_with};
use kilim_error::Result;
use kilim_storage::Space;

use super::{ExecContext, ReadContext, Row, RowData, Stats, Worked};
use crate::ids::RecordId;
use crate::index::Index;
use crate::layout;
use crate::records::Records;

pub(super) struct IdLookup {
    records: Records,
    entry: Vec<u8>,
    /// Set where the key is too long to be stored whole, so that the record decides.
    recheck: Option<(Value, Arc<Index>)>,
    pub(super) done: bool,
}

impl IdLookup {
    pub(super) fn new(index: &Arc<Index>, id: &Value, source: &ReadContext) -> IdLookup {
        let mut entry = Vec::with_capacity(32);
        entry.extend_from_slice(&layout::index_prefix(index.id));
        let key_at = entry.len();
        encode_value_with(&mut entry, id.as_raw(), index.spec.key[0].descending, index.spec.collator());
        let is_long = entry.len() - key_at > layout::KEY_BYTES_MAX;
        if is_long {
            entry = layout::unique_entry(index.id, &entry[key_at..]);
        }
        IdLookup {
            records: source.records.clone(),
            entry,
            recheck: is_long.then(|| (id.clone(), index.clone())),
            done: false,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if self.done {
            return Ok(Worked::Eof);
        }
        self.done = true;
        let Some(found) = self.records.snapshot().get(Space::Index, &self.entry)? else {
            return Ok(Worked::Eof);
        };
        stats.keys_examined += 1;
        context.figures.keys_examined += 1;
        stats.docs_examined += 1;
        context.figures.docs_examined += 1;
        let record = RecordId(u64::from_be_bytes(
            found[..8].try_into().expect("a unique entry begins with its record's id"),
        ));
        let row = record.into();
        let Some(image) = self.records.fetch(row)? else { return Ok(Worked::Eof) };
        if let Some((id, index)) = &self.recheck {
            let own = image.document().get("_id");
            if own.is_none_or(|own| compare_with(own, id.as_raw(), index.spec.collator()) != Ordering::Equal)
            {
                return Ok(Worked::Eof);
            }
        }
        Ok(Worked::Row(Row::new(row, RowData::Record(image))))
    }
}
