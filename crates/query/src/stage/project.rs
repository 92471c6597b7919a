//! `$project`: documents with some of their fields, without some, or with computed ones.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Modified, Stage};
use crate::expression::{Dependencies, Env};
use crate::projection::Projection;

#[derive(Debug, Clone)]
pub struct Project {
    pub projection: Arc<Projection>,
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let RawValue::Document(document) = value else {
        return Err(Error::location(15969, format!("{name} specification must be an object")));
    };
    out.push(Stage::Project(Project::parse(name, document, context)?));
    Ok(())
}

/// As mongod words what is wrong with a stage's document. That metadata is missing it finds out later.
pub(super) fn invalid(name: &str, error: Error) -> Error {
    const METADATA_MISSING: i32 = 40218;
    match error.code().0 {
        METADATA_MISSING => error,
        _ => error.during(&format!("Invalid {name}")),
    }
}

impl Project {
    /// Parses the document of a stage that errors call by `name`.
    pub(super) fn parse(
        name: &str,
        document: kilim_bson::RawDocument<'_>,
        context: &Context<'_>,
    ) -> Result<Project> {
        let projection =
            Projection::parse_stage(document, context.scope).map_err(|error| invalid(name, error))?;
        Ok(Project { projection: Arc::new(projection) })
    }

    /// Of a projection made otherwise.
    pub fn of(projection: Projection) -> Project {
        Project { projection: Arc::new(projection) }
    }

    pub(super) fn fold(&mut self) -> Result<()> {
        Arc::make_mut(&mut self.projection).optimise()
    }

    pub fn apply(&self, env: &Env<'_>) -> Result<Document> {
        self.projection.made_of(env)
    }
}

impl Behaviour for Project {
    fn to_document(&self) -> Document {
        [("$project", Value::Document(self.projection.to_document()))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.projection.dependencies(needed)
    }

    fn modified(&self) -> Modified {
        self.projection.modified()
    }
}
