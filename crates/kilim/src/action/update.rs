//! `update`.

use kilim_bson::Document;

use super::Scope;
use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};
use crate::results::UpdateResult;
use crate::session::{Session, sign};

/// What an update does: operators, or a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateModifications {
    Document(bson::Document),
    Pipeline(Vec<bson::Document>),
}

impl From<bson::Document> for UpdateModifications {
    fn from(operators: bson::Document) -> UpdateModifications {
        UpdateModifications::Document(operators)
    }
}

impl From<Vec<bson::Document>> for UpdateModifications {
    fn from(pipeline: Vec<bson::Document>) -> UpdateModifications {
        UpdateModifications::Pipeline(pipeline)
    }
}

impl UpdateModifications {
    /// As a field of a command or a statement.
    pub(crate) fn put(&self, name: &str, into: &mut Command) -> Result<()> {
        match self {
            UpdateModifications::Document(operators) => into.set_document(name, operators),
            UpdateModifications::Pipeline(stages) => into.set_list(name, stages),
        }
    }
}

/// Options of a statement; the others are the command's.
const OF_STATEMENT: [&str; 4] = ["arrayFilters", "collation", "hint", "upsert"];

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Update<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    change: Change,
    scope: Scope,
    options: Options,
    session: Option<&'a mut Session>,
}

#[derive(Debug)]
enum Change {
    Modify(UpdateModifications),
    Replace(Result<Document>),
}

impl<'a, T> Update<'a, T> {
    pub(crate) fn new(
        collection: &'a Collection<T>,
        filter: bson::Document,
        update: UpdateModifications,
        scope: Scope,
    ) -> Update<'a, T> {
        Update::of(collection, filter, Change::Modify(update), scope)
    }

    pub(crate) fn replacement(
        collection: &'a Collection<T>,
        filter: bson::Document,
        replacement: Result<Document>,
    ) -> Update<'a, T> {
        Update::of(collection, filter, Change::Replace(replacement), Scope::One)
    }

    fn of(
        collection: &'a Collection<T>,
        filter: bson::Document,
        change: Change,
        scope: Scope,
    ) -> Update<'a, T> {
        Update { collection, filter, change, scope, options: Options::default(), session: None }
    }

    setters!(
        array_filters bypass_document_validation collation comment hint let_vars session upsert
    );

    pub fn run(mut self) -> Result<UpdateResult> {
        let mut statement = Command::new("q", encode(&self.filter)?.as_raw());
        match self.change {
            Change::Modify(update) => update.put("u", &mut statement)?,
            Change::Replace(replacement) => statement.set("u", replacement?.as_raw()),
        }
        statement.set("multi", self.scope == Scope::Many);
        self.options.put_some(&OF_STATEMENT, &mut statement)?;
        let mut command = Command::new("update", self.collection.name());
        command.set_statements("updates", statement);
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        UpdateResult::of(self.collection.database.run(command)?.as_raw())
    }
}
