//! `whatsmyuri`: the client's own address.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    Ok(doc! {"you": call.client.peer.to_string()})
}
