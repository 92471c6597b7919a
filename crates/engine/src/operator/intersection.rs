//! The records that two index scans have in common.
//!
//! Each scan reads entries whose keys are all equal, so its records come in the order of their ids and the two are
//! merged. The one that lags steps to the record at which the other stands. Where that is far away it seeks there: key
//! and record id are one key of the store, so this is a read like any other, and a rare value next to a frequent one
//! costs a few reads instead of a walk through all of the frequent one's entries.
//!
//! Invariant: a record is given once, and only if both scans gave it. What the keys do not decide is tested above.

use kilim_error::Result;

use super::index_scan::STEPS_PER_SEEK;
use super::{ExecContext, Operator, Stats, Worked};
use crate::ids::RecordId;

pub(super) struct Intersection {
    /// Scans for which [`crate::plan::IndexScan::is_in_record_order`] holds.
    pub(super) inputs: [Operator; 2],
    /// The input that is read next.
    next: usize,
    /// What the other one gave.
    wanted: Option<RecordId>,
    /// Entries passed over on the way to it.
    stepped: u32,
}

impl Intersection {
    pub(super) fn new(inputs: [Operator; 2]) -> Intersection {
        Intersection { inputs, next: 0, wanted: None, stepped: 0 }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        let row = match self.inputs[self.next].work(context)? {
            Worked::Row(row) => row,
            // Nothing more of one is nothing more of both.
            other => return Ok(other),
        };
        match self.wanted {
            Some(wanted) if row.id.record < wanted => {
                self.stepped += 1;
                if self.stepped == STEPS_PER_SEEK {
                    context.seeks += 1;
                    self.inputs[self.next].seek_record(wanted);
                }
                return Ok(Worked::NeedTime);
            }
            Some(wanted) if row.id.record == wanted => {
                self.wanted = None;
                self.stepped = 0;
                self.next = 0;
                return Ok(Worked::Row(row));
            }
            Some(_) => stats.failed[self.next] += 1,
            None => {}
        }
        self.wanted = Some(row.id.record);
        self.stepped = 0;
        self.next = 1 - self.next;
        Ok(Worked::NeedTime)
    }
}
