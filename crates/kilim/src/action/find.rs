//! `find`.

use std::time::Duration;

use kilim_bson::RawValue;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::cursor::{Batches, Cursor};
use crate::session::Session;

/// Documents of one batch where nothing else is said: enough to make a batch's cost small, few enough to stream.
const BATCH_SIZE: u32 = 1000;

/// All documents that match, as a cursor ([`Many`]), or the first ([`FindOne`]).
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Find<'a, T, M = Many> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    options: Options,
    wanted: M,
    session: Option<&'a mut Session>,
}

/// The first document that matches.
pub type FindOne<'a, T> = Find<'a, T, One>;

#[derive(Debug)]
pub struct Many {
    batch_size: u32,
}

#[derive(Debug)]
pub struct One;

#[derive(Debug, Default)]
struct Options {
    sort: Option<bson::Document>,
    projection: Option<bson::Document>,
    hint: Option<bson::Document>,
    skip: u64,
    limit: u64,
    max_time: Option<Duration>,
}

impl Options {
    fn command<T>(&self, collection: &Collection<T>, filter: &bson::Document) -> Result<Command> {
        let mut command = Command::new("find", collection.name());
        command.set_document("filter", filter)?;
        command.set_optional("sort", self.sort.as_ref())?;
        command.set_optional("projection", self.projection.as_ref())?;
        command.set_optional("hint", self.hint.as_ref())?;
        if self.skip > 0 {
            command.set("skip", i64::try_from(self.skip).unwrap_or(i64::MAX));
        }
        if self.limit > 0 {
            command.set("limit", i64::try_from(self.limit).unwrap_or(i64::MAX));
        }
        command.set_time_limit(self.max_time);
        Ok(command)
    }
}

impl<'a, T, M> Find<'a, T, M> {
    pub fn sort(mut self, sort: bson::Document) -> Self {
        self.options.sort = Some(sort);
        self
    }

    pub fn projection(mut self, projection: bson::Document) -> Self {
        self.options.projection = Some(projection);
        self
    }

    /// The key of the index to use.
    pub fn hint(mut self, key: bson::Document) -> Self {
        self.options.hint = Some(key);
        self
    }

    pub fn skip(mut self, documents: u64) -> Self {
        self.options.skip = documents;
        self
    }

    pub fn max_time(mut self, time: Duration) -> Self {
        self.options.max_time = Some(time);
        self
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }
}

impl<'a, T> Find<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document) -> Find<'a, T> {
        let wanted = Many { batch_size: BATCH_SIZE };
        Find { collection, filter, options: Options::default(), wanted, session: None }
    }

    /// At most so many documents; 0 for all.
    pub fn limit(mut self, documents: u64) -> Self {
        self.options.limit = documents;
        self
    }

    /// How many documents are in memory at a time.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.wanted.batch_size = documents.max(1);
        self
    }

    pub fn run(self) -> Result<Cursor<T>> {
        let batch_size = self.wanted.batch_size;
        let mut command = self.options.command(self.collection, &self.filter)?;
        command.set("batchSize", i64::from(batch_size));
        let signature = self.session.and_then(|session| {
            session.sign(&mut command);
            session.signature()
        });
        let database = &self.collection.database;
        let reply = database.run(command)?;
        Ok(Cursor::new(Batches::of(database.clone(), reply, Some(batch_size), signature)))
    }
}

impl<'a, T> FindOne<'a, T> {
    pub(crate) fn first(collection: &'a Collection<T>, filter: bson::Document) -> FindOne<'a, T> {
        let options = Options { limit: 1, ..Options::default() };
        Find { collection, filter, options, wanted: One, session: None }
    }
}

impl<T: DeserializeOwned> FindOne<'_, T> {
    pub fn run(self) -> Result<Option<T>> {
        let mut command = self.options.command(self.collection, &self.filter)?;
        command.set("singleBatch", true);
        if let Some(session) = self.session {
            session.sign(&mut command);
        }
        let reply = self.collection.database.run(command)?;
        let cursor = reply.get("cursor").and_then(RawValue::as_document);
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
        let found = batch.and_then(|batch| batch.iter().next()).and_then(RawValue::as_document);
        Ok(found.map(|found| bson::deserialize_from_slice(found.as_bytes())).transpose()?)
    }
}
