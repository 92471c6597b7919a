//! `refreshSessions`: keep sessions alive.

use kilim_bson::Document;
use kilim_error::Result;

use super::end_sessions::session_list;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    for id in session_list(call)? {
        call.engine.sessions.get(&call.engine.store, id)?;
    }
    Ok(Document::new())
}
