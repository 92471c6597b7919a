//! `dropDatabase`: drop a database.

use kilim_bson::Document;
use kilim_engine::check_database;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = call.generic.database;
    // An earlier version accepted more names; what it left behind can be dropped.
    if !call.engine.catalog().has_database(name) {
        check_database(name)?;
    }
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    // A guard against commands that were meant otherwise.
    if (Argument { command: "dropDatabase", name: "dropDatabase", value }).integer()? != 1 {
        return Err(Error::location(5255100, "Have to pass 1 as 'dropDatabase' parameter"));
    }
    if matches!(name, "admin" | "local") {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            format!("Dropping the '{name}' database is prohibited."),
        ));
    }
    if let Some(argument) = arguments("dropDatabase", call.body).next() {
        return Err(argument.unknown());
    }
    // Before the collections: this command would be written down in a new profile.
    call.engine.profiler.forget(name);
    call.engine.drop_database(&call.operation, name)?;
    Ok(Document::new())
}
