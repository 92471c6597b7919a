//! `$graphLookup`: to every document, those of a collection that its references lead to, step by step.

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::lookup::{self, Unwinding};
use super::{Behaviour, Beyond, Context, Modified, Stage};
use crate::expression::{Dependencies, Expression, FieldPath};
use crate::filter::Filter;
use crate::text;

#[derive(Debug, Clone)]
pub struct GraphLookup {
    pub database: Box<str>,
    pub from: Box<str>,
    /// `as`: where the found documents go.
    pub target: FieldPath,
    /// Whose value, or elements, the search begins with.
    pub start_with: Expression,
    pub connect_from: FieldPath,
    pub connect_to: Path,
    pub depth_field: Option<FieldPath>,
    pub depth_max: Option<u64>,
    /// `restrictSearchWithMatch`, parsed and as it was written.
    pub restriction: Option<(Arc<Filter>, Document)>,
    pub unwinding: Option<Unwinding>,
    /// How texts compare.
    pub collation: Option<Collation>,
}

pub(super) fn glance(_: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    specification(value, database).map(drop)
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let (specification, from) = specification(value, context.database)?;
    let stage = parse_fields(specification, from, context)?;
    out.push(Stage::GraphLookup(Arc::new(stage)));
    Ok(())
}

/// The options, and among them the collection.
fn specification<'a>(value: RawValue<'a>, database: &str) -> Result<(RawDocument<'a>, &'a str)> {
    let RawValue::Document(specification) = value else {
        return Err(failed(format!(
            "the $graphLookup stage specification must be an object, but found {}",
            value.element_type().name()
        )));
    };
    let Some(from) = specification.get("from") else {
        return Err(failed(format!(
            "missing 'from' option to $graphLookup stage specification: {}",
            text::document(specification)
        )));
    };
    let from = lookup::parse_from("$graphLookup", from)?;
    lookup::check_from("$graphLookup", database, from)?;
    Ok((specification, from))
}

fn parse_fields(specification: RawDocument<'_>, from: &str, context: &Context<'_>) -> Result<GraphLookup> {
    let (mut target, mut connect_from, mut connect_to) = (None, None, None);
    let (mut start_with, mut depth_field, mut depth_max, mut restriction) = (None, None, None, None);
    for (name, value) in specification {
        match name {
            "from" => {}
            "startWith" => {
                start_with = Some(Expression::parse(value, context.scope)?.optimised_if_it_can_be())
            }
            "maxDepth" => depth_max = Some(parse_depth(value)?),
            "restrictSearchWithMatch" => {
                let RawValue::Document(written) = value else {
                    let message = format!(
                        "restrictSearchWithMatch must be an object, found {}",
                        value.element_type().name()
                    );
                    return Err(Error::location(40185, message));
                };
                restriction = Some((Arc::new(parse_restriction(written, context)?), written.to_document()));
            }
            "depthField" => depth_field = Some(FieldPath::parse(parse_text(name, value)?)?),
            "connectFromField" | "connectToField" | "as" => {
                let place = match name {
                    "as" => &mut target,
                    "connectFromField" => &mut connect_from,
                    _ => &mut connect_to,
                };
                *place = Some(parse_text(name, value)?);
            }
            _ => return Err(Error::location(40104, format!("Unknown argument to $graphLookup: {name}"))),
        }
    }
    let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(FieldPath::parse).transpose();
    let (target, connect_from, connect_to) = (given(target)?, given(connect_from)?, given(connect_to)?);
    let (Some(target), Some(connect_from), Some(connect_to), Some(start_with)) =
        (target, connect_from, connect_to, start_with)
    else {
        return Err(Error::location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be \
             specified.",
        ));
    };
    Ok(GraphLookup {
        database: context.database.into(),
        from: from.into(),
        target,
        start_with,
        connect_from,
        connect_to: Path::parse(connect_to.as_str()),
        depth_field,
        depth_max,
        restriction,
        unwinding: None,
        collation: context.scope.collation().clone(),
    })
}

