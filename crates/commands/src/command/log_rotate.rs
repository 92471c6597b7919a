//! `logRotate`: a log file is opened anew, by its name. A log that goes to standard error is rotated by the program that reads it.

use kilim_bson::{Document, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    const NAME: &str = "logRotate";
    call.describe("command");
    if let Some(argument) = arguments(NAME, call.body).find(|argument| argument.name != "comment") {
        return Err(argument.unknown());
    }
    match call.body.get(NAME) {
        Some(RawValue::String(log)) if log != "server" => {
            Err(Error::user(ErrorCode::NoSuchKey, format!("there is no log named '{log}' to rotate")))
        }
        _ => {
            call.engine.log.reopen();
            Ok(Document::new())
        }
    }
}
