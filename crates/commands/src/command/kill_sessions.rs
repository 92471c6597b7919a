//! `killSessions`, `killAllSessions`, `killAllSessionsByPattern`: end sessions and what they run.

use std::sync::Arc;

use kilim_auth::{Mechanism, UserName};
use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::ids::SessionId;
use kilim_engine::operation::User;
use kilim_error::{Error, ErrorCode, Result};

use super::end_sessions::{own, session_list};
use super::write_reply::required;
use crate::access::store;
use crate::argument::{Argument, nested};
use crate::dispatch::Call;
use crate::request::parse_lsid;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let listed = session_list(call)?;
    // An empty list means all of one's own, and without users all are.
    let ids = if listed.is_empty() { call.engine.sessions.list() } else { listed };
    kill(call, &own(call, ids));
    Ok(Document::new())
}

/// Ends all sessions, or those of some users.
pub fn run_all(call: &mut Call<'_, '_>) -> Result<Document> {
    const OF: &str = "killAllSessions";
    let users = Argument { command: OF, name: OF, value: first_value(call)? }.array()?;
    if users.is_empty() {
        kill(call, &call.engine.sessions.list());
        return Ok(Document::new());
    }
    let mut named = Vec::new();
    for element in users.iter() {
        named.push(parse_user(OF, element)?);
    }
    for user in &named {
        let name = UserName { user: user.name.clone(), db: user.db.clone() };
        if store::user(call.engine, &call.operation, &name)?.is_none() {
            let message = format!("Could not find user \"{}\" for db \"{}\"", user.name, user.db);
            return Err(Error::user(ErrorCode::UserNotFound, message));
        }
    }
    kill(call, &call.engine.sessions.of_users(&named));
    Ok(Document::new())
}

/// Ends the sessions that match one of several patterns: a session, or the users whose digest is given.
pub fn run_by_pattern(call: &mut Call<'_, '_>) -> Result<Document> {
    const OF: &str = "killAllSessionsByPattern";
    let patterns = Argument { command: OF, name: OF, value: first_value(call)? }.array()?;
    if patterns.is_empty() {
        kill(call, &call.engine.sessions.list());
        return Ok(Document::new());
    }
    let mut ids = Vec::new();
    for element in patterns.iter() {
        let pattern = Argument { command: OF, name: "0", value: element }.document()?;
        let (mut session, mut owner) = (None, None);
        for argument in nested("killAllSessionsByPattern", pattern) {
            match argument.name {
                "lsid" => session = Some(parse_owned(argument.document()?)?),
                "uid" => owner = Some(digest(argument.value)?),
                // Whose sessions these are on other members: there are none.
                "users" | "roles" => {
                    for element in argument.array()?.iter() {
                        let named = Argument { value: element, ..argument }.document()?;
                        let name = argument.name.trim_end_matches('s');
                        required(named.get(name), argument.name, name)?;
                        required(named.get("db"), argument.name, "db")?;
                    }
                }
                _ => return Err(argument.unknown()),
            }
        }
        let owned = |id: &SessionId, owner: Option<[u8; 32]>| {
            owner.is_none_or(|owner| {
                call.engine.sessions.owner(*id).is_some_and(|user| digest_of(&user) == owner.as_slice())
            })
        };
        ids.extend(call.engine.sessions.list().into_iter().filter(|id| match session {
            Some((session, of)) => *id == session && owned(id, Some(of)),
            None => owned(id, owner),
        }));
    }
    kill(call, &ids);
    Ok(Document::new())
}

fn first_value<'r>(call: &Call<'_, 'r>) -> Result<RawValue<'r>> {
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    Ok(value)
}

fn parse_user(command: &'static str, element: RawValue<'_>) -> Result<User> {
    let (mut name, mut db) = (None, None);
    for argument in nested(command, Argument { command, name: "0", value: element }.document()?) {
        match argument.name {
            "user" => name = Some(argument.string()?.to_owned()),
            "db" => db = Some(argument.string()?.to_owned()),
            _ => return Err(argument.unknown()),
        }
    }
    Ok(User { name: required(name, command, "user")?, db: required(db, command, "db")? })
}

/// A session with the digest of its user.
fn parse_owned(lsid: RawDocument<'_>) -> Result<(SessionId, [u8; 32])> {
    let owner = required(lsid.get("uid"), "killAllSessionsByPattern.lsid", "uid")?;
    Ok((parse_lsid(lsid)?, digest(owner)?))
}

fn digest(value: RawValue<'_>) -> Result<[u8; 32]> {
    match value {
        RawValue::Binary { subtype: 0, bytes } => bytes.try_into().map_err(|_| {
            let message = format!("Unsupported SHA256Block hash length: {}", bytes.len());
            Error::user(ErrorCode::UnsupportedFormat, message)
        }),
        other => Err(Argument { command: "killAllSessionsByPattern", name: "uid", value: other }
            .wrong_type("type 'binData'")),
    }
}

/// As drivers and mongod name a session's user: the digest of `name@db`, and of nobody that of nothing.
pub fn digest_of(user: &Option<Arc<User>>) -> Vec<u8> {
    let name = user.as_ref().map_or(String::new(), |user| format!("{}@{}", user.name, user.db));
    Mechanism::ScramSha256.hash(name.as_bytes())
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
