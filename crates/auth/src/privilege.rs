//! Privileges: actions on a resource, as roles grant them and documents hold them.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::action::{Action, ActionSet};

/// What actions are done to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Everything.
    Any,
    /// The server as a whole.
    Cluster,
    /// All databases and collections, but no system collection and nothing of `local` and `config`.
    Normal,
    /// A database and its collections that are no system's.
    Database(String),
    /// Collections of this name in any database.
    Collection(String),
    /// One collection.
    Exact(String, String),
    /// `system.buckets.` collections; an empty name stands for all.
    Buckets { db: String, collection: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    pub resource: Resource,
    pub actions: ActionSet,
}

/// Adds privileges to others, so that each resource comes once.
pub fn merge(into: &mut Vec<Privilege>, privileges: impl IntoIterator<Item = Privilege>) {
    for privilege in privileges {
        match into.iter_mut().find(|known| known.resource == privilege.resource) {
            Some(known) => known.actions.add(privilege.actions),
            None => into.push(privilege),
        }
    }
}

impl Privilege {
    pub fn parse_list<'a>(values: impl IntoIterator<Item = RawValue<'a>>) -> Result<Vec<Privilege>> {
        let mut privileges = Vec::new();
        for value in values {
            let document = value.as_document().ok_or_else(|| {
                let type_name = value.element_type().name();
                Error::user(ErrorCode::TypeMismatch, format!("a privilege is an object, not {type_name}"))
            })?;
            merge(&mut privileges, [Privilege::parse(document)?]);
        }
        Ok(privileges)
    }

    pub fn parse(document: RawDocument<'_>) -> Result<Privilege> {
        let resource = match document.get("resource") {
            Some(RawValue::Document(resource)) => Resource::parse(resource)?,
            Some(_) => return Err(fault("resource must be an object")),
            None => return Err(fault("missing resource field")),
        };
        let mut actions = ActionSet::default();
        let names = document.get("actions").and_then(RawValue::as_array);
        for name in names.into_iter().flat_map(|names| names.iter()) {
            let name = name.as_str().ok_or_else(|| fault("actions must be an array of strings"))?;
            let action = Action::find(name)
                .ok_or_else(|| Error::user(ErrorCode::BadValue, format!("Unrecognized action: {name}")))?;
            actions.insert(action);
        }
        match actions.is_empty() {
            true => Err(fault("missing actions field")),
            false => Ok(Privilege { resource, actions }),
        }
    }

    pub fn to_document(&self) -> Document {
        let actions: Vec<Value> = self.actions.iter().map(|action| Value::from(action.name())).collect();
        doc! {"resource": self.resource.to_document(), "actions": actions}
    }

    pub fn list(privileges: &[Privilege]) -> Value {
        Value::from(privileges.iter().map(|one| Value::Document(one.to_document())).collect::<Vec<_>>())
    }
}

impl Resource {
    fn parse(document: RawDocument<'_>) -> Result<Resource> {
        let text = |name: &str| match document.get(name) {
            Some(RawValue::String(text)) => Ok(Some(text.to_owned())),
            Some(_) => Err(fault("the names of a resource are strings")),
            None => Ok(None),
        };
        let is_set = |name: &str| match document.get(name) {
            Some(RawValue::Bool(value)) => Ok(value),
            Some(_) => Err(fault("a resource that is set is set to true")),
            None => Ok(false),
        };
        let (db, collection, buckets) = (text("db")?, text("collection")?, text("system_buckets")?);
        let (cluster, any) = (is_set("cluster")?, is_set("anyResource")?);
        const SHAPE: &str = "resource must have exactly db and collection set, or have only cluster set  or have only \
                             anyResource set";
        if let Some(collection) = buckets {
            return match (collection.is_empty(), cluster || any) {
                (_, true) => Err(fault(SHAPE)),
                _ => Ok(Resource::Buckets { db: db.unwrap_or_default(), collection }),
            };
        }
        match (db, collection, cluster, any) {
            (None, None, true, false) => Ok(Resource::Cluster),
            (None, None, false, true) => Ok(Resource::Any),
            (Some(db), Some(collection), false, false) => Ok(match (db.is_empty(), collection.is_empty()) {
                (true, true) => Resource::Normal,
                (true, false) => Resource::Collection(collection),
                (false, true) => Resource::Database(db),
                (false, false) => Resource::Exact(db, collection),
            }),
            (Some(_), None, ..) | (None, Some(_), ..) => {
                Err(fault("resource must set both db and collection or neither, but not exactly one."))
            }
            _ => Err(fault(SHAPE)),
        }
    }

    fn to_document(&self) -> Document {
        match self {
            Resource::Any => doc! {"anyResource": true},
            Resource::Cluster => doc! {"cluster": true},
            Resource::Normal => doc! {"db": "", "collection": ""},
            Resource::Database(db) => doc! {"db": db, "collection": ""},
            Resource::Collection(collection) => doc! {"db": "", "collection": collection},
            Resource::Exact(db, collection) => doc! {"db": db, "collection": collection},
            Resource::Buckets { db, collection } if db.is_empty() => doc! {"system_buckets": collection},
            Resource::Buckets { db, collection } => doc! {"db": db, "system_buckets": collection},
        }
    }

    /// The database that it is about, if it is about one.
    pub fn database(&self) -> Option<&str> {
        match self {
            Resource::Database(db) | Resource::Exact(db, _) => Some(db),
            Resource::Buckets { db, .. } if !db.is_empty() => Some(db),
            _ => None,
        }
    }
}

fn fault(message: &str) -> Error {
    Error::user(ErrorCode::FailedToParse, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_read_and_shown_as_mongod_does() {
        for resource in [
            doc! {"db": "app", "collection": "a"},
            doc! {"db": "app", "collection": ""},
            doc! {"db": "", "collection": "a"},
            doc! {"db": "", "collection": ""},
            doc! {"cluster": true},
            doc! {"anyResource": true},
            doc! {"system_buckets": ""},
        ] {
            let privilege = doc! {"resource": resource.clone(), "actions": ["find", "insert"]};
            let parsed = Privilege::parse(privilege.as_raw()).unwrap();
            assert_eq!(parsed.to_document().as_bytes(), privilege.as_bytes());
        }
        for (faulty, code) in [
            (doc! {"actions": ["find"]}, 9),
            (doc! {"resource": {"db": "app", "collection": "a"}}, 9),
            (doc! {"resource": {"db": "app", "collection": "a"}, "actions": []}, 9),
            (doc! {"resource": {"db": "app", "collection": "a"}, "actions": ["fly"]}, 2),
            (doc! {"resource": {"db": "app"}, "actions": ["find"]}, 9),
            (doc! {"resource": {}, "actions": ["find"]}, 9),
            (doc! {"resource": {"cluster": true, "anyResource": true}, "actions": ["find"]}, 9),
        ] {
            assert_eq!(Privilege::parse(faulty.as_raw()).unwrap_err().code().0, code);
        }
    }
}
