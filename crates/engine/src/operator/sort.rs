//! A sort that must see all rows before it gives the first.

use std::sync::Arc;

use kilim_error::{Error, Result};
use kilim_query::sort::Sort;

use super::sort_buffer::SortBuffer;
use super::{ExecContext, Operator, ReadContext, RowData, Stats, Worked};
use crate::records::Records;

pub(super) struct Sorter {
    pub(super) input: Box<Operator>,
    sort: Arc<Sort>,
    key: Vec<u8>,
    buffer: SortBuffer,
    /// Rows come without their records, which are read for those that are given.
    records: Option<Records>,
}

impl Sorter {
    pub(super) fn new(
        sort: Arc<Sort>,
        limit: Option<u64>,
        input: Box<Operator>,
        reads_records: bool,
        source: &ReadContext,
    ) -> Sorter {
        let buffer = SortBuffer::new(limit, source.allow_disk_use);
        let records = reads_records.then(|| source.records.clone());
        Sorter { input, sort, key: Vec::new(), buffer, records }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if self.buffer.is_finished() {
            context.tick()?;
            let Some(row) = self.buffer.next()? else { return Ok(Worked::Eof) };
            let Some(records) = &self.records else { return Ok(Worked::Row(row)) };
            context.figures.docs_examined += 1;
            stats.docs_examined += 1;
            return Ok(match records.fetch(row.id)? {
                Some(image) => {
                    let image = records.shown(row.id, image)?;
                    Worked::Row(row.with(RowData::Record(image)))
                }
                None => Worked::NeedTime,
            });
        }
        match self.input.work(context)? {
            Worked::Row(row) if self.records.is_none() && matches!(row.data, RowData::Key { .. }) => {
                return Err(Error::bug("a sort was given a row without its record"));
            }
            Worked::Row(row) => {
                self.key.clear();
                self.sort.key_with_score(row.document(), row.score, &mut self.key)?;
                self.buffer.push(&self.key, row)?;
            }
            Worked::NeedTime => {}
            Worked::Eof => self.buffer.finish()?,
        }
        (stats.sorted_bytes, stats.spills) = (self.buffer.sorted_bytes, self.buffer.spills);
        context.figures.used_disk |= self.buffer.spills > 0;
        Ok(Worked::NeedTime)
    }
}
