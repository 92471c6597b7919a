//! `computed` as it is written: over another collection, or within the document.

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::stage::{Context, Group, Pipeline, Place, Stage};

use super::{Kind, argument};
use crate::derived::{Derived, bad_expression, not_deterministic};
use crate::path::overlap;
use crate::rollup::{Rollup, Stages, WhenNotMatched};

const PLACE: &str = "computed";

const WHEN_NOT_MATCHED: [(&str, WhenNotMatched); 2] =
    [("discard", WhenNotMatched::Discard), ("insert", WhenNotMatched::Insert)];

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Kind> {
    let (mut from, mut pipeline, mut set, mut when_not_matched) = (None, None, None, None);
    let mut on = None;
    for (name, value) in spec {
        match name {
            "from" => from = Some(argument::text(PLACE, name, value)?),
            "pipeline" => {
                pipeline = Some(value.as_array().ok_or_else(|| {
                    Error::user(ErrorCode::TypeMismatch, "'computed.pipeline' must be an array of stages")
                })?);
            }
            "on" => on = Some(argument::text(PLACE, name, value)?),
            "whenNotMatched" => {
                when_not_matched = Some(argument::choice(PLACE, name, value, &WHEN_NOT_MATCHED)?);
            }
            "set" => set = Some(argument::document(PLACE, name, value)?),
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    match (set, from, pipeline) {
        (Some(set), None, None) if on.is_none() && when_not_matched.is_none() => {
            refuse_chance(PLACE, RawValue::Document(set))?;
            Ok(Kind::Derived(Derived::parse(set)?))
        }
        (None, Some(from), Some(pipeline)) => rollup(&Parts {
            place: PLACE,
            from,
            pipeline,
            on: on.unwrap_or("_id"),
            when_not_matched: when_not_matched.unwrap_or(WhenNotMatched::Discard),
            outputs: None,
        }),
        (None, None, _) => Err(argument::missing(PLACE, "from")),
        (None, Some(_), None) => Err(argument::missing(PLACE, "pipeline")),
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "'computed' takes either 'from' and 'pipeline' or 'set', not both",
        )),
    }
}

/// What a rollup is made of.
pub(super) struct Parts<'a> {
    pub place: &'a str,
    pub from: &'a str,
    pub pipeline: RawArray<'a>,
    pub on: &'a str,
    pub when_not_matched: WhenNotMatched,
    /// Where the result's fields go; under their own names unless said.
    pub outputs: Option<Vec<(Box<str>, Box<str>)>>,
}

pub(super) fn rollup(parts: &Parts<'_>) -> Result<Kind> {
    let place = parts.place;
    refuse_chance(place, RawValue::Array(parts.pipeline))?;
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let context = Context::new(&scope, "", Place::Collection);
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
    if let Some((_, path)) = outputs.iter().find(|(_, path)| overlap(path, parts.on) || overlap(path, "_id"))
    {
        return Err(Error::user(
            ErrorCode::PatternFieldConflict,
            format!(
                "{place} would overwrite '{path}', by which parents are found: call the field something else"
            ),
        ));
    }
    Ok(Kind::Rollup(Rollup::new(parts.from, parts.on, parts.when_not_matched, stages, outputs)))
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

/// Operators that give another value each time.
fn refuse_chance(place: &str, value: RawValue<'_>) -> Result<()> {
    const CHANCE: [&str; 5] = ["$rand", "$sampleRate", "$sample", "$function", "$where"];
    let Some(container) = value.as_container() else { return Ok(()) };
    for (name, value) in container {
        if CHANCE.contains(&name) {
            return Err(not_deterministic(&format!("{place} uses {name}, which")));
        }
        if name != "$literal" {
            refuse_chance(place, value)?;
        }
    }
    Ok(())
}
