//! `modifyPattern`: change a pattern's definition while it is in force.

use kilim_bson::{Document, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::Result;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

const NAME: &str = "modifyPattern";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut changes = Document::new();
    let pattern = named_pattern(call, NAME, |argument| {
        changes.push(argument.name, argument.value.to_value());
        Ok(())
    })?;
    let modified = call.engine.modify_pattern(&call.operation, &pattern, changes.as_raw())?;
    let mut reply = doc! {"name": &*modified.declaration.name, "state": modified.shown_state()};
    if modified.id != pattern.id && modified.state == PatternState::Building {
        reply.push("jobId", call.engine.begin_filling(&modified) as i64);
        let estimate = call.engine.estimate_pattern(&call.operation, &modified)?;
        reply.push("estimate", estimate.to_document());
    }
    Ok(reply)
}
