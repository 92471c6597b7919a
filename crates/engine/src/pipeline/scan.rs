//! The read of a collection at the head of a pipeline.

use std::sync::Arc;

use kilim_error::Result;

use super::Step;
use crate::operator::{ExecContext, Executor, Row, Shown, Viewer};
use crate::plan::StatsTree;

pub(super) struct Scan {
    executor: Executor,
    /// The fields that later stages read, if these are not all.
    wanted: Option<Arc<[Box<str>]>>,
}

impl Scan {
    pub(super) fn new(executor: Executor, wanted: Option<Arc<[Box<str>]>>) -> Scan {
        Scan { executor, wanted }
    }
}

impl Step for Scan {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        self.executor.next_document(context)
    }

    fn show(&mut self, viewer: &mut dyn Viewer, context: &mut ExecContext<'_>) -> Result<()> {
        if let Some(names) = self.wanted.clone() {
            return self.executor.show(&names, viewer, context);
        }
        while let Some(row) = self.next(context)? {
            viewer.see(Shown::Row(&row), context)?;
        }
        Ok(())
    }

    fn stats(&self) -> Option<StatsTree> {
        Some(self.executor.stats())
    }
}
