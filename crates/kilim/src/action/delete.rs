//! `delete`.

use super::Scope;
use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};
use crate::results::DeleteResult;
use crate::session::Session;

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Delete<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    scope: Scope,
    hint: Option<bson::Document>,
    session: Option<&'a mut Session>,
}

impl<'a, T> Delete<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document, scope: Scope) -> Delete<'a, T> {
        Delete { collection, filter, scope, hint: None, session: None }
    }

    /// The key of the index to use.
    pub fn hint(mut self, key: bson::Document) -> Self {
        self.hint = Some(key);
        self
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }

    pub fn run(self) -> Result<DeleteResult> {
        let mut statement = Command::new("q", encode(&self.filter)?.as_raw());
        statement.set("limit", i32::from(self.scope == Scope::One));
        statement.set_optional("hint", self.hint.as_ref())?;
        let mut command = Command::new("delete", self.collection.name());
        command.set_statements("deletes", statement);
        if let Some(session) = self.session {
            session.sign(&mut command);
        }
        DeleteResult::of(self.collection.database.run(command)?.as_raw())
    }
}
