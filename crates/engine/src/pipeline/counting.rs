//! A `$group` that needs no more than the number of its rows: the read counts them, and hands none on.

use std::sync::Arc;

use kilim_error::{Error, Result};
use kilim_query::stage::Group;

use super::Step;
use crate::operator::{ExecContext, Executor, Row};
use crate::plan::StatsTree;

pub(super) struct Counting {
    stage: Arc<Group>,
    executor: Executor,
    done: bool,
}

impl Counting {
    /// Whether a group is of that kind.
    pub(super) fn serves(group: &Group) -> bool {
        group.needs_only_count()
    }

    pub(super) fn new(stage: &Arc<Group>, executor: Executor) -> Counting {
        Counting { stage: stage.clone(), executor, done: false }
    }
}

impl Step for Counting {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        match self.executor.count(context)? {
            0 => Ok(None),
            count => {
                let document = self.stage.of_count(count);
                document.map(Row::of).map(Some).ok_or_else(|| Error::bug("a count is beyond all reason"))
            }
        }
    }

    fn stats(&self) -> Option<StatsTree> {
        Some(self.executor.stats())
    }
}
