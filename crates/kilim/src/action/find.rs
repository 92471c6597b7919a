//! `find`.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::cursor::{Batches, Cursor, Paging, first_of};
use crate::options::CursorType;
use crate::session::{Session, sign};

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
    kind: CursorType,
    max_await: Option<Duration>,
}

#[derive(Debug)]
pub struct One;

impl<'a, T, M> Find<'a, T, M> {
    setters!(collation comment hint let_vars max_time session skip sort);

    /// Which fields are returned, and what is computed from them.
    pub fn projection(mut self, projection: bson::Document) -> Self {
        self.options.set("projection", projection);
        self
    }

    /// The keys of an index to begin at; goes with `hint`.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// # let numbers = Database::in_memory()?.collection::<Document>("numbers");
    /// numbers.create_index(doc! {"n": 1}).run()?;
    /// numbers.insert_many((0..10).map(|n| doc! {"_id": n, "n": n})).run()?;
    /// let some = numbers.find(doc! {}).hint("n_1").min(doc! {"n": 3}).max(doc! {"n": 6}).run()?;
    /// assert_eq!(some.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn min(mut self, keys: bson::Document) -> Self {
        self.options.set("min", keys);
        self
    }

    /// The keys of an index to end before; goes with `hint`.
    pub fn max(mut self, keys: bson::Document) -> Self {
        self.options.set("max", keys);
        self
    }

    /// Whether the keys of the index are returned, and nothing else.
    pub fn return_key(mut self, keys: bool) -> Self {
        self.options.set("returnKey", keys);
        self
    }

    /// Whether documents come with `$recordId`, their place in the collection.
    pub fn show_record_id(mut self, show: bool) -> Self {
        self.options.set("showRecordId", show);
        self
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new("find", self.collection.name());
        command.set_document("filter", &self.filter)?;
        self.options.put(&mut command)?;
        Ok(command)
    }
}

impl<'a, T> Find<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document) -> Find<'a, T> {
        let wanted = Many { batch_size: BATCH_SIZE, kind: CursorType::NonTailable, max_await: None };
        Find { collection, filter, options: Options::default(), wanted, session: None }
    }

    setters!(allow_disk_use limit);

    /// How many documents are in memory at a time.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.wanted.batch_size = documents.max(1);
        self
    }

    /// What the cursor does at the end of a capped collection.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}, options::CursorType};
    /// # fn main() -> kilim::Result<()> {
    /// # let database = Database::in_memory()?;
    /// database.create_collection("log").capped(true).size(1 << 20).run()?;
    /// let log = database.collection::<Document>("log");
    /// log.insert_one(doc! {"_id": 1}).run()?;
    /// let mut tail = log.find(doc! {}).cursor_type(CursorType::Tailable).run()?;
    /// assert_eq!(tail.by_ref().count(), 1);
    /// log.insert_one(doc! {"_id": 2}).run()?;
    /// assert_eq!(tail.next().transpose()?, Some(doc! {"_id": 2}));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor_type(mut self, kind: CursorType) -> Self {
        self.wanted.kind = kind;
        self
    }

    /// How long one look for new documents takes, of a cursor that waits for them.
    pub fn max_await_time(mut self, time: Duration) -> Self {
        self.wanted.max_await = Some(time);
        self
    }

    /// Whether the cursor stays open when it is not used for long.
    pub fn no_cursor_timeout(mut self, stay: bool) -> Self {
        self.options.set("noCursorTimeout", stay);
        self
    }

    pub fn run(self) -> Result<Cursor<T>> {
        let mut command = self.command()?;
        let Many { batch_size, kind, max_await } = self.wanted;
        command.set("batchSize", i64::from(batch_size));
        if kind != CursorType::NonTailable {
            command.set("tailable", true);
        }
        let awaits = kind == CursorType::TailableAwait;
        if awaits {
            command.set("awaitData", true);
        }
        let signature = sign(self.session, &mut command);
        let database = &self.collection.database;
        let reply = database.run(command)?;
        let max_await = max_await.filter(|_| awaits);
        let paging = Paging { batch_size: Some(batch_size), kind, max_await, signature };
        Ok(Cursor::new(Batches::of(database.clone(), reply, paging)))
    }
}

impl<'a, T> FindOne<'a, T> {
    pub(crate) fn first(collection: &'a Collection<T>, filter: bson::Document) -> FindOne<'a, T> {
        Find { collection, filter, options: Options::default(), wanted: One, session: None }
    }
}

impl<T: DeserializeOwned> FindOne<'_, T> {
    pub fn run(self) -> Result<Option<T>> {
        let mut command = self.command()?;
        command.set("limit", 1);
        command.set("singleBatch", true);
        sign(self.session, &mut command);
        let reply = self.collection.database.run(command)?;
        let found = first_of(&reply);
        Ok(found.map(|found| bson::deserialize_from_slice(found.as_bytes())).transpose()?)
    }
}
