//! `killOp`: interrupt a running command.

use kilim_auth::Action;
use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::access;
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut id = None;
    for argument in arguments("killOp", call.body) {
        match argument.name {
            "op" => {
                let whole = argument.integer()?;
                if argument.double()? != whole as f64 {
                    let message =
                        "Expected field \"op\" to have a value exactly representable as a 64-bit integer";
                    return Err(Error::user(ErrorCode::BadValue, message));
                }
                if i32::try_from(whole).is_err() {
                    return Err(Error::location(26823, format!("invalid op : {whole}")));
                }
                id = Some(whole);
            }
            _ => return Err(argument.unknown()),
        }
    }
    let id = id.ok_or_else(|| Error::user(ErrorCode::NoSuchKey, "Did not provide \"op\" field"))?;
    let running = call.engine.operations.get(id);
    let own = running.is_some_and(|operation| access::is_own(call, operation.user()));
    if !own && !access::may_on_cluster(call.client, Action::named("killop")) {
        return Err(access::unauthorized(call.spec, call.generic.database, call.body));
    }
    call.engine.operations.kill(id);
    Ok(doc! {"info": "attempting to kill op"})
}
