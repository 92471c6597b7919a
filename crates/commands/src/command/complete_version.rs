//! `completeVersion`: end a step between versions; all documents are stored in the newer one, and the older is not shown any more.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let pattern = named_pattern(call, "completeVersion", |argument| Err(argument.unknown()))?;
    let converted = call.engine.complete_version(&call.operation, &pattern)?;
    Ok(doc! {"name": &*pattern.declaration.name, "converted": converted as i64})
}
