//! `ping`: is anybody there?

use kilim_bson::Document;
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    if let Some(argument) = arguments("ping", call.body).next() {
        return Err(argument.unknown());
    }
    Ok(Document::new())
}
