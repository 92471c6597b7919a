//! `$sort` behind other stages.

use std::sync::Arc;

use kilim_bson::{RawValue, Writer};
use kilim_error::Result;
use kilim_query::stage::SortBy;

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, SortBuffer};

pub(super) struct Sort {
    sort: Arc<kilim_query::sort::Sort>,
    key: Vec<u8>,
    buffer: SortBuffer,
    input: Box<dyn Step>,
}

impl Sort {
    pub(super) fn new(stage: &SortBy, input: Box<dyn Step>, opening: &Opening<'_>) -> Sort {
        let allow_disk_use = opening.reader.options().allow_disk_use;
        let buffer = SortBuffer::new(stage.limit, allow_disk_use);
        Sort { sort: stage.sort.clone(), key: Vec::new(), buffer, input }
    }

    /// Makes the row's key, unless its beginning tells that the row is behind all that will be kept.
    fn is_wanted(&mut self, row: &Row) -> Result<bool> {
        self.key.clear();
        if self.buffer.is_full() {
            let told = self.sort.leading_key_of(row.document(), &mut self.key);
            if told && self.buffer.refuses(&self.key, row) {
                return Ok(false);
            }
            self.key.clear();
        }
        self.sort.key_with_score(row.document(), row.score, &mut self.key)?;
        Ok(true)
    }
}

impl Step for Sort {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.buffer.is_finished() {
            self.take_in(context)?;
            self.buffer.finish()?;
        }
        context.figures.sorted = true;
        context.figures.used_disk |= self.buffer.spills > 0;
        context.tick()?;
        self.buffer.next()
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            if self.is_wanted(&row)? {
                self.buffer.push(&self.key, row)?;
            }
        }
        Ok(true)
    }

    fn take_rows(&mut self, rows: &[Row], context: &mut ExecContext<'_>) -> Result<bool> {
        for row in rows {
            context.tick()?;
            if self.is_wanted(row)? {
                self.buffer.push_shared(&self.key, row)?;
            }
        }
        Ok(true)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn report(&self, out: &mut Writer) {
        out.append("totalDataSizeSortedBytesEstimate", RawValue::Int64(self.buffer.sorted_bytes as i64));
        out.append("usedDisk", RawValue::Bool(self.buffer.spills > 0));
        out.append("spills", RawValue::Int64(self.buffer.spills as i64));
    }
}
