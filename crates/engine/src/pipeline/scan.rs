//! The read of a collection at the head of a pipeline.

use kilim_error::Result;

use super::{Prepared, Step};
use crate::operator::{self, ExecContext, Executor, Row};
use crate::planner::{self, PlannerInput};

pub(super) struct Scan {
    executor: Executor,
}

impl Scan {
    pub(super) fn new(prepared: &Prepared, context: &mut ExecContext<'_>) -> Result<Scan> {
        let snapshot = prepared.reader.snapshot();
        let request = prepared.request.clone();
        let plan = match &prepared.collection {
            None => planner::plan_nothing(&request),
            Some(collection) => {
                let input = PlannerInput {
                    id: collection.id,
                    indexes: &collection.indexes,
                    cache: &collection.shared.plan_cache,
                    interrupt: context.interrupt,
                };
                planner::plan(&input, request, snapshot)?
            }
        };
        Ok(Scan { executor: operator::execute(plan, snapshot.clone()) })
    }
}

impl Step for Scan {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        self.executor.next_document(context)
    }
}
