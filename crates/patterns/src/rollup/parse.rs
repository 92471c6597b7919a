//! A rollup's pipeline as it is written.

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::stage::{Context, Group, Owner, Pipeline, Stage};

use super::{Rollup, Stages, WhenNotMatched};
use crate::expression::{bad_expression, refuse_chance};
use crate::path::{is_path, overlap};

/// What a rollup is made of.
pub(crate) struct Parts<'a> {
    pub place: &'a str,
    pub from: &'a str,
    pub pipeline: RawArray<'a>,
    pub on: &'a str,
    pub when_not_matched: WhenNotMatched,
    /// Where the result's fields go; under their own names unless said.
    pub outputs: Option<Vec<(Box<str>, Box<str>)>>,
}

impl Rollup {
    pub(crate) fn parse(parts: &Parts<'_>) -> Result<Rollup> {
        let place = parts.place;
        refuse_chance(place, RawValue::Array(parts.pipeline))?;
        let variables = Variables::default();
        let scope = Scope::new(&variables);
        let context = Context::new(&scope, "", Owner::Collection);
        let refused = |error: Error| bad_expression(&format!("{place}.pipeline"), error);
        let mut pipeline = Pipeline::parse(parts.pipeline, &context).map_err(refused)?;
        pipeline.fold().map_err(refused)?;
        let stages = divide(place, pipeline)?;
        let outputs = match &parts.outputs {
            Some(outputs) => outputs.clone(),
            None => {
                let names = outputs_of(place, &stages.group, &stages.behind)?;
                names.into_iter().map(|name| (name.clone(), name)).collect()
            }
        };
        if outputs.is_empty() {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!("'{place}.pipeline' computes no field: give its $group an accumulator"),
            ));
        }
        if let Some((_, path)) =
            outputs.iter().find(|(_, path)| overlap(path, parts.on) || overlap(path, "_id"))
        {
            return Err(Error::user(
                ErrorCode::PatternFieldConflict,
                format!(
                    "{place} would overwrite '{path}', by which parents are found: call the field something else"
                ),
            ));
        }
        let refusal = refusal(parts);
        Ok(Rollup { refusal, ..Rollup::new(parts.from, parts.on, parts.when_not_matched, stages, outputs) })
    }
}

/// What a new declaration is refused for. One that is in force already stays so.
fn refusal(parts: &Parts<'_>) -> Option<Error> {
    let place = parts.place;
    let mut given = parts.outputs.iter().flatten();
    if let Some((_, path)) = given.find(|(_, path)| !is_path(path)) {
        let message =
            format!("'{place}.as' is '{path}', which is no path: write field names with dots between them");
        return Some(Error::user(ErrorCode::BadValue, message));
    }
    let stages = parts.pipeline.iter().filter_map(RawValue::as_document);
    let mut behind = stages.skip_while(|stage| stage.get("$group").is_none()).skip(1);
    behind.any(changes_id).then(|| {
        let message = format!(
            "'{place}.pipeline' gives '_id' another value behind its $group: documents are found by the _id of the $group, so \
             compute it there"
        );
        Error::user(ErrorCode::PatternBadExpression, message)
    })
}

/// Whether a stage computes `_id` or a part of it. To leave it out changes nothing, and a number or a boolean of a `$project`
/// only says whether it is shown.
fn changes_id(stage: RawDocument<'_>) -> bool {
    let Some((name, RawValue::Document(spec))) = stage.iter().next() else { return false };
    spec.iter().any(|(field, value)| match field {
        "_id" => {
            let says_whether = name == "$project" && (value.is_number() || value.as_bool().is_some());
            !says_whether && value.as_str() != Some("$_id")
        }
        field => field.starts_with("_id."),
    })
}

/// Stages of one document, one `$group`, stages of one document.
fn divide(place: &str, pipeline: Pipeline) -> Result<Stages> {
    let refused =
        |message: &str| Error::user(ErrorCode::PatternBadExpression, format!("'{place}.pipeline' {message}"));
    let (mut before, mut group, mut behind) = (Vec::new(), None, Vec::new());
    for stage in pipeline.stages {
        match (stage, &group) {
            (Stage::Group(stage), None) => group = Some(stage),
            (Stage::Group(_), Some(_)) => return Err(refused("has two $group stages, and may have one")),
            (
                stage @ (Stage::Match(_) | Stage::Unwind(_) | Stage::AddFields(_) | Stage::Project(_)),
                None,
            ) => {
                before.push(stage);
            }
            (stage @ (Stage::AddFields(_) | Stage::Project(_)), Some(_)) => behind.push(stage),
            (stage, group) => {
                let shown = stage.behaviour().to_document();
                let name = shown.iter().next().map_or("", |(name, _)| name).to_owned();
                let may = match group {
                    None => "$match, $unwind, $set, $project before the $group",
                    Some(_) => "$set and $project behind the $group",
                };
                return Err(refused(&format!("has {name}: it may have {may}")));
            }
        }
    }
    let group = group.ok_or_else(|| {
        refused("has no $group: add one, or compute fields of the same document with 'set'")
    })?;
    Ok(Stages { before, group, behind })
}

/// The fields of the pipeline's result, but for its `_id`.
fn outputs_of(place: &str, group: &Group, behind: &[Stage]) -> Result<Vec<Box<str>>> {
    let mut names: Vec<Box<str>> = group.fields.iter().map(|(name, _)| name.clone()).collect();
    for stage in behind {
        match stage {
            Stage::AddFields(stage) => {
                for name in stage.projection.added_names() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            Stage::Project(stage) => names = stage.projection.shown_names(&names),
            _ => {}
        }
    }
    names.retain(|name| &**name != "_id");
    if let Some(name) = names.iter().find(|name| name.starts_with('$')) {
        let message =
            format!("'{place}.pipeline' makes a field '{name}': names of fields do not begin with '$'");
        return Err(Error::user(ErrorCode::PatternBadExpression, message));
    }
    Ok(names)
}
