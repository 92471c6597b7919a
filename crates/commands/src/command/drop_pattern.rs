//! `dropPattern`: end a pattern; its fields stay as plain ones, or go.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut keep_fields = true;
    let pattern = named_pattern(call, "dropPattern", |argument| match argument.name {
        "keepFields" => {
            keep_fields = argument.strict_boolean()?;
            Ok(())
        }
        _ => Err(argument.unknown()),
    })?;
    call.engine.drop_pattern(&call.operation, &pattern)?;
    call.engine.drop_supporting_index(&call.operation, &pattern)?;
    let mut reply = doc! {"name": &*pattern.declaration.name};
    if !keep_fields {
        let cleared = call.engine.remove_fields(&call.operation, &pattern)?;
        reply.push("cleared", cleared as i64);
    }
    Ok(reply)
}
