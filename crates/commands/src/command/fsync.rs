//! `fsync`: whatever was acknowledged is on disk when it answers.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    const NAME: &str = "fsync";
    call.describe("command");
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "async" => drop(argument.boolean()?),
            "lock" if !argument.boolean()? => {}
            "lock" => {
                let message = "fsync does not lock the server: kilim backup copies the data of one that goes on writing";
                return Err(Error::user(ErrorCode::NotImplemented, message));
            }
            "fsyncLockAcquisitionTimeoutMillis" => drop(argument.integer()?),
            _ => return Err(argument.unknown()),
        }
    }
    call.engine.store.sync()?;
    Ok(doc! {"numFiles": 1})
}
