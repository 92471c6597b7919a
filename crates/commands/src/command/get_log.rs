//! `getLog`: the server's log goes to standard error; here are only its warnings at start.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::build_info::texts;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    match call.body.get("getLog") {
        Some(RawValue::String("*")) => Ok(doc! {"names": texts(["global", "startupWarnings"])}),
        Some(RawValue::String("global" | "startupWarnings")) => {
            Ok(doc! {"totalLinesWritten": 0, "log": Value::Array(Default::default())})
        }
        Some(RawValue::String(name)) => {
            Err(Error::user(ErrorCode::OperationFailed, format!("No log named '{name}'")))
        }
        _ => Err(Error::user(ErrorCode::TypeMismatch, "Argument to getLog must be of type String")),
    }
}
