//! `logout`: end the login of a user of this database.

use kilim_bson::Document;
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    if let Some(argument) = arguments("logout", call.body).next() {
        return Err(argument.unknown());
    }
    let identity = call.client.login.identity.as_ref();
    if identity.is_some_and(|identity| identity.name.db == call.generic.database) {
        if let Some(audit) = call.client.access.audit() {
            audit.note_logout(call.client);
        }
        call.engine.connections.note(call.client.id, |told| told.user = None);
        call.client.login.identity = None;
        call.client.login.conversation = None;
    }
    Ok(Document::new())
}
