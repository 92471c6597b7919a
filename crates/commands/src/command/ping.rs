//! `ping`: is anybody there?

use kilim_bson::Document;
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(_: &mut Call<'_, '_>) -> Result<Document> {
    Ok(Document::new())
}
