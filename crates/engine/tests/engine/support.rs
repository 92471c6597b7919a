//! A database to test, and the few verbs the tests speak in.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::ids::SessionId;
use kilim_engine::index::IndexSpec;
use kilim_engine::jobs::validate;
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Hint, Purpose, ReadRequest};
use kilim_engine::session::{Session, TransactionNumber};
use kilim_engine::unit::Unit;
use kilim_engine::write::{
    self, DeleteRequest, FindAndModifyRequest, InsertOutcome, Modification, Modified, UpdateOutcome,
    UpdateRequest,
};
use kilim_engine::{Durability, Engine, EngineOptions, Namespace, StorageOptions, read};
use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;
use kilim_query::update::Update;
use kilim_storage::{MemoryDisk, Store};
pub use kilim_testkit::eventually;
use tempfile::TempDir;

pub struct Db {
    pub engine: Arc<Engine>,
    directory: Option<TempDir>,
}

pub fn ns(collection: &str) -> Namespace {
    Namespace::parse("test", collection).unwrap()
}

/// The value of a number field, whatever its type.
pub fn number(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(value)) => value.into(),
        Some(RawValue::Int64(value)) => value,
        Some(RawValue::Double(value)) => value as i64,
        other => panic!("{name} is {other:?} in {document:?}"),
    }
}

pub fn spec(key: Document) -> IndexSpec {
    let parts: Vec<String> = key
        .iter()
        .map(|(path, direction)| format!("{path}_{}", if descends(direction) { -1 } else { 1 }))
        .collect();
    IndexSpec::over(parts.join("_"), key)
}

fn descends(direction: RawValue<'_>) -> bool {
    matches!(direction, RawValue::Int32(value) if value < 0)
}

pub fn unique(key: Document) -> IndexSpec {
    IndexSpec { unique: true, ..spec(key) }
}

pub fn filter(filter: Document) -> Arc<Filter> {
    Arc::new(Filter::parse(filter.as_raw()).unwrap())
}

/// Both stores: what holds in memory must hold on disk.
pub fn everywhere(test: impl Fn(Db)) {
    test(Db::memory());
    test(Db::disk());
}

impl Db {
    pub fn memory() -> Db {
        Db { engine: Db::open(None), directory: None }
    }

    pub fn disk() -> Db {
        let directory = tempfile::tempdir().unwrap();
        Db { engine: Db::open(Some(&directory)), directory: Some(directory) }
    }

    /// On a disk that may lose its power.
    pub fn on(disk: &MemoryDisk) -> Db {
        Db::over(disk.open().unwrap())
    }

    /// In a store that somebody else has opened.
    pub fn over(store: Store) -> Db {
        Db { engine: Engine::over(store, Db::options(None)).unwrap(), directory: None }
    }

    /// Another handle of a database, for as long as the first one is there.
    pub fn of(engine: Arc<Engine>) -> Db {
        Db { engine, directory: None }
    }

    /// On disk, with the smallest cache and a checkpoint after every few writes.
    pub fn small_disk() -> Db {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Db::options(Some(&directory));
        options.storage.cache_bytes = 1 << 16;
        options.storage.checkpoint_bytes = Some(16 << 10);
        Db { engine: Engine::open(options).unwrap(), directory: Some(directory) }
    }

    fn open(directory: Option<&TempDir>) -> Arc<Engine> {
        Engine::open(Db::options(directory)).unwrap()
    }

    fn options(directory: Option<&TempDir>) -> EngineOptions {
        EngineOptions {
            data: directory.map(|directory| directory.path().join("data")),
            durability: Durability::Relaxed,
            storage: StorageOptions { cache_bytes: 16 << 20, ..StorageOptions::default() },
            test_commands: false,
        }
    }

    /// Whether it outlives a restart.
    pub fn is_durable(&self) -> bool {
        self.directory.is_some()
    }

