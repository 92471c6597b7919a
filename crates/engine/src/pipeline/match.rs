//! `$match` behind other stages.

use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_query::stage;

use super::{Opening, Step};
use crate::operator::{ExecContext, Row};

pub(super) struct Match {
    filter: Arc<Filter>,
    input: Box<dyn Step>,
}

impl Match {
    pub(super) fn new(stage: &stage::Match, input: Box<dyn Step>, opening: &Opening<'_>) -> Result<Match> {
        let filter = match stage.filter.uses_bindings_from(0) {
            true => Arc::new(stage.filter.bind(opening.bindings)?),
            false => stage.filter.clone(),
        };
        Ok(Match { filter, input })
    }
}

impl Step for Match {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            if self.filter.matches(row.document())? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
