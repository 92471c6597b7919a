//! The read of a collection at the head of a pipeline.

use kilim_error::Result;

use super::Step;
use crate::operator::{ExecContext, Executor, Row};
use crate::plan::StatsTree;

pub(super) struct Scan {
    executor: Executor,
}

impl Scan {
    pub(super) fn new(executor: Executor) -> Scan {
        Scan { executor }
    }
}

impl Step for Scan {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        self.executor.next_document(context)
    }

    fn stats(&self) -> Option<StatsTree> {
        Some(self.executor.stats())
    }
}
