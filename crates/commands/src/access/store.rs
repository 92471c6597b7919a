//! Users and roles where they are kept: `admin.system.users` and `admin.system.roles`, written through the same door as
//! every document, so that dumps and backups carry them.

use std::sync::Arc;

use kilim_auth::{Gathered, RoleDocument, RoleName, UserDocument, UserName, builtin, gather};
use kilim_bson::{Document, RawValue, doc};
use kilim_engine::index::IndexSpec;
use kilim_engine::operation::Operation;
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, DeleteRequest, UpdateRequest};
use kilim_engine::{Durability, Engine, Namespace, read};
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;
use kilim_query::update::Update;

use crate::command::update::now_ms;
use crate::dispatch::Call;

pub(crate) const DATABASE: &str = "admin";
const USERS: &str = "system.users";
const ROLES: &str = "system.roles";

/// Which of the two collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Users,
    Roles,
}

impl Kind {
    fn namespace(self) -> Namespace {
        let collection = match self {
            Kind::Users => USERS,
            Kind::Roles => ROLES,
        };
        Namespace { database: DATABASE.to_owned(), collection: collection.to_owned() }
    }

    /// The index that mongod has on it, by the same name.
    fn index(self) -> IndexSpec {
        let index = match self {
            Kind::Users => IndexSpec::over("user_1_db_1", doc! {"user": 1, "db": 1}),
            Kind::Roles => IndexSpec::over("role_1_db_1", doc! {"role": 1, "db": 1}),
        };
        IndexSpec { unique: true, ..index }
    }
}

/// Whether there is a user or a role.
pub(crate) fn is_any(engine: &Engine) -> Result<bool> {
    let snapshot = engine.store.snapshot();
    for kind in [Kind::Users, Kind::Roles] {
        if let Some(collection) = engine.collection(&kind.namespace())
            && collection.home().counts(&snapshot)?.count > 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What no client can know of the server, and stays the same over its lives: unknown users get their salts from it.
pub(crate) fn server_secret(engine: &Engine) -> [u8; 16] {
    engine.collection(&Kind::Users.namespace()).map_or([0; 16], |collection| collection.uuid)
}

/// The documents that match, in the order of `_id`s.
pub(crate) fn find(
    engine: &Engine,
    operation: &Arc<Operation>,
    kind: Kind,
    filter: Document,
) -> Result<Vec<Document>> {
    let mut found = read(engine, operation, &kind.namespace(), filter)?;
    let id = |document: &Document| document.get("_id").and_then(RawValue::as_str).map(str::to_owned);
    found.sort_by_key(id);
    Ok(found)
}

/// The documents of a collection that match.
pub(crate) fn read(
    engine: &Engine,
    operation: &Arc<Operation>,
    namespace: &Namespace,
    filter: Document,
) -> Result<Vec<Document>> {
    let mut unit = Unit::new(engine, operation.clone(), Durability::Relaxed);
    let request = ReadRequest::new(Arc::new(Filter::parse(filter.as_raw())?));
    let mut executor = read::plan(&mut unit, namespace, request)?.execute();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut found = Vec::new();
    while let Some(row) = executor.next_document(&mut context)? {
        found.push(row.document().to_document());
    }
    Ok(found)
}

pub(crate) fn user(
    engine: &Engine,
    operation: &Arc<Operation>,
    name: &UserName,
) -> Result<Option<UserDocument>> {
    let found = find(engine, operation, Kind::Users, doc! {"_id": name.id()})?;
    found.first().map(|document| UserDocument::from_document(document.as_raw())).transpose()
}

pub(crate) fn role(
    engine: &Engine,
    operation: &Arc<Operation>,
    name: &RoleName,
) -> Result<Option<RoleDocument>> {
    let found = find(engine, operation, Kind::Roles, doc! {"_id": name.id()})?;
    found.first().map(|document| RoleDocument::from_document(document.as_raw())).transpose()
}

/// What roles amount to.
pub(crate) fn gathered(engine: &Engine, operation: &Arc<Operation>, roles: &[RoleName]) -> Result<Gathered> {
    gather(roles, |name| role(engine, operation, name))
}

/// Whether there is such a role, built-in or made.
pub(crate) fn is_role(engine: &Engine, operation: &Arc<Operation>, name: &RoleName) -> Result<bool> {
    Ok(builtin(name).is_some() || role(engine, operation, name)?.is_some())
}

/// Adds a document. The first one makes the collection, with the index that mongod has on it.
pub(crate) fn insert(call: &mut Call<'_, '_>, kind: Kind, document: &Document) -> Result<()> {
    let namespace = kind.namespace();
    if call.unit.collection(&namespace)?.is_none() {
        call.unit.create(&namespace, Document::new())?;
        call.unit.settle()?;
    }
    let has_index = call.unit.collection(&namespace)?.is_some_and(|collection| collection.indexes.len() > 1);
    if !has_index {
        call.engine.build_indexes(&call.operation, &namespace, vec![kind.index()])?;
    }
    let outcome = write::insert(&mut call.unit, &namespace, &[document.as_raw()], true, |_| 0)?;
    match outcome.errors.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Puts a document in the place of the one with its `_id`; whether there was one.
pub(crate) fn replace(call: &mut Call<'_, '_>, kind: Kind, document: &Document) -> Result<bool> {
    let id = document.get("_id").ok_or_else(|| Error::bug("a user or role without an _id"))?;
    let mut filter = Document::new();
    filter.push("_id", id);
    let update = Update::parse(RawValue::Document(document.as_raw()), None, false)?;
    let request = UpdateRequest {
        filter: Arc::new(Filter::parse(filter.as_raw())?),
        update: &update,
        multi: false,
        upsert: false,
        hint: None,
        collation: None,
        now_ms: now_ms(),
        statement: 0,
        projection: None,
    };
    Ok(write::update(&mut call.unit, &kind.namespace(), &request)?.matched > 0)
}

/// Removes what matches; how many there were.
pub(crate) fn remove(call: &mut Call<'_, '_>, kind: Kind, filter: Document) -> Result<u64> {
    let request = DeleteRequest {
        filter: Arc::new(Filter::parse(filter.as_raw())?),
        one: false,
        hint: None,
        collation: None,
        statement: 0,
    };
    write::delete(&mut call.unit, &kind.namespace(), &request)
}
