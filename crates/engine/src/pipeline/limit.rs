//! `$limit` behind other stages.

use kilim_error::Result;
use kilim_query::stage;

use super::Step;
use crate::operator::{ExecContext, Row};

pub(super) struct Limit {
    left: u64,
    input: Box<dyn Step>,
}

impl Limit {
    pub(super) fn new(stage: stage::Limit, input: Box<dyn Step>) -> Limit {
        Limit { left: stage.0, input }
    }
}

impl Step for Limit {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.left == 0 {
            return Ok(None);
        }
        let row = self.input.next(context)?;
        self.left -= u64::from(row.is_some());
        Ok(row)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
