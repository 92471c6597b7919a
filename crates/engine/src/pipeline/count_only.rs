//! A `$group` that needs no more than the number of its rows.

use kilim_error::Result;
use kilim_query::stage;

use super::Step;
use crate::operator::{ExecContext, Row};

pub(super) struct CountOnly {
    stage: stage::CountOnly,
    input: Box<dyn Step>,
    done: bool,
}

impl CountOnly {
    pub(super) fn new(stage: &stage::CountOnly, input: Box<dyn Step>) -> CountOnly {
        CountOnly { stage: stage.clone(), input, done: false }
    }
}

impl Step for CountOnly {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let mut count = 0;
        while self.input.next(context)?.is_some() {
            context.tick()?;
            count += 1;
        }
        Ok(self.stage.result(count).map(Row::of))
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
