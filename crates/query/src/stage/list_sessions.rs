//! `$listSessions` and `$listLocalSessions`: sessions that were used lately. One node knows them all, so
//! both show the same, though they are asked in different places.

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::field::{unknown, wrong_type};
use super::{Behaviour, Context, Owner, Stage, current_op};

#[derive(Debug, Clone)]
pub struct ListSessions {
    name: &'static str,
    given: Document,
    /// Certain users' only, by name and database; all without any.
    pub users: Vec<(String, String)>,
}

pub(super) fn glance(name: &str, value: RawValue<'_>, _: &str) -> Result<()> {
    parse_options(name, value).map(drop)
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    // A pipeline knows its database, not its collection.
    let (name, refused) = match (name, context.owner, context.database) {
        ("$listSessions", Owner::Collection, "config") => ("$listSessions", None),
        ("$listSessions", ..) => {
            ("$listSessions", Some("$listSessions may only be run against config.system.sessions"))
        }
        (_, Owner::Database, _) => ("$listLocalSessions", None),
        _ => (
            "$listLocalSessions",
            Some("$listLocalSessions must be run against the database with {aggregate: 1}, not a collection"),
        ),
    };
    if let Some(message) = refused {
        return Err(Error::user(ErrorCode::InvalidNamespace, message));
    }
    let (given, users) = parse_options(name, value)?;
    out.push(Stage::ListSessions(ListSessions { name, given: given.to_document(), users }));
    Ok(())
}

/// The options, and the users that they name.
fn parse_options<'a>(name: &str, value: RawValue<'a>) -> Result<(RawDocument<'a>, Vec<(String, String)>)> {
    let spec = current_op::specification(name, value)?;
    let (mut named, mut of_all) = (Vec::new(), false);
    for (field, value) in spec.iter() {
        let path = format!("{name}.{field}");
        match (field, value) {
            ("allUsers", RawValue::Bool(all)) => of_all = all,
            ("allUsers", other) => return Err(wrong_type(&path, other, "type 'bool'")),
            ("users", RawValue::Array(users)) => {
                for (index, user) in users.iter().enumerate() {
                    let path = format!("{path}.{index}");
                    check_user(&path, user)?;
                    let text = |field| user.as_document()?.get(field)?.as_str().map(str::to_owned);
                    named.extend(text("user").zip(text("db")));
                }
            }
            ("users", other) => return Err(wrong_type(&path, other, "type 'array'")),
            _ => return Err(unknown(&path)),
        }
    }
    if of_all && !named.is_empty() {
        let message =
            format!("{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time");
        return Err(Error::user(ErrorCode::UnsupportedFormat, message));
    }
    Ok((spec, named))
}

/// A user is named by `user` and `db`.
fn check_user(path: &str, user: RawValue<'_>) -> Result<()> {
    let Some(document) = user.as_document() else { return Err(wrong_type(path, user, "type 'object'")) };
    for (field, value) in document.iter() {
        let path = format!("{path}.{field}");
        match (field, value) {
            ("user" | "db", RawValue::String(_)) => {}
            ("user" | "db", other) => return Err(wrong_type(&path, other, "type 'string'")),
            _ => return Err(unknown(&path)),
        }
    }
    match ["user", "db"].into_iter().find(|field| document.get(field).is_none()) {
        Some(field) => Err(Error::location(
            40414,
            format!("BSON field '{path}.{field}' is missing but a required field"),
        )),
        None => Ok(()),
    }
}

impl Behaviour for ListSessions {
    fn to_document(&self) -> Document {
        [(self.name, Value::Document(self.given.clone()))].into_iter().collect()
    }
}
