//! `$addFields`, also called `$set`: computed fields beside those that are there.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::project::invalid;
use super::{Behaviour, Beyond, Context, Modified, Stage};
use crate::expression::{Dependencies, Env};
use crate::projection::Projection;

#[derive(Debug, Clone)]
pub struct AddFields {
    /// As it was called, for explain.
    name: &'static str,
    pub projection: Arc<Projection>,
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let RawValue::Document(document) = value else {
        return Err(Error::location(
            40272,
            format!("{name} specification stage must be an object, got {}", value.element_type().name()),
        ));
    };
    let projection =
        Projection::parse_addition(document, context.scope).map_err(|error| invalid(name, error))?;
    let name = if name == "$set" { "$set" } else { "$addFields" };
    out.push(Stage::AddFields(AddFields { name, projection: Arc::new(projection) }));
    Ok(())
}

impl AddFields {
    /// Of a projection made otherwise.
    pub(super) fn of(projection: Projection) -> AddFields {
        AddFields { name: "$addFields", projection: Arc::new(projection) }
    }

    pub(super) fn fold(&mut self) -> Result<()> {
        Arc::make_mut(&mut self.projection).optimise()
    }

    pub fn apply(&self, env: &Env<'_>) -> Result<Document> {
        self.projection.made_of(env)
    }
}

impl Behaviour for AddFields {
    fn to_document(&self) -> Document {
        [(self.name, Value::Document(self.projection.to_document()))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.projection.dependencies(needed)
    }

    fn modified(&self) -> Modified {
        self.projection.modified()
    }
}
