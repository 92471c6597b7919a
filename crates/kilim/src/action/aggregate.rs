//! `aggregate`.

use std::time::Duration;

use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::cursor::{Batches, Cursor};
use crate::session::Session;

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Aggregate<'a, T> {
    collection: &'a Collection<T>,
    pipeline: Vec<bson::Document>,
    allow_disk_use: Option<bool>,
    max_time: Option<Duration>,
    session: Option<&'a mut Session>,
}

impl<'a, T> Aggregate<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, pipeline: Vec<bson::Document>) -> Aggregate<'a, T> {
        Aggregate { collection, pipeline, allow_disk_use: None, max_time: None, session: None }
    }

    /// Whether stages that need more memory than they may have go to disk.
    pub fn allow_disk_use(mut self, allow: bool) -> Self {
        self.allow_disk_use = Some(allow);
        self
    }

    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = Some(time);
        self
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }

    /// What comes out has a type of its own.
    pub fn run<R>(self) -> Result<Cursor<R>> {
        let mut command = Command::new("aggregate", self.collection.name());
        command.set_list("pipeline", &self.pipeline)?;
        command.set("cursor", kilim_bson::Document::new().as_raw());
        if let Some(allow) = self.allow_disk_use {
            command.set("allowDiskUse", allow);
        }
        command.set_time_limit(self.max_time);
        let signature = self.session.and_then(|session| {
            session.sign(&mut command);
            session.signature()
        });
        let database = &self.collection.database;
        let reply = database.run(command)?;
        Ok(Cursor::new(Batches::of(database.clone(), reply, None, signature)))
    }
}
