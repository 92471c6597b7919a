//! `createUser`: make a user. Of the password only what SCRAM needs is kept.

use kilim_auth::{Credential, Credentials, Mechanism, Restriction, RoleName, UserDocument, UserName, digest};
use kilim_bson::{Document, RawArray, RawValue};
use kilim_engine::new_uuid;
use kilim_error::{Error, ErrorCode, Result};

use super::sasl::{iterations, random_bytes};
use super::write_reply::required;
use crate::access::store::{self, Kind};
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "createUser";
/// The database of users whom somebody else vouches for.
pub const EXTERNAL: &str = "$external";

/// The fields that createUser and updateUser have in common.
#[derive(Default)]
pub struct Fields<'a> {
    pub password: Option<&'a str>,
    pub custom_data: Option<Document>,
    pub roles: Option<Vec<RoleName>>,
    pub mechanisms: Option<Vec<Mechanism>>,
    pub digests: Option<bool>,
    pub restrictions: Option<Vec<Restriction>>,
}

impl<'a> Fields<'a> {
    pub fn parse(call: &Call<'_, 'a>, command: &'static str) -> Result<Fields<'a>> {
        let mut fields = Fields::default();
        for argument in arguments(command, call.body) {
            match argument.name {
                "pwd" => fields.password = Some(argument.string()?),
                "customData" => fields.custom_data = Some(argument.document()?.to_document()),
                "roles" => fields.roles = Some(parse_roles(call, &argument)?),
                "mechanisms" => fields.mechanisms = Some(parse_mechanisms(argument.array()?)?),
                "digestPassword" => fields.digests = Some(argument.strict_boolean()?),
                "authenticationRestrictions" => {
                    fields.restrictions = Some(Restriction::parse_list(argument.array()?.iter(), command)?);
                }
                _ => return Err(argument.unknown()),
            }
        }
        Ok(fields)
    }

    /// What is kept of the password, for the mechanisms asked for.
    pub fn credentials(
        &self,
        call: &Call<'_, '_>,
        user: &str,
        mechanisms: &[Mechanism],
    ) -> Result<Credentials> {
        let Some(password) = self.password else { return Err(Error::bug("credentials without a password")) };
        let mut credentials = Credentials::default();
        for &mechanism in mechanisms {
            let secret = match (mechanism, self.digests) {
                (Mechanism::ScramSha256, Some(false)) => {
                    return Err(bad("Use of SCRAM-SHA-256 requires undigested passwords"));
                }
                // The client has digested it already.
                (Mechanism::ScramSha1, Some(false)) => password.to_owned(),
                (Mechanism::ScramSha1, _) => digest(user, password),
                (Mechanism::ScramSha256, _) => mechanism.secret(user, password)?,
            };
            let salt = random_bytes(call, mechanism.salt_bytes());
            let credential = Credential::new(mechanism, &secret, salt, iterations(call, mechanism));
            credentials.set(mechanism, Some(credential));
        }
        Ok(credentials)
    }
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let user = first_text(call, NAME)?;
    let fields = Fields::parse(call, NAME)?;
    let roles = required(fields.roles.clone(), NAME, "roles")?;
    let db = call.generic.database.to_owned();
    if user.is_empty() {
        return Err(bad("User document needs 'user' field to be non-empty"));
    }
    if user.contains('\0') {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            "namespaces cannot have embedded null characters",
        ));
    }
    if db == "local" {
        return Err(bad("Cannot create users in the local database"));
    }
    let credentials = match (&*db, fields.password) {
        (EXTERNAL, Some(_)) => return Err(password_outside()),
        (EXTERNAL, None) => Credentials { external: true, ..Credentials::default() },
        (_, None) => {
            return Err(bad(
                "Must provide a 'pwd' field for all user documents, except those with '$external' as the \
                            user's source db",
            ));
        }
        (_, Some(_)) => {
            let mechanisms = fields.mechanisms.clone().unwrap_or_else(|| Mechanism::ALL.to_vec());
            fields.credentials(call, user, &mechanisms)?
        }
    };
    let access = call.client.access.clone();
    let _change = access.change.lock();
    check_roles(call, &roles)?;
    let name = UserName::new(user, &db);
    let document = UserDocument {
        id: new_uuid(call.engine.environment()),
        credentials,
        custom_data: fields.custom_data,
        roles,
        restrictions: fields.restrictions.unwrap_or_default(),
        name: name.clone(),
    };
    store::insert(call, Kind::Users, &document.to_document()).map_err(|error| match error.code() {
        ErrorCode::DuplicateKey => Error::location(51003, format!("User \"{name}\" already exists")),
        _ => error,
    })?;
    call.unit.settle()?;
    Ok(Document::new())
}

/// The name that a command's first field holds.
pub fn first_text<'r>(call: &Call<'_, 'r>, command: &'static str) -> Result<&'r str> {
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    Argument { command, name: command, value }.string()
}

pub fn parse_roles(call: &Call<'_, '_>, argument: &Argument<'_>) -> Result<Vec<RoleName>> {
    RoleName::parse_list(argument.array()?.iter(), call.generic.database)
}

fn parse_mechanisms(names: RawArray<'_>) -> Result<Vec<Mechanism>> {
    let mut mechanisms = Vec::new();
    for name in names.iter() {
        let name = name.as_str().unwrap_or_default();
        let mechanism =
            Mechanism::find(name).ok_or_else(|| bad(&format!("Unknown auth mechanism '{name}'")))?;
        if !mechanisms.contains(&mechanism) {
            mechanisms.push(mechanism);
        }
    }
    match mechanisms.is_empty() {
        true => Err(bad("mechanisms field must not be empty")),
        false => Ok(mechanisms),
    }
}

/// Refuses a role that is not there.
pub fn check_roles(call: &Call<'_, '_>, roles: &[RoleName]) -> Result<()> {
    for role in roles {
        if !store::is_role(call.engine, &call.operation, role)? {
            return Err(Error::user(ErrorCode::RoleNotFound, format!("Could not find role: {role}")));
        }
    }
    Ok(())
}

pub fn password_outside() -> Error {
    bad("Cannot set the password for users defined on the '$external' database")
}

pub fn bad(message: &str) -> Error {
    Error::user(ErrorCode::BadValue, message.to_owned())
}

/// Whether a command asks for all with a 1.
pub fn is_one(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Int32(number) => number == 1,
        RawValue::Int64(number) => number == 1,
        RawValue::Double(number) => number == 1.0,
        _ => false,
    }
}
