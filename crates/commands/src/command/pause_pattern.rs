//! `pausePattern`: leave a pattern's fields as they are for a while.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let pattern = named_pattern(call, "pausePattern", |argument| Err(argument.unknown()))?;
    call.engine.pause_pattern(&call.operation, &pattern)?;
    Ok(doc! {"name": &*pattern.declaration.name, "state": "paused"})
}
