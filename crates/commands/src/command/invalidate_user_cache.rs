//! `invalidateUserCache`: every connection looks at its user again.

use kilim_bson::Document;
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    if let Some(argument) = arguments("invalidateUserCache", call.body).next() {
        return Err(argument.unknown());
    }
    call.client.access.note_change();
    Ok(Document::new())
}
