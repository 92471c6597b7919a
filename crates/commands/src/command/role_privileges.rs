//! `grantPrivilegesToRole` and `revokePrivilegesFromRole`.

use kilim_auth::{Privilege, RoleName, merge};
use kilim_bson::Document;
use kilim_error::Result;

use super::create_role::{check_privileges, parse_privileges, role_to_change};
use super::create_user::{bad, first_text};
use super::write_reply::required;
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn grant(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "grantPrivilegesToRole", |name, privileges, granted| {
        check_privileges(name, &granted)?;
        merge(privileges, granted);
        Ok(())
    })
}

pub fn revoke(call: &mut Call<'_, '_>) -> Result<Document> {
    change(call, "revokePrivilegesFromRole", |_, privileges, revoked| {
        for Privilege { resource, actions } in revoked {
            for privilege in privileges.iter_mut().filter(|privilege| privilege.resource == resource) {
                privilege.actions.subtract(actions);
            }
        }
        privileges.retain(|privilege| !privilege.actions.is_empty());
        Ok(())
    })
}

fn change(
    call: &mut Call<'_, '_>,
    command: &'static str,
    apply: impl FnOnce(&RoleName, &mut Vec<Privilege>, Vec<Privilege>) -> Result<()>,
) -> Result<Document> {
    let name = RoleName::new(first_text(call, command)?, call.generic.database);
    let mut privileges = None;
    for argument in arguments(command, call.body) {
        match argument.name {
            "privileges" => privileges = Some(parse_privileges(&argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    let privileges = required(privileges, command, "privileges")?;
    if privileges.is_empty() {
        return Err(bad(&format!("{command} command requires a non-empty \"privileges\" array")));
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let mut role = role_to_change(call, &name)?;
    apply(&name, &mut role.privileges, privileges)?;
    store::replace(call, Kind::Roles, &role.to_document())?;
    call.unit.settle()?;
    Ok(Document::new())
}
