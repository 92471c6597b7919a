//! `grantRolesToRole` and `revokeRolesFromRole`.

use kilim_auth::RoleName;
use kilim_bson::Document;
use kilim_error::Result;

use super::create_role::{check_inherited, role_to_change};
use super::create_user::first_text;
use super::user_roles::roles_argument;
use crate::access::store::{self, Kind};
use crate::dispatch::Call;

pub fn grant(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "grantRolesToRole", true)
}

pub fn revoke(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "revokeRolesFromRole", false)
}

fn change(call: &mut Call<'_, '_>, command: &'static str, grants: bool) -> Result<Document> {
    let name = RoleName::new(first_text(call, command)?, call.generic.database);
    let roles = roles_argument(call, command)?;
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let mut role = role_to_change(call, &name)?;
    role.roles.retain(|role| !roles.contains(role));
    if grants {
        check_inherited(call, &name, &roles)?;
        role.roles.extend(roles);
    }
    store::replace(call, Kind::Roles, &role.to_document())?;
    call.unit.settle()?;
    Ok(Document::new())
}
