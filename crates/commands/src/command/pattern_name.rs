//! How commands name a pattern: the collection first, then `name`.

use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_engine::patterns::{Pattern, about};
use kilim_error::{Error, Result};

use super::write_reply::required;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

/// The pattern that a command names. `other` takes the fields that are neither.
pub fn named_pattern(
    call: &Call<'_, '_>,
    command: &'static str,
    mut other: impl FnMut(&Argument<'_>) -> Result<()>,
) -> Result<Arc<Pattern>> {
    let namespace = call.namespace()?;
    call.describe("command");
    let mut name = None;
    for argument in arguments(command, call.body) {
        match argument.name {
            "name" => name = Some(argument.string()?),
            _ => other(&argument)?,
        }
    }
    call.engine.pattern(&namespace, required(name, command, "name")?)
}

/// An error of a pattern, with the name of the pattern that the command is about.
pub fn told_of_pattern(error: Error, call: &Call<'_, '_>) -> Error {
    let name = call.body.get("name").and_then(RawValue::as_str);
    match (name, call.namespace()) {
        (Some(name), Ok(namespace)) => about(error, &namespace, name, None),
        _ => error,
    }
}
