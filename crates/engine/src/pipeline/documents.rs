//! Documents that are there before the pipeline begins: those of `$documents`, and what the server tells of
//! itself.

use kilim_bson::Document;
use kilim_error::Result;

use super::Step;
use crate::operator::{ExecContext, Row};

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
