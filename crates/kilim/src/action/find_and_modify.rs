//! `findAndModify`.

use kilim_bson::{Document, RawValue};
use serde::de::DeserializeOwned;

use super::UpdateModifications;
use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::options::ReturnDocument;
use crate::session::{Session, sign};

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
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a, T> FindAndModify<'a, T> {
    pub(crate) fn new(
        collection: &'a Collection<T>,
        filter: bson::Document,
        modify: Modify,
    ) -> FindAndModify<'a, T> {
        FindAndModify { collection, filter, modify, options: Options::default(), session: None }
    }

    setters!(
        array_filters bypass_document_validation collation comment hint let_vars max_time session sort upsert
    );

    /// Which fields are returned, and what is computed from them.
    pub fn projection(mut self, projection: bson::Document) -> Self {
        self.options.set("fields", projection);
        self
    }

    /// Returns the document as it was, or as it is afterwards.
    pub fn return_document(mut self, which: ReturnDocument) -> Self {
        self.options.set("new", which == ReturnDocument::After);
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
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        let reply = self.collection.database.run(command)?;
        match reply.get("value").and_then(RawValue::as_document) {
            Some(document) => Ok(Some(bson::deserialize_from_slice(document.as_bytes())?)),
            None => Ok(None),
        }
    }
}
