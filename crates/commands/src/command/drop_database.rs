//! `dropDatabase`: drop a database.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = call.generic.database;
    kilim_engine::check_database(name)?;
    if let Some(argument) = arguments("dropDatabase", call.body).next() {
        return Err(argument.unknown());
    }
    let existed = call.engine.catalog().has_database(name);
    call.engine.drop_database(&call.operation, name)?;
    Ok(if existed { doc! {"dropped": name} } else { Document::new() })
}
