//! `dropUser` and `dropAllUsersFromDatabase`.

use kilim_auth::UserName;
use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::first_text;
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = UserName::new(first_text(call, "dropUser")?, call.generic.database);
    if let Some(argument) = arguments("dropUser", call.body).next() {
        return Err(argument.unknown());
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let removed = store::remove(call, Kind::Users, doc! {"_id": name.id()})?;
    call.unit.settle()?;
    match removed {
        0 => Err(Error::user(ErrorCode::UserNotFound, format!("User '{name}' not found"))),
        _ => Ok(Document::new()),
    }
}

pub fn run_all(call: &mut Call<'_, '_>) -> Result<Document> {
    if let Some(argument) = arguments("dropAllUsersFromDatabase", call.body).next() {
        return Err(argument.unknown());
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let removed = store::remove(call, Kind::Users, doc! {"db": call.generic.database})?;
    call.unit.settle()?;
    Ok(doc! {"n": removed as i32})
}
