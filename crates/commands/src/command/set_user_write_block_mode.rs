//! `setUserWriteBlockMode`: whether users may change data. Reads go on, and so does what the server writes itself.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use super::write_reply::required;
use crate::argument::arguments;
use crate::dispatch::Call;
use crate::kept::WRITE_BLOCK;

const NAME: &str = "setUserWriteBlockMode";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let mut global = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "global" => global = Some(argument.strict_boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    let global = required(global, NAME, "global")?;
    WRITE_BLOCK.write(call, &doc! {"blockUserWrites": global})?;
    call.engine.settings.block_user_writes(global);
    Ok(Document::new())
}
