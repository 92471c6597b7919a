//! Documents that are there before the pipeline begins: those of `$documents`, and what the server tells of
//! itself.

use kilim_bson::Document;
use kilim_error::Result;
use kilim_query::expression::Bindings;
use kilim_query::stage;

use super::Step;
use crate::operator::{ExecContext, Row};

/// The documents of an expression, which is evaluated when the first is wanted.
pub(super) struct Evaluating {
    stage: stage::Documents,
    bindings: Bindings,
    evaluated: Option<Documents>,
}

impl Evaluating {
    pub(super) fn new(stage: &stage::Documents, bindings: &Bindings) -> Evaluating {
        Evaluating { stage: stage.clone(), bindings: bindings.clone(), evaluated: None }
    }
}

impl Step for Evaluating {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let documents = match &mut self.evaluated {
            Some(documents) => documents,
            None => self.evaluated.insert(Documents::new(self.stage.evaluate(&self.bindings)?)),
        };
        documents.next(context)
    }
}

pub(super) struct Documents {
    documents: std::vec::IntoIter<Document>,
}

impl Documents {
    pub(super) fn new(documents: Vec<Document>) -> Documents {
        Documents { documents: documents.into_iter() }
    }
}

impl Step for Documents {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        context.tick()?;
        Ok(self.documents.next().map(Row::of))
    }
}
