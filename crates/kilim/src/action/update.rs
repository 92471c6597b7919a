//! `update`.

use kilim_bson::Document;

use super::Scope;
use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};
use crate::results::UpdateResult;
use crate::session::Session;

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

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Update<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    change: Change,
    scope: Scope,
    upsert: bool,
    array_filters: Vec<bson::Document>,
    hint: Option<bson::Document>,
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
        let (upsert, array_filters, hint, session) = (false, Vec::new(), None, None);
        Update { collection, filter, change, scope, upsert, array_filters, hint, session }
    }

    /// Inserts what the filter and the update say if nothing matches.
    pub fn upsert(mut self, upsert: bool) -> Self {
        self.upsert = upsert;
        self
    }

    /// Which elements `$[name]` means.
    pub fn array_filters(mut self, filters: impl IntoIterator<Item = bson::Document>) -> Self {
        self.array_filters = filters.into_iter().collect();
        self
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

    pub fn run(self) -> Result<UpdateResult> {
        let mut statement = Command::new("q", encode(&self.filter)?.as_raw());
        match self.change {
            Change::Modify(update) => update.put("u", &mut statement)?,
            Change::Replace(replacement) => statement.set("u", replacement?.as_raw()),
        }
        statement.set("multi", self.scope == Scope::Many);
        statement.set("upsert", self.upsert);
        if !self.array_filters.is_empty() {
            statement.set_list("arrayFilters", &self.array_filters)?;
        }
        statement.set_optional("hint", self.hint.as_ref())?;
        let mut command = Command::new("update", self.collection.name());
        command.set_statements("updates", statement);
        if let Some(session) = self.session {
            session.sign(&mut command);
        }
        UpdateResult::of(self.collection.database.run(command)?.as_raw())
    }
}
