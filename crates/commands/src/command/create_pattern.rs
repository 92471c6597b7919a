//! `createPattern`: declare a pattern that writes then keep true.

use kilim_bson::{Document, doc};
use kilim_engine::maintenance::PatternState;
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Declaration;
use kilim_patterns::declaration::{Mode, Options};

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "createPattern";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    namespace.check_creatable()?;
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
    refuse_unenforced(NAME, &declaration.options)?;
    let checked = call.engine.check_pattern(&namespace.database, declaration.clone())?;
    let estimate = call.engine.estimate_pattern(&call.operation, &checked)?;
    if dry_run {
        let mut reply = doc! {
            "name": &*checked.declaration.name,
            "dryRun": true,
            "estimate": estimate.to_document(),
        };
        if let Some(sample) = estimate.sample {
            reply.push("sample", sample);
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

/// What can be declared and is not kept yet.
pub fn refuse_unenforced(command: &str, options: &Options) -> Result<()> {
    let default = Options::default();
    let refused = |option: &str, instead: &str| {
        Err(Error::user(
            ErrorCode::NotImplemented,
            format!("{command}: {option} is not supported by Kilim yet: {instead}"),
        ))
    };
    if options.mode == Mode::Async {
        return refused("mode: \"async\"", "maintenance is part of the write that causes it");
    }
    if options.max_sync != default.max_sync {
        return refused("'maxSync'", "all documents that a write concerns are written with it");
    }
    Ok(())
}
