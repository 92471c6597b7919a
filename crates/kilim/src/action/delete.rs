//! `delete`.

use super::Scope;
use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};
use crate::results::DeleteResult;
use crate::session::{Session, sign};

/// Options of a statement; the others are the command's.
const OF_STATEMENT: [&str; 2] = ["collation", "hint"];

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Delete<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    scope: Scope,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a, T> Delete<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document, scope: Scope) -> Delete<'a, T> {
        Delete { collection, filter, scope, options: Options::default(), session: None }
    }

    setters!(collation comment hint let_vars session);

    pub fn run(mut self) -> Result<DeleteResult> {
        let mut statement = Command::new("q", encode(&self.filter)?.as_raw());
        statement.set("limit", i32::from(self.scope == Scope::One));
        self.options.put_some(&OF_STATEMENT, &mut statement)?;
        let mut command = Command::new("delete", self.collection.name());
        command.set_statements("deletes", statement);
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        DeleteResult::of(self.collection.database.run(command)?.as_raw())
    }
}
