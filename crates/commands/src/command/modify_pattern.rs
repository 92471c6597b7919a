//! `modifyPattern`: to come. Refused by name, so that nobody takes it for a misspelt command.

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use crate::dispatch::Call;

pub fn run(_: &mut Call<'_, '_>) -> Result<Document> {
    Err(Error::user(
        ErrorCode::NotImplemented,
        "modifyPattern is not supported by Kilim yet: dropPattern, which keeps the fields, then createPattern",
    ))
}
