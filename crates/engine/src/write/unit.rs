//! A unit of work: where a command's writes gather on their way to the commit queue.
//!
//! Outside a transaction a unit holds a batch of documents, each written as a whole or not at all. A
//! batch that would have to wait for another writer is handed in first, so a unit never waits while it
//! holds more than the document at hand; within a document, intents are taken in one order (the
//! record, then unique keys by their bytes). So no two units wait for each other.
//!
//! Inside a transaction nothing waits: whoever comes second gets a conflict.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Bytes, CommitTime, Durability, Snapshot, Space, Ticket, Transaction, Wait};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use crate::catalog::{Collection, CollectionId, RecordId};
use crate::engine::Engine;
use crate::layout;
use crate::limits;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::session::{ActiveTransaction, Retry};

pub struct Unit<'e> {
    pub engine: &'e Engine,
    pub operation: Arc<Operation>,
    durability: Durability,
    work: Work,
    /// Remembers statements for their retry, in the commit that makes them true.
    pub retry: Option<Retry>,
    /// Statements that a retry found done already.
    retried: Vec<i32>,
    /// What it reads instead of the newest state.
    pub read_at: Option<Snapshot>,
    /// The newest commit this unit has seen through, for operationTime.
    committed: CommitTime,
}

enum Work {
    Batch {
        transaction: Option<Transaction>,
        documents: usize,
        /// Collections written to since the batch began; schema changes wait for them.
        held: Vec<(CollectionId, ArcRwLockReadGuard<RawRwLock, ()>)>,
        /// Handed in, not yet known to be durable. Later tickets imply earlier ones.
        last_ticket: Option<Ticket>,
    },
    Transaction(Box<ActiveTransaction>),
}

impl<'e> Unit<'e> {
    pub fn new(engine: &'e Engine, operation: Arc<Operation>, durability: Durability) -> Unit<'e> {
        let work = Work::Batch { transaction: None, documents: 0, held: Vec::new(), last_ticket: None };
        Unit { engine, operation, durability, work, retry: None, retried: Vec::new(), read_at: None, committed: 0 }
    }

    pub fn in_transaction(
        engine: &'e Engine,
        operation: Arc<Operation>,
        transaction: Box<ActiveTransaction>,
    ) -> Unit<'e> {
        let work = Work::Transaction(transaction);
        Unit { engine, operation, durability: Durability::Durable, work, retry: None, retried: Vec::new(), read_at: None, committed: 0 }
    }

    pub fn is_transaction(&self) -> bool {
        matches!(self.work, Work::Transaction(_))
    }

    /// The open transaction back, after the command.
    pub fn into_transaction(self) -> Option<Box<ActiveTransaction>> {
        match self.work {
            Work::Transaction(transaction) => Some(transaction),
            Work::Batch { .. } => None,
        }
    }

    /// The collection to read from, as this unit sees it.
    pub fn collection(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        match &mut self.work {
            Work::Transaction(transaction) => transaction.collection(self.engine, namespace),
            Work::Batch { .. } => Ok(self.engine.collection(namespace)),
        }
    }

    /// What this unit's statements read: the newest published state with the unit's own writes.
    pub fn snapshot(&self) -> Snapshot {
        if let Some(snapshot) = &self.read_at {
            return snapshot.clone();
        }
        match &self.work {
            Work::Batch { transaction: None, .. } => self.engine.store.snapshot(),
            Work::Batch { transaction: Some(transaction), .. } => transaction.snapshot(),
            Work::Transaction(transaction) => transaction.storage.snapshot(),
        }
    }

    /// Takes up writing to a collection: holds it against schema changes until the batch is handed in.
    pub fn enter(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Work::Batch { held, .. } = &mut self.work else { return self.collection(namespace) };
        loop {
            let Some(collection) = self.engine.collection(namespace) else { return Ok(None) };
            if held.iter().any(|(id, _)| *id == collection.id) {
                return Ok(Some(collection));
            }
            let guard = loop {
                match collection.shared.lock.try_read_arc_for(std::time::Duration::from_millis(10)) {
                    Some(guard) => break guard,
                    None => self.operation.check()?,
                }
            };
            // A schema change may have ended while we waited: look again by name.
            match self.engine.collection(namespace) {
                Some(now) if now.id == collection.id => {
                    held.push((now.id, guard));
                    return Ok(Some(now));
                }
                _ => continue,
            }
        }
    }

