//! `_mergeAuthzCollections`: takes over users and roles that a restore has put into collections of its own.
//!
//! By it mongorestore restores `admin.system.users` and `admin.system.roles`, which it may not write itself. All documents are
//! read and checked before the first is written.

use std::collections::HashSet;

use kilim_auth::{Action, RoleDocument, RoleName, UserDocument, UserName};
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::Namespace;
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::required;
use crate::access::store::{self, Kind};
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "_mergeAuthzCollections";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut users, mut roles, mut db, mut drop) = (None, None, None, false);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "tempUsersCollection" => users = Some(argument.string()?).filter(|name| !name.is_empty()),
            "tempRolesCollection" => roles = Some(argument.string()?).filter(|name| !name.is_empty()),
            "db" => db = Some(argument.string()?),
            "drop" => drop = argument.strict_boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let db = required(db, NAME, "db")?;
    let mut merges = Vec::new();
    for (kind, from) in [(Kind::Users, users), (Kind::Roles, roles)] {
        if let Some(from) = from {
            merges.push((kind, offered(call, kind, from, db)?));
        }
    }
    if merges.is_empty() {
        return Err(Error::user(
            ErrorCode::BadValue,
            "Must provide at least one of \"tempUsersCollection\" and \"tempRolescollection\"",
        ));
    }
    let access = call.client.access.clone();
    let _change = access.change.lock();
    for (kind, documents) in merges {
        merge(call, kind, &documents, db, drop)?;
    }
    call.unit.settle()?;
    Ok(Document::new())
}

/// The documents of a collection that a restore has filled, of one database or of all, each under the `_id` that it must have.
fn offered(call: &Call<'_, '_>, kind: Kind, from: &str, db: &str) -> Result<Vec<Document>> {
    let (database, collection) = from.split_once('.').unwrap_or((from, ""));
    let namespace = Namespace::parse(database, collection)?;
    let found = store::read(call.engine, &call.operation, &namespace, of_database(db))?;
    found.iter().map(|document| checked(kind, document.as_raw())).collect()
}

fn of_database(db: &str) -> Document {
    if db.is_empty() {
        doc! {}
    } else {
        doc! {"db": db}
    }
}

fn checked(kind: Kind, document: RawDocument<'_>) -> Result<Document> {
    let text = |name: &str| {
        let missing = || Error::user(ErrorCode::NoSuchKey, format!("Missing expected field \"{name}\""));
        document.get(name).and_then(RawValue::as_str).ok_or_else(missing)
    };
    let id = match kind {
        Kind::Users => {
            let name = UserName::new(text("user")?, text("db")?);
            if document.get("credentials").and_then(RawValue::as_document).is_none() {
                return Err(Error::location(10065, "invalid parameter: expected an object (credentials)"));
            }
            UserDocument::from_document(document)?;
            name.id()
        }
        Kind::Roles => {
            let name = RoleName::new(text("role")?, text("db")?);
            let Some(privileges) = document.get("privileges").and_then(RawValue::as_array) else {
                return Err(Error::location(10065, "invalid parameter: expected an object (privileges)"));
            };
            let privileges = privileges.iter().filter_map(RawValue::as_document);
            let actions = privileges.filter_map(|privilege| privilege.get("actions")?.as_array());
            let mut names = actions.flat_map(|actions| actions.iter()).filter_map(RawValue::as_str);
            // Other commands have another code for it.
            if let Some(unknown) = names.find(|name| Action::find(name).is_none()) {
                let message = format!("Unrecognized action privilege strings: {unknown}");
                return Err(Error::user(ErrorCode::FailedToParse, message));
            }
            RoleDocument::from_document(document)?;
            name.id()
        }
    };
    let mut stored = doc! {"_id": id};
    for (name, value) in document.iter().filter(|(name, _)| *name != "_id") {
        stored.push(name, value);
    }
    Ok(stored)
}

/// Adds those that are not there. With `drop` the others become what they are in the dump, and those that are not in it go.
fn merge(call: &mut Call<'_, '_>, kind: Kind, documents: &[Document], db: &str, drop: bool) -> Result<()> {
    let ids = |documents: &[Document]| -> HashSet<String> {
        let id = |document: &Document| document.get("_id").and_then(RawValue::as_str).map(str::to_owned);
        documents.iter().filter_map(id).collect()
    };
    let there = ids(&store::find(call.engine, &call.operation, kind, of_database(db))?);
    for document in documents {
        let id = document.get("_id").and_then(RawValue::as_str).unwrap_or_default();
        if !there.contains(id) {
            store::insert(call, kind, document)?;
        } else if drop {
            store::replace(call, kind, document)?;
        }
    }
    if drop {
        for id in there.difference(&ids(documents)) {
            store::remove(call, kind, doc! {"_id": id})?;
        }
    }
    Ok(())
}
