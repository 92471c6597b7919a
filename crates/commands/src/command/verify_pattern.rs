//! `verifyPattern` and `repairPattern`: compute again what a pattern maintains, compare, and put right.

use std::sync::Arc;

use kilim_bson::{Document, Timestamp, Value, doc};
use kilim_engine::patterns::Pattern;
use kilim_engine::upkeep::{Part, Verification};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::pattern_name::named_pattern;
use crate::argument::Argument;
use crate::dispatch::Call;

/// Examples that are shown unless more are asked for.
const LIMIT_DEFAULT: u64 = 100;
/// More would not fit into a reply.
const LIMIT_MAX: u64 = 1000;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (pattern, part, limit) = parse(call, "verifyPattern")?;
    let found = call.engine.verify_pattern(&call.operation, &pattern, part, limit)?;
    reply(call, &pattern, found)
}

pub fn run_repair(call: &mut Call<'_, '_>) -> Result<Document> {
    let (pattern, part, limit) = parse(call, "repairPattern")?;
    let found = call.engine.repair_pattern(&call.operation, &pattern, part, limit)?;
    reply(call, &pattern, found)
}

fn parse(call: &Call<'_, '_>, command: &'static str) -> Result<(Arc<Pattern>, Part, usize)> {
    let (mut part, mut limit) = (Part::default(), LIMIT_DEFAULT);
    let pattern = named_pattern(call, command, |argument| {
        match argument.name {
            "filter" => part.filter = Some(Arc::new(Filter::parse(argument.document()?)?)),
            "limit" => limit = argument.not_negative()?.min(LIMIT_MAX),
            "sample" => part.sample = Some(share(argument)?),
            _ => return Err(argument.unknown()),
        }
        Ok(())
    })?;
    Ok((pattern, part, limit as usize))
}

/// A part of the documents: above 0, at most 1.
fn share(argument: &Argument<'_>) -> Result<f64> {
    let share = argument.double()?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(Error::user(
            ErrorCode::BadValue,
            format!("'{}.sample' must be above 0 and at most 1", argument.command),
        )),
    }
}

fn reply(call: &Call<'_, '_>, pattern: &Pattern, found: Verification) -> Result<Document> {
    let state = call.engine.pattern(&pattern.target, &pattern.declaration.name)?.shown_state();
    let examples: Vec<Value> = found.examples.into_iter().map(Value::Document).collect();
    Ok(doc! {
        "name": &*pattern.declaration.name,
        "state": state,
        "checked": found.checked as i64,
        "wrong": found.wrong as i64,
        "examples": examples,
        "asOf": Value::Timestamp(Timestamp::from_bits(found.as_of)),
    })
}
