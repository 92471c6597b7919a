//! `$facet`: several pipelines over the same documents, one document of all results.

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Owner, Pipeline, Stage};
use crate::expression::{Dependencies, check_field_name};
use crate::text;

#[derive(Debug, Clone)]
pub struct Facet {
    /// Field and pipeline; never empty.
    pub facets: Arc<[(String, Pipeline)]>,
}

pub(super) fn glance(name: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    let facets = parse_specification(name, value)?;
    facets.into_iter().try_for_each(|(_, stages)| Pipeline::glance(stages, database))
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let raw = parse_specification(name, value)?;
    let within = context.within(Owner::Facet)?;
    let facets =
        raw.into_iter().map(|(name, stages)| Ok((name.to_owned(), Pipeline::parse(stages, &within)?)));
    out.push(Stage::Facet(Facet { facets: facets.collect::<Result<_>>()? }));
    Ok(())
}

/// The fields and their stages.
fn parse_specification<'a>(name: &str, value: RawValue<'a>) -> Result<Vec<(&'a str, RawArray<'a>)>> {
    let spec = value.as_document().filter(|spec| !spec.is_empty()).ok_or_else(|| {
        let found = text::element(name, value);
        Error::location(
            40169,
            format!("the $facet specification must be a non-empty object, but found: {found}"),
        )
    })?;
    let mut raw = Vec::new();
    for (name, value) in spec.iter() {
        check_field_name(name)?;
        let RawValue::Array(stages) = value else {
            return Err(Error::location(
                40170,
                format!("arguments to $facet must be arrays, {name} is type {}", value.element_type().name()),
            ));
        };
        for (index, stage) in stages.as_document().iter() {
            if stage.as_document().is_none() {
                return Err(Error::location(
                    40171,
                    format!(
                        "elements of arrays in $facet spec must be non-empty objects, {name} argument contained an \
                         element of type {}: {}",
                        stage.element_type().name(),
                        text::element(index, stage)
                    ),
                ));
            }
        }
        raw.push((name, stages));
    }
    Ok(raw)
}

impl Facet {
    /// Computes what no document influences, as its pipelines do.
    pub(super) fn fold(&mut self) -> Result<()> {
        let mut facets = self.facets.to_vec();
        facets.iter_mut().try_for_each(|(_, pipeline)| pipeline.fold())?;
        self.facets = facets.into();
        Ok(())
    }

    /// What all of the pipelines read from, as mongod names it.
    pub fn input() -> Document {
        doc! {"$internalFacetTeeConsumer": {}}
    }
}

impl Behaviour for Facet {
    fn to_document(&self) -> Document {
        let facets: Document = (self.facets.iter())
            .map(|(name, pipeline)| {
                let mut stages = vec![Facet::input()];
                stages.extend(pipeline.to_documents());
                (name.as_str(), Value::from(stages))
            })
            .collect();
        [("$facet", Value::Document(facets))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        for (_, pipeline) in self.facets.iter() {
            pipeline.dependencies(needed);
        }
        Beyond::Nothing
    }

    fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.facets.iter().for_each(|(_, pipeline)| pipeline.collections(visit));
    }
}
