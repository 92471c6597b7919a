//! `$documents`: documents that stand in the pipeline itself.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_query::stage;

use super::Step;
use crate::operator::{ExecContext, Row};

pub(super) struct Documents {
    documents: Arc<[Document]>,
    next: usize,
}

impl Documents {
    pub(super) fn new(stage: &stage::Documents) -> Documents {
        Documents { documents: stage.documents.clone(), next: 0 }
    }
}

impl Step for Documents {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        context.tick()?;
        let document = self.documents.get(self.next);
        self.next += 1;
        Ok(document.map(|document| Row::of(document.clone())))
    }
}
