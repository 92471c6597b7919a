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
}

impl Step for Sort {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.buffer.is_finished() {
            self.take_in(context)?;
            self.buffer.finish()?;
        }
        context.tick()?;
        self.buffer.next()
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            self.key.clear();
            self.sort.key_of(row.document(), &mut self.key)?;
            self.buffer.push(&self.key, row)?;
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
