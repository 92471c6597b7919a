//! `connectionStatus`: who is logged in, and what he may do.

use kilim_auth::Privilege;
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
    let identity = call.client.login.identity.as_deref();
    let users = identity.map(|identity| Value::Document(identity.name.to_document()));
    let roles = identity.into_iter().flat_map(|identity| &identity.gathered.roles);
    let roles = roles.map(|role| Value::Document(role.to_document()));
    let mut info = doc! {
        "authenticatedUsers": users.into_iter().collect::<Vec<Value>>(),
        "authenticatedUserRoles": roles.collect::<Vec<Value>>(),
    };
    if show_privileges {
        let privileges = identity.map_or(&[][..], |identity| &identity.gathered.privileges);
        info.push("authenticatedUserPrivileges", Privilege::list(privileges));
    }
    Ok(doc! {"authInfo": info})
}
