//! `lockInfo`: who holds MongoDB's locks. Kilim has none of them: a record's intent is nobody's to wait for by name.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    Ok(doc! {"lockInfo": []})
}
