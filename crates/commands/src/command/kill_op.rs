//! `killOp`: interrupt a running command.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut id = None;
    for argument in arguments("killOp", call.body) {
        match argument.name {
            "op" => id = Some(argument.integer()?),
            _ => return Err(argument.unknown()),
        }
    }
    let id = id.ok_or_else(|| Error::user(ErrorCode::NoSuchKey, "Did not provide \"op\" field"))?;
    call.engine.operations.kill(id);
    Ok(doc! {"info": "attempting to kill op"})
}
