//! `rolesInfo`: roles, of a database or by name, built-in ones among them.

use kilim_auth::{Gathered, Privilege, Restriction, RoleDocument, RoleName, builtin, builtin_names};
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::text;

use super::create_user::{bad, is_one};
use crate::access::store::{self, Kind};
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "rolesInfo";

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShowPrivileges {
    No,
    Yes,
    /// What a user with these roles would have.
    AsUserFragment,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut privileges, mut builtins, mut restrictions) = (ShowPrivileges::No, false, false);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "showPrivileges" => privileges = parse_show_privileges(&argument)?,
            "showBuiltinRoles" => builtins = argument.boolean()?,
            "showAuthenticationRestrictions" => restrictions = argument.boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let db = call.generic.database;
    let (_, asked) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let names = match asked {
        RawValue::Array(names) => {
            names.iter().map(|name| RoleName::parse(name, db)).collect::<Result<_>>()?
        }
        one if is_one(one) => {
            if privileges == ShowPrivileges::AsUserFragment {
                return Err(Error::user(
                    ErrorCode::IllegalOperation,
                    "Cannot get user fragment for all roles in a database",
                ));
            }
            let mut names = Vec::new();
            for document in store::find(call.engine, &call.operation, Kind::Roles, doc! {"db": db})? {
                names.push(RoleDocument::from_document(document.as_raw())?.name);
            }
            if builtins {
                names.extend(builtin_names(db));
            }
            names
        }
        name => vec![RoleName::parse(name, db)?],
    };
    if privileges == ShowPrivileges::AsUserFragment {
        let gathered = store::gathered(call.engine, &call.operation, &names)?;
        let fragment = doc! {
            "roles": list(&names),
            "inheritedRoles": list(&gathered.roles),
            "inheritedPrivileges": Privilege::list(&gathered.privileges),
        };
        return Ok(doc! {"userFragment": fragment});
    }
    let mut roles = Vec::new();
    for name in names {
        roles
            .extend(show(call, &name, privileges == ShowPrivileges::Yes, restrictions)?.map(Value::Document));
    }
    Ok(doc! {"roles": roles})
}

fn parse_show_privileges(argument: &Argument<'_>) -> Result<ShowPrivileges> {
    match argument.value {
        RawValue::String("asUserFragment") => Ok(ShowPrivileges::AsUserFragment),
        RawValue::Bool(true) => Ok(ShowPrivileges::Yes),
        RawValue::Bool(false) => Ok(ShowPrivileges::No),
        value if argument.boolean().is_ok() => Ok(match is_one(value) {
            true => ShowPrivileges::Yes,
            false => ShowPrivileges::No,
        }),
        value => {
            let mut given = Document::new();
            given.push("showPrivileges", value);
            let given = text::document(given.as_raw());
            let given = given.trim_start_matches("{ ").trim_end_matches(" }");
            Err(bad(&format!(
                "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a boolean or the string \
                 'asUserFragment', given: {given}"
            )))
        }
    }
}

fn show(
    call: &Call<'_, '_>,
    name: &RoleName,
    privileges: bool,
    restrictions: bool,
) -> Result<Option<Document>> {
    if let Some(own) = builtin(name) {
        let empty = || Vec::<Value>::new();
        let mut shown =
            doc! {"db": &name.db, "role": &name.role, "roles": empty(), "inheritedRoles": empty()};
        if privileges {
            shown.push("privileges", Privilege::list(&own));
            shown.push("inheritedPrivileges", Privilege::list(&own));
        }
        shown.push("isBuiltin", true);
        return Ok(Some(shown));
    }
    let Some(role) = store::role(call.engine, &call.operation, name)? else { return Ok(None) };
    // Its own roles and what these inherit; its own privileges are among the inherited ones.
    let Gathered { roles, privileges: inherited, restrictions: lists } =
        store::gathered(call.engine, &call.operation, std::slice::from_ref(name))?;
    let mut shown = doc! {"_id": name.id(), "role": &name.role, "db": &name.db};
    if privileges {
        shown.push("privileges", Privilege::list(&role.privileges));
    }
    shown.push("roles", list(&role.roles));
    let own: Vec<Value> = match role.restrictions.is_empty() {
        true => Vec::new(),
        false => vec![Restriction::list(&role.restrictions)],
    };
    if restrictions {
        shown.push("authenticationRestrictions", own);
    }
    shown.push("inheritedRoles", list(&roles[1..]));
    if privileges {
        shown.push("inheritedPrivileges", Privilege::list(&inherited));
    }
    if restrictions {
        let lists: Vec<Value> = lists.iter().map(|list| Restriction::list(list)).collect();
        shown.push("inheritedAuthenticationRestrictions", lists);
    }
    shown.push("isBuiltin", false);
    Ok(Some(shown))
}

fn list(roles: &[RoleName]) -> Value {
    Value::from(roles.iter().map(|role| Value::Document(role.to_document())).collect::<Vec<_>>())
}
