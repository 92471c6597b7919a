//! How commands name a pattern: the collection first, then `name`.

use std::sync::Arc;

use kilim_engine::maintenance::Pattern;
use kilim_error::Result;

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
