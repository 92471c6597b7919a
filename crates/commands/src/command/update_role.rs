//! `updateRole`: change the privileges, roles or restrictions of a role. Fields that are not named stay.

use kilim_auth::{RoleName, builtin};
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use super::create_role::{Fields, check_inherited, check_privileges};
use super::create_user::{bad, first_text};
use crate::access::store::{self, Kind};
use crate::dispatch::Call;

const NAME: &str = "updateRole";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = RoleName::new(first_text(call, NAME)?, call.generic.database);
    let fields = Fields::parse(call, NAME)?;
    if fields.privileges.is_none() && fields.roles.is_none() && fields.restrictions.is_none() {
        return Err(bad("Must specify at least one field to update in updateRole"));
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let missing = |message: String| Error::user(ErrorCode::RoleNotFound, message);
    if builtin(&name).is_some() {
        return Err(missing(format!("Role {name} not found")));
    }
    let role = store::role(call.engine, &call.operation, &name)?;
    let mut role = role.ok_or_else(|| missing(format!("Could not find role: {name}")))?;
    if let Some(roles) = fields.roles {
        check_inherited(call, &name, &roles)?;
        role.roles = roles;
    }
    if let Some(privileges) = fields.privileges {
        check_privileges(&name, &privileges)?;
        role.privileges = privileges;
    }
    if let Some(restrictions) = fields.restrictions {
        role.restrictions = restrictions;
    }
    store::replace(call, Kind::Roles, &role.to_document())?;
    call.unit.settle()?;
    Ok(Document::new())
}
