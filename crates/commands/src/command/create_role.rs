//! `createRole`: make a role, of privileges and of other roles.

use kilim_auth::{Privilege, Restriction, RoleDocument, RoleName, builtin};
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::{EXTERNAL, bad, first_text, parse_roles};
use super::write_reply::required;
use crate::access::store::{self, Kind};
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "createRole";

/// The fields that createRole and updateRole have in common.
#[derive(Default)]
pub struct Fields {
    pub privileges: Option<Vec<Privilege>>,
    pub roles: Option<Vec<RoleName>>,
    pub restrictions: Option<Vec<Restriction>>,
}

impl Fields {
    pub fn parse(call: &Call<'_, '_>, command: &'static str) -> Result<Fields> {
        let mut fields = Fields::default();
        for argument in arguments(command, call.body) {
            match argument.name {
                "privileges" => fields.privileges = Some(parse_privileges(&argument)?),
                "roles" => fields.roles = Some(parse_roles(call, &argument)?),
                "authenticationRestrictions" => {
                    fields.restrictions = Some(Restriction::parse_list(argument.array()?.iter(), command)?);
                }
                _ => return Err(argument.unknown()),
            }
        }
        Ok(fields)
    }
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = RoleName::new(first_text(call, NAME)?, call.generic.database);
    let fields = Fields::parse(call, NAME)?;
    let privileges = required(fields.privileges, NAME, "privileges")?;
    let roles = required(fields.roles, NAME, "roles")?;
    if name.role.is_empty() {
        return Err(bad("Role name must be non-empty"));
    }
    if name.db == "local" || name.db == EXTERNAL {
        return Err(bad(&format!("Cannot create roles in the {} database", name.db)));
    }
    if builtin(&name).is_some() {
        return Err(bad("Cannot create roles with the same name as a built-in role"));
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    check_inherited(call, &name, &roles)?;
    check_privileges(&name, &privileges)?;
    let restrictions = fields.restrictions.unwrap_or_default();
    let document = RoleDocument { name: name.clone(), privileges, roles, restrictions };
    store::insert(call, Kind::Roles, &document.to_document()).map_err(|error| match error.code() {
        ErrorCode::DuplicateKey => Error::location(51002, format!("Role \"{name}\" already exists")),
        _ => error,
    })?;
    call.unit.settle()?;
    Ok(Document::new())
}

pub fn parse_privileges(argument: &Argument<'_>) -> Result<Vec<Privilege>> {
    Privilege::parse_list(argument.array()?.iter())
}

/// A role that is no built-in one, to be changed.
pub fn role_to_change(call: &Call<'_, '_>, name: &RoleName) -> Result<RoleDocument> {
    if builtin(name).is_some() {
        return Err(bad(&format!("{name} is a built-in role and cannot be modified")));
    }
    store::role(call.engine, &call.operation, name)?
        .ok_or_else(|| Error::user(ErrorCode::RoleNotFound, format!("Role {name} not found")))
}

/// Refuses roles that a role cannot inherit: itself, those that inherit it, those that are not there or elsewhere.
pub fn check_inherited(call: &Call<'_, '_>, name: &RoleName, roles: &[RoleName]) -> Result<()> {
    for role in roles {
        if role == name {
            return Err(invalid(format!("Cannot grant role {role} to itself.")));
        }
        if name.db != "admin" && role.db != name.db {
            let message =
                format!("Roles on the '{}' database cannot be granted roles from other databases", name.db);
            return Err(invalid(message));
        }
        if !store::is_role(call.engine, &call.operation, role)? {
            return Err(Error::user(
                ErrorCode::RoleNotFound,
                format!("Cannot grant roles to '{name}': Could not find role: {role}"),
            ));
        }
    }
    let gathered = store::gathered(call.engine, &call.operation, roles)?;
    match gathered.roles.contains(name) {
        true => Err(invalid(format!("Granting roles to {name} would introduce a cycle in the role graph"))),
        false => Ok(()),
    }
}

/// Outside of `admin`, privileges are about the role's own database.
pub fn check_privileges(name: &RoleName, privileges: &[Privilege]) -> Result<()> {
    let is_own = |privilege: &Privilege| privilege.resource.database() == Some(&*name.db);
    match name.db == "admin" || privileges.iter().all(is_own) {
        true => Ok(()),
        false => Err(invalid(format!(
            "Roles on the '{}' database cannot be granted privileges that target other databases or the cluster",
            name.db
        ))),
    }
}

fn invalid(message: String) -> Error {
    Error::user(ErrorCode::InvalidRoleModification, message)
}
