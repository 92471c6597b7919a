//! `fsync`: whatever was acknowledged is on disk when it answers, merged into the trees, so that a start has nothing to do
//! again. With `lock` nothing is written until `fsyncUnlock`.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    const NAME: &str = "fsync";
    call.describe("command");
    let mut lock = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "async" => drop(argument.boolean()?),
            // As on MongoDB, every value but a false one.
            "lock" => lock = argument.boolean().unwrap_or(true),
            "fsyncLockAcquisitionTimeoutMillis" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
    }
    if lock {
        let count = call.engine.fsync_lock.lock(&call.engine.store, &call.operation)?;
        return Ok(doc! {
            "info": "now locked against writes, use db.fsyncUnlock() to unlock",
            "lockCount": i64::from(count),
            "seeAlso": "http://dochub.mongodb.org/core/fsynccommand",
        });
    }
    // While it is locked, all of it is there.
    if call.engine.fsync_lock.count() == 0 {
        call.engine.store.sync()?;
        call.engine.store.checkpoint()?;
    }
    Ok(doc! {"numFiles": 1})
}

/// `fsyncUnlock`: as often as it was locked.
pub fn unlock(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let count = call.engine.fsync_lock.unlock()?;
    Ok(doc! {"info": "fsyncUnlock completed", "lockCount": i64::from(count)})
}
