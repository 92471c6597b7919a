//! Users and roles as `admin.system.users` and `admin.system.roles` hold them, in mongod's form.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::credential::{Credential, Mechanism};
use crate::name::{self, RoleName, UserName};
use crate::privilege::Privilege;
use crate::restriction::Restriction;

/// By which a user logs in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    pub scram_sha_1: Option<Credential>,
    pub scram_sha_256: Option<Credential>,
    /// A user of `$external`: somebody else says who he is.
    pub external: bool,
}

impl Credentials {
    pub fn of(&self, mechanism: Mechanism) -> Option<&Credential> {
        match mechanism {
            Mechanism::ScramSha1 => self.scram_sha_1.as_ref(),
            Mechanism::ScramSha256 => self.scram_sha_256.as_ref(),
        }
    }

    pub fn set(&mut self, mechanism: Mechanism, credential: Option<Credential>) {
        match mechanism {
            Mechanism::ScramSha1 => self.scram_sha_1 = credential,
            Mechanism::ScramSha256 => self.scram_sha_256 = credential,
        }
    }

    /// The names of those that there are.
    pub fn mechanisms(&self) -> Vec<&'static str> {
        let scram = Mechanism::ALL.into_iter().filter(|mechanism| self.of(*mechanism).is_some());
        let names = scram.map(Mechanism::name);
        names.chain(self.external.then_some("external")).collect()
    }

    fn to_document(&self) -> Document {
        let mut document = Document::new();
        for mechanism in Mechanism::ALL {
            if let Some(credential) = self.of(mechanism) {
                document.push(mechanism.name(), credential.to_document());
            }
        }
        if self.external {
            document.push("external", true);
        }
        document
    }

    fn from_document(document: RawDocument<'_>) -> Result<Credentials> {
        let mut credentials = Credentials::default();
        for mechanism in Mechanism::ALL {
            if let Some(RawValue::Document(stored)) = document.get(mechanism.name()) {
                credentials.set(mechanism, Some(Credential::from_document(stored)?));
            }
        }
        credentials.external = matches!(document.get("external"), Some(RawValue::Bool(true)));
        Ok(credentials)
    }
}

/// A document of `admin.system.users`.
#[derive(Debug, Clone, PartialEq)]
pub struct UserDocument {
    pub name: UserName,
    /// Tells a user from a later one of the same name.
    pub id: [u8; 16],
    pub credentials: Credentials,
    pub custom_data: Option<Document>,
    pub roles: Vec<RoleName>,
    pub restrictions: Vec<Restriction>,
}

impl UserDocument {
    pub fn to_document(&self) -> Document {
        let mut document = doc! {
            "_id": self.name.id(),
            "userId": Value::Binary { subtype: 4, bytes: self.id.to_vec() },
            "user": &self.name.user,
            "db": &self.name.db,
            "credentials": self.credentials.to_document(),
        };
        if !self.restrictions.is_empty() {
            document.push("authenticationRestrictions", Restriction::list(&self.restrictions));
        }
        if let Some(data) = &self.custom_data {
            document.push("customData", data.clone());
        }
        document.push("roles", name::list(&self.roles));
        document
    }

    pub fn from_document(document: RawDocument<'_>) -> Result<UserDocument> {
        let name = UserName::new(text(document, "user")?, text(document, "db")?);
        let id = match document.get("userId") {
            Some(RawValue::Binary { subtype: 4, bytes }) => bytes.try_into().unwrap_or_default(),
            // Users of older servers have none.
            _ => [0; 16],
        };
        let credentials = match document.get("credentials") {
            Some(RawValue::Document(stored)) => Credentials::from_document(stored)?,
            _ => Credentials::default(),
        };
        let custom_data = document.get("customData").and_then(RawValue::as_document);
        Ok(UserDocument {
            roles: roles(document, &name.db)?,
            name,
            id,
            credentials,
            custom_data: custom_data.map(RawDocument::to_document),
            restrictions: restrictions(document)?,
        })
    }
}

/// A document of `admin.system.roles`.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleDocument {
    pub name: RoleName,
    pub privileges: Vec<Privilege>,
    pub roles: Vec<RoleName>,
    pub restrictions: Vec<Restriction>,
}

impl RoleDocument {
    pub fn to_document(&self) -> Document {
        let mut document = doc! {
            "_id": self.name.id(),
            "role": &self.name.role,
            "db": &self.name.db,
            "privileges": Privilege::list(&self.privileges),
            "roles": name::list(&self.roles),
        };
        if !self.restrictions.is_empty() {
            document.push("authenticationRestrictions", Restriction::list(&self.restrictions));
        }
        document
    }

    pub fn from_document(document: RawDocument<'_>) -> Result<RoleDocument> {
        let name = RoleName::new(text(document, "role")?, text(document, "db")?);
        let privileges = document.get("privileges").and_then(RawValue::as_array);
        Ok(RoleDocument {
            privileges: Privilege::parse_list(privileges.into_iter().flat_map(|list| list.iter()))?,
            roles: roles(document, &name.db)?,
            name,
            restrictions: restrictions(document)?,
        })
    }
}

fn text<'a>(document: RawDocument<'a>, name: &str) -> Result<&'a str> {
    document.get(name).and_then(RawValue::as_str).ok_or_else(|| {
        Error::user(ErrorCode::UnsupportedFormat, format!("a user or role needs a text '{name}'"))
    })
}

fn roles(document: RawDocument<'_>, db: &str) -> Result<Vec<RoleName>> {
    let list = document.get("roles").and_then(RawValue::as_array);
    RoleName::parse_list(list.into_iter().flat_map(|list| list.iter()), db)
}

fn restrictions(document: RawDocument<'_>) -> Result<Vec<Restriction>> {
    let list = document.get("authenticationRestrictions").and_then(RawValue::as_array);
    Restriction::parse_list(list.into_iter().flat_map(|list| list.iter()), "user")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_stored_and_read_again() {
        let secret = Mechanism::ScramSha256.secret("ann", "pw").unwrap();
        let credential = Credential::new(Mechanism::ScramSha256, &secret, vec![1; 28], 4096);
        let mut credentials = Credentials::default();
        credentials.set(Mechanism::ScramSha256, Some(credential));
        let user = UserDocument {
            name: UserName::new("ann", "shop"),
            id: [3; 16],
            credentials,
            custom_data: Some(doc! {"a": 1}),
            roles: vec![RoleName::new("read", "shop")],
            restrictions: Vec::new(),
        };
        let document = user.to_document();
        let names: Vec<&str> = document.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["_id", "userId", "user", "db", "credentials", "customData", "roles"]);
        assert!(UserDocument::from_document(document.as_raw()).unwrap() == user);
        assert_eq!(user.credentials.mechanisms(), ["SCRAM-SHA-256"]);
    }
}
