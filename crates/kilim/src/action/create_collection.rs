//! `create`.

use std::time::Duration;

use super::setters::{Options, setters};
use crate::Result;
use crate::command::Command;
use crate::database::Database;
use crate::options::{ClusteredIndex, ValidationAction, ValidationLevel};
use crate::session::{Session, sign};

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct CreateCollection<'a> {
    database: &'a Database,
    name: String,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a> CreateCollection<'a> {
    pub(crate) fn new(database: &'a Database, name: String) -> CreateCollection<'a> {
        CreateCollection { database, name, options: Options::default(), session: None }
    }

    setters!(collation comment session);

    /// Whether the oldest documents go when it is full; goes with `size`.
    pub fn capped(mut self, capped: bool) -> Self {
        self.options.set("capped", capped);
        self
    }

    /// When a capped collection is full, in bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.options.set_count("size", bytes);
        self
    }

    /// When a capped collection is full, in documents.
    pub fn max(mut self, documents: u64) -> Self {
        self.options.set_count("max", documents);
        self
    }

    /// What documents must match: a query, or `{$jsonSchema: …}`.
    pub fn validator(mut self, validator: bson::Document) -> Self {
        self.options.set("validator", validator);
        self
    }

    pub fn validation_level(mut self, level: ValidationLevel) -> Self {
        self.options.set("validationLevel", level);
        self
    }

    pub fn validation_action(mut self, action: ValidationAction) -> Self {
        self.options.set("validationAction", action);
        self
    }

    /// A view of another collection; goes with `pipeline`.
    pub fn view_on(mut self, collection: impl Into<String>) -> Self {
        self.options.set("viewOn", collection.into());
        self
    }

    /// What a view shows.
    pub fn pipeline(mut self, pipeline: impl IntoIterator<Item = bson::Document>) -> Self {
        self.options.set_list("pipeline", pipeline);
        self
    }

    /// Keeps documents in the order of `_id`.
    pub fn clustered_index(mut self, index: ClusteredIndex) -> Self {
        self.options.set("clusteredIndex", index);
        self
    }

    /// Deletes documents of a clustered collection so long after the date in their `_id`.
    pub fn expire_after_seconds(mut self, time: Duration) -> Self {
        self.options.set_count("expireAfterSeconds", time.as_secs());
        self
    }

    pub fn run(self) -> Result<()> {
        let mut command = Command::new("create", self.name.as_str());
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        self.database.run(command).map(drop)
    }
}
