//! A database: a directory, or memory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use kilim_bson::RawValue;
use kilim_engine::{Engine, EngineOptions, LogOptions, StorageOptions};

use crate::action::{Aggregate, CreateCollection, Watch, Watched};
use crate::collection::Collection;
use crate::command::Command;
use crate::cursor::{Batches, Cursor, Paging};
use crate::session::Session;
use crate::{Error, Result};

pub use kilim_engine::Durability;

/// What mongosh uses where nothing is named.
const DEFAULT_NAME: &str = "test";

/// An open database. Cheap to clone; the last clone closes it.
///
/// One directory holds several databases by name, as a server does. This one is called `test` unless
/// [`Database::named`] says otherwise.
#[derive(Clone)]
pub struct Database {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Arc<str>,
}

/// The engine, closed with the last of those who use it.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.engine.close() {
            tracing::error!(%error, "the database did not close in order");
        }
    }
}

/// How a database is opened.
///
/// ```
/// # fn main() -> kilim::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let database = kilim::Database::options()
///     .cache_bytes(64 << 20)
///     .durability(kilim::Durability::Relaxed)
///     .open(directory.path())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct OpenOptions {
    durability: Durability,
    storage: StorageOptions,
}

impl OpenOptions {
    /// What a write waits for: the disk by default.
    pub fn durability(mut self, durability: Durability) -> OpenOptions {
        self.durability = durability;
        self
    }

    /// Memory for pages that were read and for rows that are not on disk in their final place yet.
    pub fn cache_bytes(mut self, bytes: u64) -> OpenOptions {
        self.storage.cache_bytes = bytes;
        self
    }

    /// Writes are refused while the disk has less than this free; by default a part of the disk's size.
    pub fn free_space_reserve_bytes(mut self, bytes: u64) -> OpenOptions {
        self.storage.free_space_reserve_bytes = Some(bytes);
        self
    }

    /// How long changes are kept for change streams, and how many bytes of them. Unless said it is a week, and a twentieth
    /// of the disk, but at least 16 MB and at most a gigabyte; in memory 64 MB. No time at all drops the change log, and
    /// there are no change streams.
    pub fn change_log(mut self, time: Duration, bytes: Option<u64>) -> OpenOptions {
        self.storage.log = (!time.is_zero()).then_some(LogOptions { age_max: time, bytes_max: bytes });
        self
    }

    /// How long [`Database::close`] may work on putting everything in its final place; five seconds by default.
    /// What is not done by then is done at the next start.
    pub fn close_within(mut self, time: Duration) -> OpenOptions {
        self.storage.close_within = time;
        self
    }

    /// Opens a directory, and makes it if it is not there.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Database> {
        let directory = directory.as_ref();
        self.start(Some(directory)).map_err(|error| {
            Error::Open(format!("cannot open the database in {}: {error}", directory.display()))
        })
    }

    /// A database that is gone when it is closed.
    pub fn in_memory(self) -> Result<Database> {
        self.start(None).map_err(|error| Error::Open(error.to_string()))
    }

    fn start(self, directory: Option<&Path>) -> Result<Database, kilim_error::Error> {
        let engine = Engine::open(EngineOptions {
            data: directory.map(Path::to_owned),
            durability: self.durability,
            storage: self.storage,
            test_commands: false,
        })?;
        let shared = Arc::new(Shared { engine });
        keep_house(&shared);
        Ok(Database { shared, name: DEFAULT_NAME.into() })
    }
}

