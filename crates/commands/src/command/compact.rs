//! `compact`: write a collection and its indexes anew, densely, and give what that frees back.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::coll_stats::number;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "compact";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    for argument in arguments(NAME, call.body) {
        match argument.name {
            // It blocks nobody, so it needs no force.
            "force" => {}
            _ => return Err(argument.unknown()),
        }
    }
    let namespace = match call.engine.view(&namespace) {
        // Of a time series, its buckets.
        Some(view) if view.time_series.is_some() => view.on.clone(),
        Some(_) => return Err(Error::user(ErrorCode::CommandNotSupportedOnView, "can't compact a view")),
        None => namespace,
    };
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "collection does not exist"));
    };
    let compacted = call.engine.compact(&collection, &call.operation)?;
    Ok(doc! {"bytesFreed": number(compacted.freed_bytes() as i64)})
}