fn parse_text<'a>(name: &str, value: RawValue<'a>) -> Result<&'a str> {
    let kind = value.element_type().name();
    value.as_str().ok_or_else(|| match value {
        RawValue::Document(_) => {
            Error::location(13111, format!("wrong type for field ({name}) {kind} != string"))
        }
        _ => Error::location(40103, format!("expected string as argument for {name}, found: {kind}")),
    })
}

fn parse_depth(value: RawValue<'_>) -> Result<u64> {
    if !value.is_number() {
        let message = format!("maxDepth must be numeric, found type: {}", value.element_type().name());
        return Err(Error::location(40100, message));
    }
    let whole = match value {
        RawValue::Int32(depth) => i64::from(depth),
        RawValue::Int64(depth) => depth,
        RawValue::Decimal128(depth) => depth.to_f64() as i64,
        RawValue::Double(depth) => depth as i64,
        _ => 0,
    };
    let depth = u64::try_from(whole).map_err(|_| {
        Error::location(40101, format!("maxDepth requires a nonnegative argument, found: {whole}"))
    })?;
    // Of doubles as doubles: two to the power of 63 is the largest number.
    let is_whole = match value {
        RawValue::Double(depth) => depth == whole as f64,
        value => kilim_bson::compare(value, RawValue::Int64(whole)).is_eq(),
    };
    if !is_whole {
        let message = format!("maxDepth could not be represented as a long long: {whole}");
        return Err(Error::location(40102, message));
    }
    Ok(depth)
}

fn parse_restriction(filter: RawDocument<'_>, context: &Context<'_>) -> Result<Filter> {
    if asks_near(filter) {
        return Err(Error::location(
            5_626_500,
            "Failed to parse 'restrictSearchWithMatch' option to $graphLookup :: caused by :: $geoNear, $near, and \
             $nearSphere are not allowed in this context",
        ));
    }
    let what = "Failed to parse 'restrictSearchWithMatch' option to $graphLookup";
    Filter::parse_for_stage(filter, context.scope).map_err(|error| error.during(what))
}

/// Whether a filter asks for an order by distance, which no search has.
fn asks_near(filter: RawDocument<'_>) -> bool {
    filter.iter().any(|(name, value)| {
        matches!(name, "$near" | "$nearSphere" | "$geoNear") || value.as_container().is_some_and(asks_near)
    })
}

fn failed(message: String) -> Error {
    Error::user(ErrorCode::FailedToParse, message)
}

impl GraphLookup {
    /// The same with the `$unwind` that follows, if it is one of what was found.
    pub fn with_unwind(&self, path: &str, unwinding: Unwinding) -> Option<GraphLookup> {
        let fits = self.unwinding.is_none() && self.target.as_str() == path;
        fits.then(|| GraphLookup { unwinding: Some(unwinding), ..self.clone() })
    }
}

impl Behaviour for GraphLookup {
    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.start_with.dependencies(needed);
        Beyond::Later
    }

    fn modified(&self) -> Modified {
        lookup::modified(&self.target, self.unwinding.as_ref())
    }

    fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit(&self.database, &self.from);
    }

    fn to_document(&self) -> Document {
        let mut stage = Document::new();
        stage.push("from", &*self.from);
        stage.push("as", self.target.as_str());
        stage.push("connectToField", self.connect_to.as_str());
        stage.push("connectFromField", self.connect_from.as_str());
        stage.push("startWith", self.start_with.to_value());
        if let Some(field) = &self.depth_field {
            stage.push("depthField", field.as_str());
        }
        if let Some(depth) = self.depth_max {
            stage.push("maxDepth", Value::Int64(depth as i64));
        }
        if let Some((_, written)) = &self.restriction {
            stage.push("restrictSearchWithMatch", written.clone());
        }
        if let Some(unwinding) = &self.unwinding {
            stage.push("unwinding", unwinding.to_document());
        }
        [("$graphLookup", Value::Document(stage))].into_iter().collect()
    }
}
