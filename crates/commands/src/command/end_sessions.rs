//! `endSessions`: end sessions.

use kilim_bson::{Document, RawValue};
use kilim_engine::ids::SessionId;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;
use crate::request::parse_lsid;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    for id in session_list(call)? {
        call.engine.end_session(id);
    }
    Ok(Document::new())
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
        _ => Err(Error::user(ErrorCode::TypeMismatch, "an array of sessions is expected")),
    }
}
