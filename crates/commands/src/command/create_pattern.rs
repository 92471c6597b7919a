//! `createPattern`: declare a pattern that writes then keep true.

use std::sync::Arc;

use kilim_bson::{Document, Value, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::Result;
use kilim_patterns::Declaration;

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "createPattern";
/// Documents that are shown of those that would break a pattern's rules.
const EXAMPLES: usize = 100;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    namespace.check_creatable()?;
    namespace.check_writable()?;
    call.describe("command");
    let mut fields = Document::new();
    let mut dry_run = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "dryRun" => dry_run = argument.strict_boolean()?,
            name => fields.push(name, argument.value.to_value()),
        }
    }
    let declaration = Declaration::parse(&namespace.collection, fields.as_raw())?;
    let checked = call.engine.check_pattern(&namespace.database, declaration.clone())?;
    let estimate = call.engine.estimate_pattern(&call.operation, &checked)?;
    if dry_run {
        call.engine.try_version(&call.operation, &checked)?;
        let mut reply = doc! {
            "name": &*checked.declaration.name,
            "dryRun": true,
            "estimate": estimate.to_document(),
        };
        if let Some(sample) = estimate.sample {
            reply.push("sample", sample);
        }
        if let Some(found) = call.engine.try_rules(&call.operation, &Arc::new(checked), EXAMPLES)? {
            let examples: Vec<Value> = found.examples.into_iter().map(Value::Document).collect();
            reply.push("checked", found.checked as i64);
            reply.push("wrong", found.wrong as i64);
            reply.push("examples", examples);
        }
        return Ok(reply);
    }
    let pattern = call.engine.create_pattern(&call.operation, &namespace.database, declaration)?;
    let mut reply = doc! {"name": &*pattern.declaration.name, "state": pattern.state.name()};
    if pattern.state == PatternState::Building {
        reply.push("jobId", call.engine.begin_filling(&pattern) as i64);
    }
    reply.push("estimate", estimate.to_document());
    Ok(reply)
}
