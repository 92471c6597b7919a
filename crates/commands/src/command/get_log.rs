//! `getLog`: the last lines of the server's log, or its warnings from before it was ready.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::build_info::texts;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let at_start = match call.body.get("getLog") {
        Some(RawValue::String("*")) => return Ok(doc! {"names": texts(["global", "startupWarnings"])}),
        Some(RawValue::String("global")) => false,
        Some(RawValue::String("startupWarnings")) => true,
        Some(RawValue::String(name)) => {
            return Err(Error::user(ErrorCode::OperationFailed, format!("No log named '{name}'")));
        }
        _ => {
            return Err(Error::user(ErrorCode::TypeMismatch, "Argument to getLog must be of type String"));
        }
    };
    let recent = call.engine.log.recent();
    let shown = recent.lines.into_iter().filter(|line| !at_start || line.is_start_warning);
    let lines: Vec<Value> = shown.map(|line| Value::from(line.text)).collect();
    let written = if at_start { recent.warnings_at_start } else { recent.written };
    Ok(doc! {"totalLinesWritten": written as i32, "log": lines})
}