    /// Closes and opens again, as a restart does.
    pub fn reopen(&mut self) {
        self.engine.close().unwrap();
        let closed = std::mem::replace(&mut self.engine, Db::open(None));
        drop(closed);
        self.engine = Db::open(self.directory.as_ref());
    }

    /// Runs one command outside a transaction; what it wrote is settled, also after an error.
    pub fn run<T>(&self, command: impl FnOnce(&mut Unit<'_>) -> Result<T>) -> Result<T> {
        self.run_limited(None, command)
    }

    pub fn run_limited<T>(
        &self,
        limit: Option<Duration>,
        command: impl FnOnce(&mut Unit<'_>) -> Result<T>,
    ) -> Result<T> {
        let running = self.engine.operations.start(1);
        running.set_time_limit(limit);
        let mut unit = Unit::new(&self.engine, Arc::clone(&running), Durability::Relaxed);
        let result = command(&mut unit);
        unit.settle().and(result)
    }

    /// Runs a retryable write.
    pub fn run_numbered<T>(
        &self,
        session: SessionId,
        number: i64,
        command: impl FnOnce(&mut Unit<'_>) -> Result<T>,
    ) -> Result<T> {
        let session = self.engine.sessions.get(&self.engine.store, session)?;
        let mut state = session.check_out();
        let retry = state.begin_retryable(session.id, number)?;
        self.run(|unit| {
            unit.retry = Some(retry);
            let result = command(unit);
            unit.settle()?;
            if let Some(retry) = unit.retry.take() {
                state.finish_retryable(retry);
            }
            result
        })
    }

    pub fn insert(&self, collection: &str, documents: &[Document]) {
        let outcome = self.run(|unit| insert(unit, collection, documents, true)).unwrap();
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    }

    pub fn try_insert(&self, collection: &str, document: Document) -> Result<()> {
        let mut outcome = self.run(|unit| insert(unit, collection, &[document], true))?;
        match outcome.errors.pop() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    pub fn update(&self, collection: &str, filter: Document, update: Document) -> Result<UpdateOutcome> {
        self.run(|unit| update_with(unit, collection, filter, update, Updating::One))
    }

    pub fn update_many(&self, collection: &str, filter: Document, update: Document) -> Result<UpdateOutcome> {
        self.run(|unit| update_with(unit, collection, filter, update, Updating::Many))
    }

    pub fn upsert(&self, collection: &str, filter: Document, update: Document) -> Result<UpdateOutcome> {
        self.run(|unit| update_with(unit, collection, filter, update, Updating::Upsert))
    }

    pub fn delete(&self, collection: &str, filter: Document) -> Result<u64> {
        self.run(|unit| delete(unit, collection, filter, false))
    }

    pub fn find(&self, collection: &str, filter: Document) -> Vec<Document> {
        self.run(|unit| find(unit, collection, filter, None)).unwrap()
    }

    pub fn find_by(&self, collection: &str, filter: Document, index: &str) -> Vec<Document> {
        self.run(|unit| find(unit, collection, filter, Some(index))).unwrap()
    }

    pub fn count(&self, collection: &str, filter: Document) -> u64 {
        self.run(|unit| count(unit, collection, filter)).unwrap()
    }

    pub fn build(&self, collection: &str, specs: Vec<IndexSpec>) -> Result<()> {
        let running = self.engine.operations.start(1);
        self.engine.build_indexes(&running, &ns(collection), specs).map(drop)
    }

    pub fn drop_index(&self, collection: &str, name: &str) -> Result<()> {
        let running = self.engine.operations.start(1);
        let ids: Vec<_> = self
            .engine
            .collection(&ns(collection))
            .into_iter()
            .flat_map(|collection| collection.index_named(name).map(|index| index.id))
            .collect();
        self.engine.drop_indexes(&running, &ns(collection), &ids)
    }

    pub fn drop_collection(&self, collection: &str) -> Result<()> {
        let running = self.engine.operations.start(1);
        self.engine.drop_collection(&running, &ns(collection)).map(drop)
    }

    pub fn rename(&self, from: &str, to: &str, drop_target: bool) -> Result<()> {
        let running = self.engine.operations.start(1);
        running.set_time_limit(Some(Duration::from_secs(20)));
        self.engine.rename_collection(&running, &ns(from), &ns(to), drop_target)
    }

    /// What `validate` finds wrong in any collection.
    pub fn faults(&self) -> Vec<String> {
        let running = self.engine.operations.start(1);
        let (snapshot, catalog) = self.engine.reading();
        let mut faults = Vec::new();
        for collection in catalog.iter() {
            let found = validate(&self.engine, collection, &snapshot, &running).unwrap();
            faults.extend(found.errors.into_iter().map(|error| format!("{}: {error}", collection.namespace)));
        }
        faults
    }

    #[track_caller]
    pub fn check(&self) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    pub fn session(&self, id: u8) -> Arc<Session> {
        self.engine.sessions.get(&self.engine.store, SessionId([id; 16])).unwrap()
    }

    /// A transaction that begins with its first statement.
    pub fn transaction(&self, session: u8, number: i64) -> Transaction<'_> {
        Transaction { db: self, session: self.session(session), number, started: false }
    }
}

/// A client's view of a multi-statement transaction.
pub struct Transaction<'a> {
    db: &'a Db,
    session: Arc<Session>,
    number: i64,
    started: bool,
}

impl Transaction<'_> {
    /// One statement. An error ends the transaction, as on the wire.
    pub fn run<T>(&mut self, statement: impl FnOnce(&mut Unit<'_>) -> Result<T>) -> Result<T> {
        let engine = &self.db.engine;
        let mut state = self.session.check_out();
        let named = TransactionNumber { number: self.number, start: !self.started };
        let transaction = state.begin_transaction(self.session.id, named, &engine.store)?;
        self.started = true;
        let running = engine.operations.start(1);
        let mut unit = Unit::in_transaction(engine, Arc::clone(&running), transaction);
        let result = statement(&mut unit).and_then(|value| unit.check_transaction_limits().map(|()| value));
        match (&result, unit.into_transaction()) {
            (Ok(_), Some(transaction)) => state.keep_transaction(transaction),
            _ => {
                state.abort_transaction();
                engine.cursors.close_of_transaction(self.session.id, self.number);
            }
        }
        result
    }

    pub fn insert(&mut self, collection: &str, document: Document) -> Result<()> {
        self.run(|unit| {
            let mut outcome = insert(unit, collection, &[document], true)?;
            outcome.errors.pop().map_or(Ok(()), |(_, error)| Err(error))
        })
    }

    pub fn update(&mut self, collection: &str, filter: Document, update: Document) -> Result<UpdateOutcome> {
        self.run(|unit| update_with(unit, collection, filter, update, Updating::Many))
    }

    pub fn find(&mut self, collection: &str, filter: Document) -> Result<Vec<Document>> {
        self.run(|unit| find(unit, collection, filter, None))
    }

    pub fn count(&mut self, collection: &str, filter: Document) -> Result<u64> {
        self.run(|unit| count(unit, collection, filter))
    }

    pub fn commit(self) -> Result<()> {
        self.commit_as(Durability::Relaxed)
    }

    pub fn commit_as(self, durability: Durability) -> Result<()> {
        let engine = &self.db.engine;
        let mut state = self.session.check_out();
        let Ok(transaction) = state.take_for_commit(self.session.id, self.number)? else { return Ok(()) };
        let operation = Arc::clone(&engine.operations.start(1));
        let committed =
            write::commit(transaction, engine, operation, Some((self.session.id, self.number)), durability)?;
        state.committed(committed.time);
        Ok(())
    }

    pub fn abort(self) -> Result<()> {
        self.session.check_out().take_for_abort(self.session.id, self.number).map(drop)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updating {
    One,
    Many,
    Upsert,
}

pub fn insert(
    unit: &mut Unit<'_>,
    collection: &str,
    documents: &[Document],
    ordered: bool,
) -> Result<InsertOutcome> {
    let raw: Vec<RawDocument<'_>> = documents.iter().map(Document::as_raw).collect();
    write::insert(unit, &ns(collection), &raw, ordered, |position| position as i32)
}

pub fn update_with(
    unit: &mut Unit<'_>,
    collection: &str,
    matching: Document,
    update: Document,
    updating: Updating,
) -> Result<UpdateOutcome> {
    update_statement(unit, collection, matching, update, updating, 0)
}

pub fn update_statement(
    unit: &mut Unit<'_>,
    collection: &str,
    matching: Document,
    update: Document,
    updating: Updating,
    statement: i32,
) -> Result<UpdateOutcome> {
    let update = Update::parse(RawValue::Document(update.as_raw()), None, updating == Updating::Many)?;
    let request = UpdateRequest {
        filter: filter(matching),
        update: &update,
        multi: updating == Updating::Many,
        upsert: updating == Updating::Upsert,
        hint: None,
        collation: None,
        now_ms: 0,
        statement,
        projection: None,
    };
    write::update(unit, &ns(collection), &request)
}

pub fn delete(unit: &mut Unit<'_>, collection: &str, matching: Document, one: bool) -> Result<u64> {
    let request = DeleteRequest { filter: filter(matching), one, hint: None, collation: None, statement: 0 };
    write::delete(unit, &ns(collection), &request)
}

pub fn find_and_modify(
    unit: &mut Unit<'_>,
    collection: &str,
    matching: Document,
    update: Document,
    sort: Option<Document>,
) -> Result<Modified> {
    find_and_modify_or_insert(unit, collection, matching, update, sort, false)
}

pub fn find_and_modify_or_insert(
    unit: &mut Unit<'_>,
    collection: &str,
    matching: Document,
    update: Document,
    sort: Option<Document>,
    upsert: bool,
) -> Result<Modified> {
    let update = Update::parse(RawValue::Document(update.as_raw()), None, false)?;
    let target = UpdateRequest {
        filter: filter(matching),
        update: &update,
        multi: false,
        upsert,
        hint: None,
        collation: None,
        now_ms: 0,
        statement: 0,
        projection: None,
    };
    let sort = sort.map(|sort| Sort::parse(sort.as_raw())).transpose()?;
    let request = FindAndModifyRequest {
        target,
        modification: Modification::Update { new: true },
        sort,
        tells_key: false,
        tells_score: false,
    };
    write::find_and_modify(unit, &ns(collection), &request)
}

pub fn find(
    unit: &mut Unit<'_>,
    collection: &str,
    matching: Document,
    index: Option<&str>,
) -> Result<Vec<Document>> {
    let mut request = ReadRequest::new(filter(matching));
    request.hint = index.map(|name| Hint::Name(name.to_owned()));
    let mut executor = read::plan(unit, &ns(collection), request)?.execute();
    let mut context = ExecContext::new(&|| Ok(()));
    let mut found = Vec::new();
    while let Some(row) = executor.next_document(&mut context)? {
        found.push(row.document().to_document());
    }
    Ok(found)
}

pub fn count(unit: &mut Unit<'_>, collection: &str, matching: Document) -> Result<u64> {
    let request = ReadRequest { purpose: Purpose::Count, ..ReadRequest::new(filter(matching)) };
    let mut executor = read::plan(unit, &ns(collection), request)?.execute();
    executor.count(&mut ExecContext::new(&|| Ok(())))
}

/// `{_id, ...}` for a range of ids.
pub fn numbered(ids: std::ops::Range<i32>, make: impl Fn(i32) -> Document) -> Vec<Document> {
    ids.map(|id| {
        let mut document = doc! {"_id": id};
        for (name, value) in make(id).iter() {
            document.push(name, value.to_value());
        }
        document
    })
    .collect()
}

pub fn ids(documents: &[Document]) -> Vec<i64> {
    documents.iter().map(|document| number(document, "_id")).collect()
}
