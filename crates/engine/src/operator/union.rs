//! `$or`: the rows of all inputs, each record once.

use std::collections::HashSet;

use kilim_error::Result;

use super::{ExecContext, Operator, Stats, Work};
use crate::records::RowId;

pub(super) struct Union {
    pub(super) inputs: Vec<Operator>,
    current: usize,
    seen: HashSet<RowId>,
}

impl Union {
    pub(super) fn new(inputs: Vec<Operator>) -> Union {
        Union { inputs, current: 0, seen: HashSet::new() }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        let Some(input) = self.inputs.get_mut(self.current) else { return Ok(Work::Eof) };
        match input.work(context)? {
            Work::Row(row) => {
                stats.dups_tested += 1;
                if self.seen.insert(row.id) {
                    return Ok(Work::Row(row));
                }
                stats.dups_dropped += 1;
                Ok(Work::NeedTime)
            }
            Work::NeedTime => Ok(Work::NeedTime),
            Work::Eof => {
                self.current += 1;
                Ok(if self.current == self.inputs.len() { Work::Eof } else { Work::NeedTime })
            }
        }
    }
}
