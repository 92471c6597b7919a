//! `$unionWith`: the rows of its input, then those of another pipeline.

use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Bindings;
use kilim_query::stage;

use super::{Opening, Step};
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};

pub(super) struct UnionWith {
    stage: stage::UnionWith,
    reader: super::Reader,
    bindings: Bindings,
    input: Box<dyn Step>,
    /// The other pipeline, once the input has ended.
    other: Option<Box<dyn Step>>,
}

impl UnionWith {
    pub(super) fn new(stage: &stage::UnionWith, input: Box<dyn Step>, opening: &Opening<'_>) -> UnionWith {
        UnionWith {
            stage: stage.clone(),
            reader: opening.reader.clone(),
            bindings: opening.bindings.clone(),
            input,
            other: None,
        }
    }

    fn open(&self, context: &mut ExecContext<'_>) -> Result<Box<dyn Step>> {
        self.reader.open(&namespace(&self.stage)?, &self.stage.pipeline, &self.bindings, context)
    }
}

/// What the other pipeline runs over.
pub(super) fn namespace(stage: &stage::UnionWith) -> Result<Namespace> {
    let database = stage.database.to_string();
    let collection = stage.collection.as_deref().unwrap_or("$cmd.aggregate").to_owned();
    if collection.is_empty() {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("Namespace {database}. is not a valid collection name"),
        ));
    }
    Ok(Namespace { database, collection })
}

impl Step for UnionWith {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.other.is_none() {
            if let Some(row) = self.input.next(context)? {
                return Ok(Some(row));
            }
            self.other = Some(self.open(context)?);
        }
        match &mut self.other {
            Some(other) => other.next(context),
            None => Ok(None),
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
