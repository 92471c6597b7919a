//! `updateUser`: change a user's password, roles, data, mechanisms or restrictions. Fields that are not named stay.

use kilim_auth::{Credentials, Mechanism, UserName};
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::{EXTERNAL, Fields, bad, check_roles, first_text, password_outside};
use crate::access::store::{self, Kind};
use crate::dispatch::Call;

const NAME: &str = "updateUser";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = UserName::new(first_text(call, NAME)?, call.generic.database);
    let fields = Fields::parse(call, NAME)?;
    let changes = fields.password.is_some()
        || fields.custom_data.is_some()
        || fields.roles.is_some()
        || fields.mechanisms.is_some()
        || fields.restrictions.is_some();
    if !changes {
        return Err(bad("Must specify at least one field to update in updateUser"));
    }
    if name.db == EXTERNAL && fields.password.is_some() {
        return Err(password_outside());
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    if let Some(roles) = &fields.roles {
        check_roles(call, roles)?;
    }
    // Before the user is looked for: a fault of the password is one whoever he is.
    let wanted = fields.mechanisms.clone();
    let made = match fields.password {
        Some(_) => {
            Some(fields.credentials(call, &name.user, wanted.as_deref().unwrap_or(&Mechanism::ALL))?)
        }
        None => None,
    };
    let Some(mut user) = store::user(call.engine, &call.operation, &name)? else {
        return Err(Error::user(ErrorCode::UserNotFound, format!("User {name} not found")));
    };
    match (made, wanted) {
        (Some(credentials), _) => user.credentials = credentials,
        (None, Some(kept)) => user.credentials = subset(&user.credentials, &kept)?,
        (None, None) => {}
    }
    if let Some(data) = fields.custom_data {
        user.custom_data = Some(data);
    }
    if let Some(roles) = fields.roles {
        user.roles = roles;
    }
    if let Some(restrictions) = fields.restrictions {
        user.restrictions = restrictions;
    }
    store::replace(call, Kind::Users, &user.to_document())?;
    call.unit.settle()?;
    Ok(Document::new())
}

/// Without a password, mechanisms can only be taken away.
fn subset(credentials: &Credentials, kept: &[Mechanism]) -> Result<Credentials> {
    let mut left = Credentials::default();
    for &mechanism in kept {
        let credential = credentials
            .of(mechanism)
            .ok_or_else(|| bad("mechanisms field must be a subset of previously set mechanisms"))?;
        left.set(mechanism, Some(credential.clone()));
    }
    Ok(left)
}
