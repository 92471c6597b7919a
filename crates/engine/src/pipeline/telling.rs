//! Stages by which the server tells of itself.

use kilim_bson::Document;
use kilim_error::Result;
use kilim_query::stage::Stage;

use super::documents::Documents;
use super::{Reader, Step};
use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};

/// Answers such a stage. Whoever runs commands gives it, since what is told has the fields of commands.
pub type Tell = fn(&Engine, &Namespace, &Stage) -> Result<Vec<Document>>;

/// Asked when the first row is wanted.
pub(super) struct Telling {
    reader: Reader,
    namespace: Namespace,
    stage: Stage,
    told: Option<Documents>,
}

impl Telling {
    pub(super) fn new(stage: &Stage, namespace: &Namespace, reader: &Reader) -> Telling {
        Telling { reader: reader.clone(), namespace: namespace.clone(), stage: stage.clone(), told: None }
    }
}

impl Step for Telling {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if let Some(told) = &mut self.told {
            return told.next(context);
        }
        let engine = self.reader.engine()?;
        let told = (self.reader.options().tell)(&engine, &self.namespace, &self.stage)?;
        self.told.insert(Documents::new(told)).next(context)
    }
}
