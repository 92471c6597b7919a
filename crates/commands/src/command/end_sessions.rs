//! `endSessions`: end sessions.

use kilim_auth::Action;
use kilim_bson::{Document, RawValue};
use kilim_engine::ids::SessionId;
use kilim_error::{Error, ErrorCode, Result};

use crate::access;
use crate::argument::arguments;
use crate::dispatch::Call;
use crate::request::parse_lsid;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    for id in own(call, session_list(call)?) {
        call.engine.end_session(id);
    }
    Ok(Document::new())
}

/// Those of some sessions that the user may end: his own, or all if he may kill any.
pub fn own(call: &Call<'_, '_>, mut ids: Vec<SessionId>) -> Vec<SessionId> {
    if !access::may_on_cluster(call.client, Action::named("killAnySession")) {
        let sessions = &call.engine.sessions;
        ids.retain(|id| sessions.owner(*id).flatten().is_none_or(|owner| access::is_own(call, Some(&owner))));
    }
    ids
}

/// The sessions that a command's first field lists.
pub fn session_list(call: &Call<'_, '_>) -> Result<Vec<SessionId>> {
    if let Some(argument) = arguments("sessions", call.body).next() {
        return Err(argument.unknown());
    }
    match call.body.iter().next() {
        Some((_, RawValue::Array(sessions))) => (sessions.iter())
            .map(|session| match session.as_document() {
                Some(document) => parse_lsid(document),
                None => Err(Error::user(ErrorCode::TypeMismatch, "a session is an object with an id")),
            })
            .collect(),
        Some((name, RawValue::Null | RawValue::Undefined)) => {
            Err(Error::location(10065, format!("invalid parameter: expected an object ({name})")))
        }
        _ => Err(Error::user(ErrorCode::TypeMismatch, "an array of sessions is expected")),
    }
}
