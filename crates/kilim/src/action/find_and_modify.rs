//! `findAndModify`.

use kilim_bson::{Document, RawValue};
use serde::de::DeserializeOwned;

use super::UpdateModifications;
use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::session::Session;

#[derive(Debug)]
pub(crate) enum Modify {
    Update(UpdateModifications),
    Replace(Result<Document>),
    Delete,
}

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct FindAndModify<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    modify: Modify,
    sort: Option<bson::Document>,
    projection: Option<bson::Document>,
    upsert: bool,
    return_new: bool,
    session: Option<&'a mut Session>,
}

impl<'a, T> FindAndModify<'a, T> {
    pub(crate) fn new(
        collection: &'a Collection<T>,
        filter: bson::Document,
        modify: Modify,
    ) -> FindAndModify<'a, T> {
        let (sort, projection, upsert, return_new, session) = (None, None, false, false, None);
        FindAndModify { collection, filter, modify, sort, projection, upsert, return_new, session }
    }

    /// Which document is the first.
    pub fn sort(mut self, sort: bson::Document) -> Self {
        self.sort = Some(sort);
        self
    }

    pub fn projection(mut self, projection: bson::Document) -> Self {
        self.projection = Some(projection);
        self
    }

    /// Inserts what the filter and the update say if nothing matches.
    pub fn upsert(mut self, upsert: bool) -> Self {
        self.upsert = upsert;
        self
    }

    /// Returns the document as it is afterwards, not as it was.
    pub fn return_new(mut self, new: bool) -> Self {
        self.return_new = new;
        self
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }
}

impl<T: DeserializeOwned> FindAndModify<'_, T> {
    pub fn run(self) -> Result<Option<T>> {
        let mut command = Command::new("findAndModify", self.collection.name());
        command.set_document("query", &self.filter)?;
        match self.modify {
            Modify::Update(update) => update.put("update", &mut command)?,
            Modify::Replace(replacement) => command.set("update", replacement?.as_raw()),
            Modify::Delete => command.set("remove", true),
        }
        command.set_optional("sort", self.sort.as_ref())?;
        command.set_optional("fields", self.projection.as_ref())?;
        if self.upsert {
            command.set("upsert", true);
        }
        if self.return_new {
            command.set("new", true);
        }
        if let Some(session) = self.session {
            session.sign(&mut command);
        }
        let reply = self.collection.database.run(command)?;
        match reply.get("value").and_then(RawValue::as_document) {
            Some(document) => Ok(Some(bson::deserialize_from_slice(document.as_bytes())?)),
            None => Ok(None),
        }
    }
}
