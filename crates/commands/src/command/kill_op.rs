//! `killOp`: interrupt a running command.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use super::write_reply::required;
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
    call.engine.operations.kill(required(id, "killOp", "op")?);
    Ok(doc! {"info": "attempting to kill op"})
}
