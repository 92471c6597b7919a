//! `dropRole` and `dropAllRolesFromDatabase`. Whoever had the role has it no more.

use kilim_auth::{RoleDocument, RoleName, UserDocument, builtin};
use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::{bad, first_text};
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = RoleName::new(first_text(call, "dropRole")?, call.generic.database);
    if let Some(argument) = arguments("dropRole", call.body).next() {
        return Err(argument.unknown());
    }
    if builtin(&name).is_some() {
        return Err(bad(&format!("{name} is a built-in role and cannot be modified")));
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    if store::role(call.engine, &call.operation, &name)?.is_none() {
        return Err(Error::user(ErrorCode::RoleNotFound, format!("Could not find role: {name}")));
    }
    take_from_all(call, |role| *role == name, doc! {"roles": {"role": &name.role, "db": &name.db}})?;
    store::remove(call, Kind::Roles, doc! {"_id": name.id()})?;
    call.unit.settle()?;
    Ok(Document::new())
}

pub fn run_all(call: &mut Call<'_, '_>) -> Result<Document> {
    if let Some(argument) = arguments("dropAllRolesFromDatabase", call.body).next() {
        return Err(argument.unknown());
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    let db = call.generic.database.to_owned();
    take_from_all(call, |role| role.db == db && builtin(role).is_none(), doc! {"roles.db": &db})?;
    let removed = store::remove(call, Kind::Roles, doc! {"db": &db})?;
    call.unit.settle()?;
    Ok(doc! {"n": removed as i32})
}

/// Takes roles from all users and roles that have them.
fn take_from_all(
    call: &mut Call<'_, '_>,
    is_taken: impl Fn(&RoleName) -> bool,
    holders: Document,
) -> Result<()> {
    for document in store::find(call.engine, &call.operation, Kind::Users, holders.clone())? {
        let mut user = UserDocument::from_document(document.as_raw())?;
        user.roles.retain(|role| !is_taken(role));
        store::replace(call, Kind::Users, &user.to_document())?;
    }
    for document in store::find(call.engine, &call.operation, Kind::Roles, holders)? {
        let mut role = RoleDocument::from_document(document.as_raw())?;
        role.roles.retain(|role| !is_taken(role));
        store::replace(call, Kind::Roles, &role.to_document())?;
    }
    Ok(())
}
