//! A sort that must see all rows before it gives the first.

use std::sync::Arc;

use kilim_error::{Error, Result};
use kilim_query::sort::Sort;

use super::sort_buffer::SortBuffer;
use super::{ExecContext, Operator, RowData, Source, Stats, Work};

pub(super) struct Sorter {
    pub(super) input: Box<Operator>,
    sort: Arc<Sort>,
    key: Vec<u8>,
    buffer: SortBuffer,
}

impl Sorter {
    pub(super) fn new(sort: Arc<Sort>, limit: Option<u64>, input: Box<Operator>, source: &Source) -> Sorter {
        Sorter { input, sort, key: Vec::new(), buffer: SortBuffer::new(limit, source.allow_disk_use) }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        if self.buffer.is_finished() {
            context.tick()?;
            return Ok(self.buffer.next()?.map_or(Work::Eof, Work::Row));
        }
        match self.input.work(context)? {
            Work::Row(row) if matches!(row.data, RowData::Key { .. }) => {
                return Err(Error::bug("a sort was given a row without its record"));
            }
            Work::Row(row) => {
                self.key.clear();
                self.sort.key_of(row.document(), &mut self.key)?;
                self.buffer.push(&self.key, row)?;
            }
            Work::NeedTime => {}
            Work::Eof => self.buffer.finish()?,
        }
        (stats.sorted_bytes, stats.spills) = (self.buffer.sorted_bytes, self.buffer.spills);
        context.figures.used_disk |= self.buffer.spills > 0;
        Ok(Work::NeedTime)
    }
}
