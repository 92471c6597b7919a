//! `$skip` behind other stages.

use kilim_error::Result;
use kilim_query::stage;

use super::Step;
use crate::operator::{ExecContext, Row};

pub(super) struct Skip {
    left: u64,
    input: Box<dyn Step>,
}

impl Skip {
    pub(super) fn new(stage: stage::Skip, input: Box<dyn Step>) -> Skip {
        Skip { left: stage.0, input }
    }
}

impl Step for Skip {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        while self.left > 0 {
            context.tick()?;
            if self.input.next(context)?.is_none() {
                return Ok(None);
            }
            self.left -= 1;
        }
        self.input.next(context)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
