//! `killCursors`: close cursors.

use kilim_auth::Action;
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::access;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "killCursors";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    // Named for the client's sake: an id alone says which cursor is meant.
    call.namespace()?;
    let mut ids = Vec::new();
    let mut given = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "cursors" => {
                given = true;
                for (index, id) in argument.array()?.as_document().iter() {
                    match id {
                        RawValue::Int64(id) => ids.push(id),
                        other => {
                            return Err(Error::user(
                                ErrorCode::TypeMismatch,
                                format!(
                                    "BSON field 'killCursors.cursors.{index}' is the wrong type '{}', expected type 'long'",
                                    other.element_type().name()
                                ),
                            ));
                        }
                    }
                }
            }
            _ => return Err(argument.unknown()),
        }
    }
    if !given {
        return Err(Error::location(
            40414,
            "BSON field 'killCursors.cursors' is missing but a required field",
        ));
    }
    const KILL: Action = Action::named("killAnyCursor");
    for &id in &ids {
        // One that is not there is nobody's.
        let Some(user) = call.engine.cursors.user_of(id) else { continue };
        if !access::is_own(call, user.as_ref()) && !access::may_on_cluster(call.client, KILL) {
            return Err(access::unauthorized(call.spec, call.generic.database, call.body));
        }
    }
    let (mut killed, mut not_found) = (Vec::new(), Vec::new());
    for id in ids {
        match call.engine.cursors.kill(id) {
            true => killed.push(Value::Int64(id)),
            false => not_found.push(Value::Int64(id)),
        }
    }
    Ok(doc! {"cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": []})
}