/// Has the engine do what must be done now and then, for as long as somebody uses it.
fn keep_house(shared: &Arc<Shared>) {
    const TURN: Duration = Duration::from_secs(1);
    let weak: Weak<Engine> = Arc::downgrade(&shared.engine);
    let work = move || {
        loop {
            thread::park_timeout(TURN);
            match weak.upgrade() {
                Some(engine) => engine.tick(),
                None => return,
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("kilim".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread for housekeeping: documents will not expire");
    }
}

impl Database {
    /// Opens the database in a directory, and makes it if it is not there.
    pub fn open(directory: impl AsRef<Path>) -> Result<Database> {
        Database::options().open(directory)
    }

    /// A database that is gone when it is closed.
    pub fn in_memory() -> Result<Database> {
        Database::options().in_memory()
    }

    pub fn options() -> OpenOptions {
        OpenOptions { durability: Durability::Durable, storage: StorageOptions::default() }
    }

    /// Another database of the same directory.
    pub fn named(&self, name: &str) -> Database {
        Database { shared: self.shared.clone(), name: name.into() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A collection of documents of one type: one that serde knows, or [`bson::Document`]. It is made by the
    /// first write.
    pub fn collection<T>(&self, name: &str) -> Collection<T> {
        Collection::new(self.clone(), name)
    }

    /// Makes a collection with options of its own, or a view.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}, options::{Collation, CollationStrength}};
    /// # fn main() -> kilim::Result<()> {
    /// # let database = Database::in_memory()?;
    /// let caseless = Collation::new("en").strength(CollationStrength::Secondary);
    /// database.create_collection("users").collation(caseless).validator(doc! {"name": {"$type": "string"}}).run()?;
    /// let users = database.collection::<Document>("users");
    /// users.create_index(doc! {"name": 1}).unique(true).run()?;
    /// users.insert_one(doc! {"_id": 1, "name": "Ada"}).run()?;
    /// assert!(users.insert_one(doc! {"name": "ADA"}).run().unwrap_err().is_duplicate_key());
    /// assert!(users.insert_one(doc! {"name": 7}).run().is_err());
    /// assert_eq!(users.find_one(doc! {"name": "ada"}).run()?, Some(doc! {"_id": 1, "name": "Ada"}));
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_collection(&self, name: impl Into<String>) -> CreateCollection<'_> {
        CreateCollection::new(self, name.into())
    }

    /// Runs a pipeline that reads no collection, or several: one that begins with `$documents`, say.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// # let database = Database::in_memory()?;
    /// let pipeline = [doc! {"$documents": [{"n": 1}, {"n": 2}]}, doc! {"$match": {"$expr": {"$gt": ["$n", "$$least"]}}}];
    /// let large = database.aggregate(pipeline).let_vars(doc! {"least": 1}).run::<Document>()?;
    /// assert_eq!(large.collect::<kilim::Result<Vec<_>>>()?, [doc! {"n": 2}]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn aggregate(&self, pipeline: impl IntoIterator<Item = bson::Document>) -> Aggregate<'_> {
        Aggregate::new(self, None, pipeline.into_iter().collect())
    }

    /// The changes of all collections of this database, as they happen.
    pub fn watch(&self) -> Watch<'_> {
        Watch::new(self, Watched::Database)
    }

    /// The changes of all databases of the same directory, as they happen.
    pub fn watch_all(&self) -> Watch<'_> {
        Watch::new(self, Watched::Everything)
    }

    /// The names of the collections.
    pub fn list_collection_names(&self) -> Result<Vec<String>> {
        let mut command = Command::new("listCollections", 1);
        command.set("nameOnly", true);
        let reply = self.run(command)?;
        let names: Cursor<bson::Document> = Cursor::new(Batches::of(self.clone(), reply, Paging::default()));
        names.map(|one| Ok(one?.get_str("name").unwrap_or_default().to_owned())).collect()
    }

    /// The names of the databases of the same directory.
    pub fn list_database_names(&self) -> Result<Vec<String>> {
        let mut command = Command::new("listDatabases", 1);
        command.set("nameOnly", true);
        let reply = self.named("admin").run(command)?;
        let databases = reply.get("databases").and_then(RawValue::as_array);
        let names =
            databases.into_iter().flat_map(|databases| databases.iter().filter_map(RawValue::as_document));
        let names = names.filter_map(|database| database.get("name")?.as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Drops the database: all its collections.
    pub fn drop_all(&self) -> Result<()> {
        self.run(Command::new("dropDatabase", 1)).map(drop)
    }

    /// Runs any command that a server knows.
    ///
    /// ```
    /// # use kilim::{Database, bson::doc};
    /// # fn main() -> kilim::Result<()> {
    /// # let database = Database::in_memory()?;
    /// let reply = database.run_command(doc! {"ping": 1})?;
    /// assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_command(&self, command: bson::Document) -> Result<bson::Document> {
        let reply = self.run(Command::of(&command)?)?;
        Ok(bson::deserialize_from_slice(reply.as_bytes())?)
    }

    /// A session, for transactions.
    pub fn start_session(&self) -> Session {
        Session::new(self.clone())
    }

    /// Runs a transaction: commits it if the function succeeds, aborts it if not, and tries again where another
    /// writer came in between.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// # let database = Database::in_memory()?;
    /// let accounts = database.collection::<Document>("accounts");
    /// accounts.insert_many([doc! {"_id": "a", "sum": 10}, doc! {"_id": "b", "sum": 0}]).run()?;
    /// database.transaction(|session| {
    ///     accounts.update_one(doc! {"_id": "a"}, doc! {"$inc": {"sum": -7}}).session(session).run()?;
    ///     accounts.update_one(doc! {"_id": "b"}, doc! {"$inc": {"sum": 7}}).session(session).run()?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(accounts.find_one(doc! {"_id": "b"}).run()?, Some(doc! {"_id": "b", "sum": 7}));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<R>(&self, mut work: impl FnMut(&mut Session) -> Result<R>) -> Result<R> {
        let mut session = self.start_session();
        loop {
            session.start_transaction()?;
            let result = match work(&mut session) {
                Ok(result) => session.commit_transaction().map(|()| result),
                Err(error) => {
                    session.abort_transaction()?;
                    Err(error)
                }
            };
            match result {
                Err(error) if error.is_transient() => thread::yield_now(),
                other => return other,
            }
        }
    }

    pub(crate) fn run(&self, command: Command) -> Result<kilim_bson::Document> {
        command.run(&self.shared.engine, &self.name)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}
