//! `$match` behind other stages.

use std::sync::Arc;

use kilim_error::{Error, Result};
use kilim_query::filter::Filter;
use kilim_query::stage;

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, Shown, Viewer};

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

/// Passes on what matches.
struct Matching<'a> {
    filter: &'a Filter,
    viewer: &'a mut dyn Viewer,
}

impl Viewer for Matching<'_> {
    fn see(&mut self, row: Shown<'_>, context: &mut ExecContext<'_>) -> Result<()> {
        context.tick()?;
        let document = match row {
            Shown::Row(row) => row.document(),
            Shown::Document(document) => document,
            Shown::Fields(_) => return Err(Error::bug("a filter is shown what is no document")),
        };
        match self.filter.matches(document)? {
            true => self.viewer.see(row, context),
            false => Ok(()),
        }
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

    fn show(&mut self, viewer: &mut dyn Viewer, context: &mut ExecContext<'_>) -> Result<()> {
        self.input.show(&mut Matching { filter: &self.filter, viewer }, context)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
