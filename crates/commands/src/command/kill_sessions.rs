//! `killSessions`, `killAllSessions`: end sessions and what they run.

use kilim_bson::{Document, RawDocument};
use kilim_engine::ids::SessionId;
use kilim_error::{Error, ErrorCode, Result};

use super::end_sessions::session_list;
use crate::argument::Argument;
use crate::dispatch::Call;
use crate::request::parse_lsid;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let listed = session_list(call)?;
    // An empty list means all of one's own, and without users all are.
    let ids = if listed.is_empty() { call.engine.sessions.list() } else { listed };
    kill(call, &ids);
    Ok(Document::new())
}

pub fn run_all(call: &mut Call<'_, '_>) -> Result<Document> {
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let users = Argument { command: "killAllSessions", name: "killAllSessions", value }.array()?;
    if !users.is_empty() {
        return Err(Error::user(
            ErrorCode::NotImplemented,
            "killAllSessions: there are no users in Kilim yet, so all sessions are meant: pass []",
        ));
    }
    kill(call, &call.engine.sessions.list());
    Ok(Document::new())
}

fn kill(call: &Call<'_, '_>, ids: &[SessionId]) {
    let session_of = |session: RawDocument<'_>| parse_lsid(session).ok();
    for operation in call.engine.operations.list() {
        let session = operation.command().and_then(|command| command.get("lsid")?.as_document());
        let id = session.and_then(session_of);
        if operation.id != call.operation.id && id.is_some_and(|id| ids.contains(&id)) {
            operation.kill();
        }
    }
    for &id in ids {
        call.engine.end_session(id);
    }
}
