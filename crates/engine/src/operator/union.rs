//! `$or`: the rows of all inputs, each record once.

use std::collections::HashSet;

use kilim_error::Result;

use super::{ExecContext, Operator, Stats, Worked};
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

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        let Some(input) = self.inputs.get_mut(self.current) else { return Ok(Worked::Eof) };
        match input.work(context)? {
            Worked::Row(row) => {
                stats.dups_tested += 1;
                if self.seen.insert(row.id) {
                    return Ok(Worked::Row(row));
                }
                stats.dups_dropped += 1;
                Ok(Worked::NeedTime)
            }
            Worked::NeedTime => Ok(Worked::NeedTime),
            Worked::Eof => {
                self.current += 1;
                Ok(if self.current == self.inputs.len() { Worked::Eof } else { Worked::NeedTime })
            }
        }
    }
}
