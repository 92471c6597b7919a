//! `rollbackVersion`: take a step between versions back; the older version is in force again.

use kilim_bson::{Document, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::Result;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut lossy = false;
    let pattern = named_pattern(call, "rollbackVersion", |argument| match argument.name {
        "lossy" => {
            lossy = argument.strict_boolean()?;
            Ok(())
        }
        _ => Err(argument.unknown()),
    })?;
    let back = call.engine.roll_version_back(&call.operation, &pattern, lossy)?;
    let mut reply = doc! {"name": &*back.declaration.name, "state": back.state.name()};
    if back.state == PatternState::Building {
        reply.push("jobId", call.engine.begin_filling(&back) as i64);
    }
    Ok(reply)
}
