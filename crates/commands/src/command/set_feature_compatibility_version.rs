//! `setFeatureCompatibilityVersion`: there is one version of the data on disk, so the only one to set is the one it has.

use kilim_bson::{Document, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "setFeatureCompatibilityVersion";

/// The version that getParameter shows.
pub const VERSION: &str = "7.0";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let value = match call.body.get(NAME) {
        None | Some(RawValue::Null) => {
            return Err(Error::location(
                40414,
                format!("BSON field '{NAME}.{NAME}' is missing but a required field"),
            ));
        }
        Some(value) => value,
    };
    let version = Argument { command: NAME, name: NAME, value }.string()?;
    let mut confirmed = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "confirm" => confirmed = argument.strict_boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    match version {
        VERSION if confirmed => Ok(Document::new()),
        VERSION => Err(Error::location(
            7_369_100,
            "Once you have upgraded to 7.0, you will not be able to downgrade FCV and binary version without support \
             assistance. Please re-run this command with 'confirm: true' to acknowledge this.",
        )),
        "6.0" => Err(Error::user(
            ErrorCode::NotImplemented,
            "Kilim's data have one version: there is no earlier one to go back to",
        )),
        other => Err(Error::location(
            4_926_900,
            format!("Invalid feature compatibility version value '{other}', expected '6.0' or '{VERSION}'"),
        )),
    }
}
