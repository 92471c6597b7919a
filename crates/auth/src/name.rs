//! Names of users and roles: a name, and the database that it belongs to.

use std::fmt;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName {
    pub user: String,
    pub db: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleName {
    pub role: String,
    pub db: String,
}

impl UserName {
    pub fn new(user: &str, db: &str) -> UserName {
        UserName { user: user.to_owned(), db: db.to_owned() }
    }

    /// `_id` of its document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }

    /// `name`, which means one of `db`, or `{user, db}`.
    pub fn parse(value: RawValue<'_>, db: &str) -> Result<UserName> {
        let (user, db) = parse(value, db, "UserName", "user")?;
        Ok(UserName { user, db })
    }

    pub fn to_document(&self) -> Document {
        doc! {"user": &self.user, "db": &self.db}
    }
}

impl RoleName {
    pub fn new(role: &str, db: &str) -> RoleName {
        RoleName { role: role.to_owned(), db: db.to_owned() }
    }

    /// `_id` of its document.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }

    /// `name`, which means one of `db`, or `{role, db}`.
    pub fn parse(value: RawValue<'_>, db: &str) -> Result<RoleName> {
        let (role, db) = parse(value, db, "RoleName", "role")?;
        Ok(RoleName { role, db })
    }

    /// The roles of a list. mongod words the fault of an element in its own way there.
    pub fn parse_list<'a>(values: impl IntoIterator<Item = RawValue<'a>>, db: &str) -> Result<Vec<RoleName>> {
        let mut roles: Vec<RoleName> = Vec::new();
        for value in values {
            if !matches!(value, RawValue::String(_) | RawValue::Document(_)) {
                return Err(bad("Role name must be either a document or string".to_owned()));
            }
            let role = RoleName::parse(value, db)?;
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        Ok(roles)
    }

    pub fn to_document(&self) -> Document {
        doc! {"role": &self.role, "db": &self.db}
    }
}

/// A list of them, as replies and stored documents have it.
pub(crate) fn list(roles: &[RoleName]) -> Value {
    Value::from(roles.iter().map(|role| Value::Document(role.to_document())).collect::<Vec<_>>())
}

fn parse(value: RawValue<'_>, db: &str, what: &str, field: &str) -> Result<(String, String)> {
    match value {
        RawValue::String(name) => Ok((name.to_owned(), db.to_owned())),
        RawValue::Document(document) => {
            for (name, _) in document.iter() {
                if name != field && name != "db" {
                    return Err(bad(format!("{what} contains an unknown field named: '{name}")));
                }
            }
            Ok((text(document, what, field)?.to_owned(), text(document, what, "db")?.to_owned()))
        }
        _ => Err(bad(format!("{what} must be either a string or an object"))),
    }
}

fn text<'a>(document: RawDocument<'a>, what: &str, name: &str) -> Result<&'a str> {
    match document.get(name) {
        Some(RawValue::String(text)) => Ok(text),
        Some(_) => Err(bad(format!("{what} must contain a string field named: {name}"))),
        None => Err(bad(format!("{what} must contain a field named: {name}"))),
    }
}

fn bad(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}
