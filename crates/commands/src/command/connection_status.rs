//! `connectionStatus`: who is logged in. Nobody is: there are no users yet.

use kilim_bson::{Document, Value, doc};
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut show_privileges = false;
    for argument in arguments("connectionStatus", call.body) {
        match argument.name {
            "showPrivileges" => show_privileges = argument.boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let none = || Value::Array(Default::default());
    let mut info = doc! {"authenticatedUsers": none(), "authenticatedUserRoles": none()};
    if show_privileges {
        info.push("authenticatedUserPrivileges", none());
    }
    Ok(doc! {"authInfo": info})
}