    /// As [`Unit::enter`], and makes the collection where it is missing.
    pub fn enter_or_create(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.enter(namespace)? {
                return Ok(collection);
            }
            self.create(namespace, Document::new())?;
        }
    }

    /// Makes a collection: at once outside a transaction, with the commit inside one.
    pub fn create(&mut self, namespace: &Namespace, options: Document) -> Result<()> {
        match &mut self.work {
            Work::Batch { .. } => {
                self.engine.ensure_collection(namespace)?;
            }
            Work::Transaction(transaction) => {
                let collection = self.engine.create_in_transaction(&mut transaction.storage, namespace, options)?;
                transaction.created.push(collection);
            }
        }
        Ok(())
    }

    /// Changes a collection that this unit's transaction made, if it made it.
    pub fn change_created(&mut self, namespace: &Namespace, change: impl FnOnce(&mut Collection)) -> bool {
        let Work::Transaction(transaction) = &mut self.work else { return false };
        let Some(created) =
            transaction.created.iter_mut().find(|collection| collection.namespace == *namespace)
        else {
            return false;
        };
        change(Arc::make_mut(created));
        crate::ddl::save(&mut transaction.storage, created);
        true
    }

    pub(super) fn transaction(&mut self) -> &mut Transaction {
        match &mut self.work {
            Work::Batch { transaction, .. } => transaction.get_or_insert_with(|| self.engine.store.begin()),
            Work::Transaction(transaction) => &mut transaction.storage,
        }
    }

    /// Takes the intent on a record and reads its newest version, commit time included. `None`: gone.
    pub(super) fn lock_record(&mut self, collection: CollectionId, record: RecordId) -> Result<Option<Bytes>> {
        let key = layout::record_key(collection, record);
        self.lock(Space::Records, &key)?;
        let in_transaction = self.is_transaction();
        let transaction = self.transaction();
        if in_transaction {
            transaction.check_unchanged(Space::Records, &key)?;
            return transaction.get(Space::Records, &key);
        }
        transaction.latest(Space::Records, &key)
    }

    /// Takes the intent on a unique key and says who holds the key, if anyone.
    pub(super) fn lock_unique(&mut self, entry: &[u8]) -> Result<Option<RecordId>> {
        self.lock(Space::Index, entry)?;
        let in_transaction = self.is_transaction();
        let transaction = self.transaction();
        let seen = match in_transaction {
            true => transaction.get(Space::Index, entry)?,
            false => transaction.latest(Space::Index, entry)?,
        };
        if in_transaction && seen.is_none() && transaction.latest(Space::Index, entry)?.is_some() {
            return Err(Error::Conflict("a document with that unique key was inserted meanwhile"));
        }
        Ok(seen.map(|value| layout::record_id_of(&value[..8])))
    }

    fn lock(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let alone = matches!(self.work, Work::Batch { documents: 0, .. });
        let wait = match alone {
            true => Wait::Until { deadline: operation.deadline(), interrupt: &interrupt },
            false => Wait::No,
        };
        self.transaction().lock(space, key, wait)?;
        Ok(())
    }

    /// Counts a written document and hands the batch in when it is large enough.
    pub(super) fn written(&mut self) -> Result<()> {
        if let Work::Batch { transaction: Some(transaction), documents, .. } = &mut self.work {
            *documents += 1;
            if *documents >= limits::STATEMENT_BATCH_DOCUMENTS
                || transaction.overlay_bytes() >= limits::STATEMENT_BATCH_BYTES
            {
                self.hand_in()?;
            }
        }
        Ok(())
    }

    /// What a statement answered, if this is its retry.
    pub(super) fn answered(&mut self, statement: i32) -> Option<Document> {
        let done = self.retry.as_ref()?.result_of(statement)?.clone();
        self.retried.push(statement);
        Some(done)
    }

    /// Statements that were not run because a retry found them done.
    pub fn retried(&self) -> &[i32] {
        &self.retried
    }

    /// Remembers a statement's answer, in the commit of its writes.
    pub(super) fn record_statement(&mut self, statement: i32, result: Document) {
        if let Some(mut retry) = self.retry.take() {
            retry.record(self.transaction(), statement, result);
            self.retry = Some(retry);
        }
    }

    /// Whether a conflict can be solved by handing in and trying again; if so, it has been handed in.
    ///
    /// The batch was holding earlier documents, so it could not wait. Afterwards it holds nothing, and
    /// can.
    pub(super) fn can_retry(&mut self, error: &Error) -> Result<bool> {
        let Error::Conflict(_) = error else { return Ok(false) };
        if self.is_transaction() {
            return Ok(false);
        }
        self.engine.metrics.write_conflicts.add(1);
        self.operation.check()?;
        // Seen through, not only queued: the next try reads from a snapshot that has these writes.
        self.settle()?;
        Ok(true)
    }

    /// Gives the batch to the commit queue and waits, so that the next statement reads what it wrote.
    fn hand_in(&mut self) -> Result<()> {
        self.enqueue()?;
        self.wait()
    }

    fn enqueue(&mut self) -> Result<()> {
        if let Work::Batch { transaction, documents, held, last_ticket } = &mut self.work {
            *documents = 0;
            if let Some(batch) = transaction.take()
                && !batch.is_empty()
            {
                *last_ticket = Some(batch.enqueue(self.durability)?);
            }
            held.clear();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        if let Work::Batch { last_ticket, .. } = &mut self.work
            && let Some(ticket) = last_ticket.take()
        {
            self.committed = ticket.wait()?;
        }
        Ok(())
    }

    /// Ends the command's writes: when it returns, they are as durable as was asked.
    pub fn settle(&mut self) -> Result<()> {
        self.enqueue()?;
        self.wait()
    }

    /// The newest commit of this unit, 0 if there was none.
    pub fn committed(&self) -> CommitTime {
        self.committed
    }

    /// A transaction's bounds, checked after each statement.
    pub fn check_transaction_limits(&self) -> Result<()> {
        match &self.work {
            Work::Transaction(transaction) => transaction.check_lifetime(),
            Work::Batch { .. } => Ok(()),
        }
    }
}

/// What MongoDB refuses to do inside a transaction.
pub fn not_in_transaction(command: &str) -> Error {
    Error::user(
        ErrorCode::OperationNotSupportedInTransaction,
        format!("Cannot run '{command}' in a multi-document transaction."),
    )
}
