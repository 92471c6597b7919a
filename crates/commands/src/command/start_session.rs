//! `startSession`: begin a session.

use kilim_bson::{Document, Value, doc};
use kilim_engine::ids::SessionId;
use kilim_engine::limits;
use kilim_engine::new_uuid;
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let id = new_uuid(call.engine.environment());
    call.engine.sessions.get(&call.engine.store, SessionId(id))?;
    Ok(doc! {
        "id": {"id": Value::Binary { subtype: 4, bytes: id.to_vec() }},
        "timeoutMinutes": (limits::SESSION_IDLE.as_secs() / 60) as i32,
    })
}
