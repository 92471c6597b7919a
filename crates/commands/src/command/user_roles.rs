//! `grantRolesToUser` and `revokeRolesFromUser`.

use kilim_auth::{RoleName, UserName};
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::{bad, check_roles, first_text, parse_roles};
use super::write_reply::required;
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn grant(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "grantRolesToUser", |roles, granted| {
        for role in granted {
            if !roles.contains(role) {
                roles.push(role.clone());
            }
        }
    })
}

pub fn revoke(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "revokeRolesFromUser", |roles, revoked| roles.retain(|role| !revoked.contains(role)))
}

fn change(
    call: &mut Call<'_, '_>,
    command: &'static str,
    apply: impl FnOnce(&mut Vec<RoleName>, &[RoleName]),
) -> Result<Document> {
    let name = UserName::new(first_text(call, command)?, call.generic.database);
    let roles = roles_argument(call, command)?;
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let Some(mut user) = store::user(call.engine, &call.operation, &name)? else {
        return Err(Error::user(
            ErrorCode::UserNotFound,
            format!("Could not find user \"{}\" for db \"{}\"", name.user, name.db),
        ));
    };
    check_roles(call, &roles)?;
    apply(&mut user.roles, &roles);
    store::replace(call, Kind::Users, &user.to_document())?;
    call.unit.settle()?;
    Ok(Document::new())
}

/// `roles` of a command that needs some.
pub fn roles_argument(call: &Call<'_, '_>, command: &'static str) -> Result<Vec<RoleName>> {
    let mut roles = None;
    for argument in arguments(command, call.body) {
        match argument.name {
            "roles" => roles = Some(parse_roles(call, &argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    let roles = required(roles, command, "roles")?;
    match roles.is_empty() {
        true => Err(bad(&format!("{command} command requires a non-empty \"roles\" array"))),
        false => Ok(roles),
    }
}
