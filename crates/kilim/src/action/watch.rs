//! `watch`: changes as they happen.

use std::time::Duration;

use bson::{Bson, Timestamp};

use super::setters::{Options, setters};
use crate::Result;
use crate::command::Command;
use crate::cursor::{Batches, ChangeStream, Paging};
use crate::database::Database;
use crate::options::{CursorType, FullDocument, FullDocumentBeforeChange};

/// Whose changes.
#[derive(Debug)]
pub(crate) enum Watched<'a> {
    Collection(&'a str),
    Database,
    Everything,
}

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Watch<'a> {
    database: &'a Database,
    watched: Watched<'a>,
    stream: bson::Document,
    pipeline: Vec<bson::Document>,
    batch_size: Option<u32>,
    max_await: Option<Duration>,
    options: Options,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(database: &'a Database, watched: Watched<'a>) -> Watch<'a> {
        let mut stream = bson::Document::new();
        if matches!(watched, Watched::Everything) {
            stream.insert("allChangesForCluster", true);
        }
        let (pipeline, options) = (Vec::new(), Options::default());
        Watch { database, watched, stream, pipeline, batch_size: None, max_await: None, options }
    }

    setters!(collation comment);

    /// Stages that look at one event at a time: `$match`, `$project` and their like.
    pub fn pipeline(mut self, stages: impl IntoIterator<Item = bson::Document>) -> Self {
        self.pipeline = stages.into_iter().collect();
        self
    }

    /// Goes on behind what a token names.
    pub fn resume_after(self, token: bson::Document) -> Self {
        self.told("resumeAfter", token)
    }

    /// Goes on behind what a token names, which may be the event that ended a stream.
    pub fn start_after(self, token: bson::Document) -> Self {
        self.told("startAfter", token)
    }

    /// Begins with the first change of this time or later.
    pub fn start_at_operation_time(self, time: Timestamp) -> Self {
        self.told("startAtOperationTime", time)
    }

    /// Which document an update shows beside what it changed.
    pub fn full_document(self, which: FullDocument) -> Self {
        self.told("fullDocument", which)
    }

    /// Whether changes show the document before.
    pub fn full_document_before_change(self, which: FullDocumentBeforeChange) -> Self {
        self.told("fullDocumentBeforeChange", which)
    }

    /// Also shows that collections and indexes are made and changed.
    pub fn show_expanded_events(self, show: bool) -> Self {
        self.told("showExpandedEvents", show)
    }

    /// How long [`ChangeStream::next_if_any`] waits; a second unless said.
    pub fn max_await_time(mut self, time: Duration) -> Self {
        self.max_await = Some(time);
        self
    }

    /// How many events are in memory at a time.
    pub fn batch_size(mut self, events: u32) -> Self {
        self.batch_size = Some(events.max(1));
        self
    }

    fn told(mut self, name: &str, value: impl Into<Bson>) -> Self {
        self.stream.insert(name, value);
        self
    }

    /// Opens the stream. Events are read as `R`: [`bson::Document`], or a type of one's own.
    pub fn run<R>(self) -> Result<ChangeStream<R>> {
        let mut command = match self.watched {
            Watched::Collection(name) => Command::new("aggregate", name),
            Watched::Database | Watched::Everything => Command::new("aggregate", 1),
        };
        let first = bson::doc! {"$changeStream": self.stream};
        let stages: Vec<bson::Document> = [first].into_iter().chain(self.pipeline).collect();
        command.set_list("pipeline", &stages)?;
        let mut cursor = bson::Document::new();
        if let Some(size) = self.batch_size {
            cursor.insert("batchSize", Bson::Int64(size.into()));
        }
        command.set_document("cursor", &cursor)?;
        self.options.put(&mut command)?;
        let database = match self.watched {
            Watched::Everything => self.database.named("admin"),
            _ => self.database.clone(),
        };
        let reply = database.run(command)?;
        let kind = CursorType::TailableAwait;
        let paging = Paging { batch_size: self.batch_size, kind, max_await: self.max_await, signature: None };
        Ok(ChangeStream::new(Batches::of(database, reply, paging)))
    }
}
