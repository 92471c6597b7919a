//! `verifyPattern` and `repairPattern`: compute again what a pattern maintains, compare, and put right.

use std::sync::Arc;

use kilim_bson::{Document, Timestamp, Value, doc};
use kilim_engine::maintenance::{Pattern, Verification};
use kilim_error::Result;
use kilim_query::filter::Filter;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

/// Examples that are shown unless more are asked for.
const LIMIT_DEFAULT: u64 = 100;
/// More would not fit into a reply.
const LIMIT_MAX: u64 = 1000;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (pattern, filter, limit) = parse(call, "verifyPattern")?;
    let found = call.engine.verify_pattern(&call.operation, &pattern, filter, limit)?;
    reply(call, &pattern, found)
}

pub fn run_repair(call: &mut Call<'_, '_>) -> Result<Document> {
    let (pattern, filter, limit) = parse(call, "repairPattern")?;
    let found = call.engine.repair_pattern(&call.operation, &pattern, filter, limit)?;
    reply(call, &pattern, found)
}

fn parse(call: &Call<'_, '_>, command: &'static str) -> Result<(Arc<Pattern>, Option<Arc<Filter>>, usize)> {
    let (mut filter, mut limit) = (None, LIMIT_DEFAULT);
    let pattern = named_pattern(call, command, |argument| {
        match argument.name {
            "filter" => filter = Some(Arc::new(Filter::parse(argument.document()?)?)),
            "limit" => limit = argument.not_negative()?.min(LIMIT_MAX),
            "sample" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
        Ok(())
    })?;
    Ok((pattern, filter, limit as usize))
}

fn reply(call: &Call<'_, '_>, pattern: &Pattern, found: Verification) -> Result<Document> {
    let state = call.engine.pattern(&pattern.target, &pattern.declaration.name)?.state.name();
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
