//! `usersInfo`: users, of a database, by name, or all.

use kilim_auth::{Privilege, Restriction, UserDocument, UserName};
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::create_user::{bad, is_one};
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "usersInfo";

struct Shown {
    privileges: bool,
    credentials: bool,
    custom_data: bool,
    restrictions: bool,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut shown = Shown { privileges: false, credentials: false, custom_data: true, restrictions: false };
    let mut filter = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "showPrivileges" => shown.privileges = argument.boolean()?,
            "showCredentials" => shown.credentials = argument.boolean()?,
            "showCustomData" => shown.custom_data = argument.boolean()?,
            "showAuthenticationRestrictions" => shown.restrictions = argument.boolean()?,
            "filter" => filter = Some(Filter::parse(argument.document()?)?),
            _ => return Err(argument.unknown()),
        }
    }
    let db = call.generic.database;
    let (_, asked) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let by_id = |names: Vec<UserName>| {
        let ids: Vec<Value> = names.iter().map(|name| Value::from(name.id())).collect();
        doc! {"_id": {"$in": ids}}
    };
    let (query, is_exact) = match asked {
        RawValue::Document(all) if matches!(all.get("forAllDBs"), Some(RawValue::Bool(true))) => {
            (Document::new(), false)
        }
        RawValue::Array(names) if names.is_empty() => {
            return Err(bad("$and/$or/$nor must be a nonempty array"));
        }
        RawValue::Array(names) => {
            let names = names.iter().map(|name| UserName::parse(name, db)).collect::<Result<Vec<_>>>()?;
            (by_id(names), true)
        }
        one if is_one(one) => (doc! {"db": db}, false),
        name => (by_id(vec![UserName::parse(name, db)?]), true),
    };
    let details = shown.privileges || shown.restrictions;
    if details && (!is_exact || filter.is_some()) {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            "Privilege or restriction details require exact-match usersInfo queries",
        ));
    }
    let mut users = Vec::new();
    for document in store::find(call.engine, &call.operation, Kind::Users, query)? {
        let user = UserDocument::from_document(document.as_raw())?;
        let document = show(call, user, document, &shown)?;
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(document.as_raw()))? {
            users.push(Value::Document(document));
        }
    }
    Ok(doc! {"users": users})
}

fn show(call: &Call<'_, '_>, user: UserDocument, stored: Document, shown: &Shown) -> Result<Document> {
    let mut document = Document::new();
    for (name, value) in stored.iter() {
        match name {
            "credentials" if !shown.credentials => {}
            "customData" if !shown.custom_data => {}
            "authenticationRestrictions" => {}
            _ => document.push(name, value),
        }
    }
    let mechanisms: Vec<Value> = user.credentials.mechanisms().into_iter().map(Value::from).collect();
    document.push("mechanisms", mechanisms);
    if !shown.privileges && !shown.restrictions {
        return Ok(document);
    }
    if shown.restrictions {
        document.push("authenticationRestrictions", Restriction::list(&user.restrictions));
    }
    let gathered = store::gathered(call.engine, &call.operation, &user.roles)?;
    let roles: Vec<Value> = gathered.roles.iter().map(|role| Value::Document(role.to_document())).collect();
    document.push("inheritedRoles", roles);
    document.push("inheritedPrivileges", Privilege::list(&gathered.privileges));
    let restrictions: Vec<Value> = gathered.restrictions.iter().map(|list| Restriction::list(list)).collect();
    document.push("inheritedAuthenticationRestrictions", restrictions);
    Ok(document)
}
