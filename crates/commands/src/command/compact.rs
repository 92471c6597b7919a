//! `compact`: give unused space back. The store does so by itself; what is asked for is that it be settled.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "compact";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    for argument in arguments(NAME, call.body) {
        match argument.name {
            // It blocks nobody, so it needs no force.
            "force" => {}
            _ => return Err(argument.unknown()),
        }
    }
    if call.engine.view(&namespace).is_some() {
        return Err(Error::user(ErrorCode::CommandNotSupportedOnView, "can't compact a view"));
    }
    if call.engine.collection(&namespace).is_none() {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "collection does not exist"));
    }
    call.engine.store.sync()?;
    Ok(doc! {"bytesFreed": 0})
}
