//! `$unionWith`: behind the documents that come by, those of another pipeline.

use std::sync::Arc;

use kilim_bson::{Array, ArrayBuilder, Document, RawArray, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Beyond, Context, Owner, Pipeline, Stage};
use crate::expression::Dependencies;
use crate::names;

#[derive(Debug, Clone)]
pub struct UnionWith {
    pub database: Arc<str>,
    /// None where the pipeline brings its own documents.
    pub collection: Option<Arc<str>>,
    pub pipeline: Arc<Pipeline>,
}

pub(super) fn glance(_: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    let (collection, stages) = parse_specification(value)?;
    names::check_parts(database, collection.unwrap_or_default())?;
    stages.map_or(Ok(()), |stages| Pipeline::glance(stages.as_raw(), database))
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let (collection, stages) = parse_specification(value)?;
    names::check_parts(context.database, collection.unwrap_or_default())?;
    let within = context.within(Owner::UnionWith)?;
    let pipeline = match &stages {
        Some(stages) => Pipeline::parse(stages.as_raw(), &within)?,
        None => Pipeline::default(),
    };
    out.push(Stage::UnionWith(UnionWith {
        database: context.database.into(),
        collection: collection.map(Into::into),
        pipeline: Arc::new(pipeline),
    }));
    Ok(())
}

/// The collection and the stages.
fn parse_specification(value: RawValue<'_>) -> Result<(Option<&str>, Option<Array>)> {
    let (collection, stages): (Option<&str>, Option<Array>) = match value {
        RawValue::String(collection) => (Some(collection), None),
        RawValue::Document(_) => parse_options(value)?,
        other => {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                format!(
                    "the $unionWith stage specification must be an object or string, but found {}",
                    other.element_type().name()
                ),
            ));
        }
    };
    if collection.is_none() && !stages.as_ref().is_some_and(|stages| begins_with_documents(stages.as_raw())) {
        return Err(Error::user(
            ErrorCode::FailedToParse,
            "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
        ));
    }
    Ok((collection, stages))
}

fn parse_options(value: RawValue<'_>) -> Result<(Option<&str>, Option<Array>)> {
    let (mut collection, mut stages) = (None, None);
    for (name, value) in value.as_document().into_iter().flatten() {
        let mistyped = |name: &str, found: RawValue<'_>, expected: &str| {
            Err(Error::user(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field '$unionWith.{name}' is the wrong type '{}', expected type '{expected}'",
                    found.element_type().name()
                ),
            ))
        };
        match (name, value) {
            ("coll", RawValue::String(name)) => collection = Some(name),
            ("coll", RawValue::Null | RawValue::Undefined) => {}
            ("coll", other) => return mistyped(name, other, "string"),
            ("pipeline", RawValue::Array(array)) => {
                let mut kept = ArrayBuilder::new();
                for (index, stage) in array.as_document().iter() {
                    match stage {
                        RawValue::Document(_) => kept.push(stage),
                        // As on MongoDB, they are passed over.
                        RawValue::Null | RawValue::Undefined => {}
                        _ => return mistyped(&format!("pipeline.{index}"), stage, "object"),
                    }
                }
                stages = Some(kept.finish());
            }
            ("pipeline", RawValue::Null | RawValue::Undefined) => {
                return Err(Error::location(10065, "invalid parameter: expected an object (pipeline)"));
            }
            ("pipeline", other) => return mistyped(name, other, "array"),
            _ => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '$unionWith.{name}' is an unknown field."),
                ));
            }
        }
    }
    Ok((collection, stages))
}

fn begins_with_documents(stages: RawArray<'_>) -> bool {
    let first = stages.iter().next().and_then(RawValue::as_document);
    first.is_some_and(|first| first.get("$documents").is_some())
}

impl UnionWith {
    /// Computes what no document influences, as its pipeline does.
    pub(super) fn fold(&mut self) -> Result<()> {
        Arc::make_mut(&mut self.pipeline).fold()
    }
}

impl Behaviour for UnionWith {
    fn to_document(&self) -> Document {
        let mut spec = Document::new();
        if let Some(collection) = &self.collection {
            spec.push("coll", &**collection);
        }
        spec.push("pipeline", Value::from(self.pipeline.to_documents()));
        doc! {"$unionWith": spec}
    }

    /// The documents of the other pipeline go the same way, so nothing is known of what they must have.
    fn dependencies(&self, _: &mut Dependencies) -> Beyond {
        Beyond::Later
    }

    fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        if let Some(collection) = &self.collection {
            visit(&self.database, collection);
        }
        self.pipeline.collections(visit);
    }
}
