//! `$sort` behind other stages.

use kilim_bson::{RawValue, Writer};
use kilim_error::Result;
use kilim_query::stage::SortBy;

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, SortBuffer};

pub(super) struct Sort {
    buffer: SortBuffer,
    input: Box<dyn Step>,
}

impl Sort {
    pub(super) fn new(stage: &SortBy, input: Box<dyn Step>, opening: &Opening<'_>) -> Sort {
        let allow_disk_use = opening.reader.options().allow_disk_use;
        Sort { buffer: SortBuffer::new(stage.sort.clone(), stage.limit, allow_disk_use), input }
    }
}

impl Step for Sort {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.buffer.is_finished() {
            while let Some(row) = self.input.next(context)? {
                context.tick()?;
                self.buffer.push(row)?;
            }
            self.buffer.finish()?;
        }
        context.tick()?;
        self.buffer.next()
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
