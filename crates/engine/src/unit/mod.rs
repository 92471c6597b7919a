//! A unit of work: where a command's writes gather on their way to the commit queue.
//!
//! Outside a transaction a unit holds a batch of documents, each written as a whole or not at all. A
//! batch that would have to wait for another writer is handed in first, so a unit never waits while it
//! holds more than the document at hand; within a document, intents are taken in one order (the
//! record, then unique keys by their bytes). So no two units wait for each other.
//!
//! Inside a transaction nothing waits: whoever comes second gets a conflict.

mod batch;
mod caused;
mod collections;
mod intents;
mod locks;
pub(crate) mod pending;

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{CommitTime, Durability, Snapshot, Ticket, Transaction};

pub use caused::{Caused, LeftPending};
pub(crate) use locks::Contended;

use self::collections::Held;
use crate::change::Cause;
use crate::engine::Engine;
use crate::figures::Figures;
use crate::ids::CollectionId;
use crate::operation::Operation;
use crate::session::{ActiveTransaction, Deferred, Retry};

pub struct Unit<'e> {
    pub engine: &'e Engine,
    pub operation: Arc<Operation>,
    durability: Durability,
    work: Work,
    /// Remembers statements for their retry, in the commit that makes them true.
    pub retry: Option<Retry>,
    /// Statements were answered that the session's record does not tell of yet.
    unrecorded: bool,
    /// Statements that a retry found done already.
    retried: Vec<i32>,
    /// What it reads instead of the newest state.
    pub read_at: Option<Snapshot>,
    /// The newest commit this unit has seen through, for operationTime.
    committed: CommitTime,
    /// What maintenance could not have in its last attempt.
    pub(crate) contended: Option<Contended>,
    /// It was waited for, and is held for the next attempt.
    pub(crate) keeps: bool,
    /// The batch holds keys for maintenance, which commits stand in line for: it waits for nobody.
    pub(crate) maintains: bool,
    /// Why its statements change documents.
    pub cause: Cause<'static>,
    /// `bypassDocumentValidation`: validators are not asked.
    pub bypass_validation: bool,
    /// A transaction's commit has begun: what maintenance still writes is as of the newest commit.
    pub(crate) commits: bool,
    /// Collections that whoever runs this holds whole: it need not hold them itself.
    lent: Vec<CollectionId>,
    /// All of it goes in one commit, or none.
    pub(crate) is_one: bool,
    /// What its writes caused, for the reply.
    pub caused: Caused,
    /// What it did, for whoever wants to know why it took so long.
    pub figures: Figures,
}

enum Work {
    Batch {
        transaction: Option<Transaction>,
        documents: usize,
        /// Collections written to since the batch began; schema changes wait for them.
        held: Vec<Held>,
        /// Something was read through the commit queue since the last batch was handed in.
        looked: bool,
        /// Handed in, not yet known to be durable. The last implies the others, which are kept all the same: a
        /// ticket that is dropped asks somebody else to see it through, at once and by itself.
        tickets: Vec<Ticket>,
        /// Bytes handed in since that was last waited for.
        on_the_way: usize,
    },
    Transaction(Box<ActiveTransaction>),
}

impl<'e> Unit<'e> {
    pub fn new(engine: &'e Engine, operation: Arc<Operation>, durability: Durability) -> Unit<'e> {
        let work = Work::Batch {
            transaction: None,
            documents: 0,
            held: Vec::new(),
            looked: false,
            tickets: Vec::new(),
            on_the_way: 0,
        };
        Unit::of(engine, operation, durability, work)
    }

    fn of(engine: &'e Engine, operation: Arc<Operation>, durability: Durability, work: Work) -> Unit<'e> {
        Unit {
            engine,
            operation,
            durability,
            work,
            retry: None,
            unrecorded: false,
            retried: Vec::new(),
            read_at: None,
            committed: 0,
            contended: None,
            keeps: false,
            maintains: false,
            cause: Cause::User,
            bypass_validation: false,
            commits: false,
            lent: Vec::new(),
            is_one: false,
            caused: Caused::default(),
            figures: Figures::default(),
        }
    }

    pub fn in_transaction(
        engine: &'e Engine,
        operation: Arc<Operation>,
        transaction: Box<ActiveTransaction>,
    ) -> Unit<'e> {
        Unit::of(engine, operation, Durability::Durable, Work::Transaction(transaction))
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

    /// Everything that was queued until now, published, with the unit's own writes.
    pub(crate) fn newest_snapshot(&mut self) -> Result<Snapshot> {
        self.engine.store.settle(Durability::Relaxed)?;
        Ok(self.transaction().newest_snapshot())
    }

    /// Leaves work for the transaction's commit.
    pub(crate) fn defer(&mut self, deferred: Deferred) {
        if let Work::Transaction(transaction) = &mut self.work {
            transaction.deferred.push(deferred);
        }
    }

    /// How much is left for the commit.
    pub(crate) fn deferred(&self) -> usize {
        match &self.work {
            Work::Transaction(transaction) => transaction.deferred.len(),
            Work::Batch { .. } => 0,
        }
    }

    /// Takes back what a change left that then failed.
    pub(crate) fn undo_deferred(&mut self, before: usize) {
        if let Work::Transaction(transaction) = &mut self.work {
            transaction.deferred.truncate(before);
        }
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<Deferred> {
        match &mut self.work {
            Work::Transaction(transaction) => std::mem::take(&mut transaction.deferred),
            Work::Batch { .. } => Vec::new(),
        }
    }

    pub(crate) fn transaction(&mut self) -> &mut Transaction {
        match &mut self.work {
            Work::Batch { transaction, .. } => transaction.get_or_insert_with(|| self.engine.store.begin()),
            Work::Transaction(transaction) => &mut transaction.storage,
        }
    }

    /// What a statement answered, if this is its retry.
    pub(crate) fn answered(&mut self, statement: i32) -> Option<&Document> {
        let answer = self.retry.as_ref()?.result_of(statement)?;
        self.retried.push(statement);
        Some(answer)
    }

    /// Statements that were not run because a retry found them done.
    pub fn retried(&self) -> &[i32] {
        &self.retried
    }

    /// Remembers a statement's answer; the batch of its writes takes it along.
    pub(crate) fn record_statement(&mut self, statement: i32, result: Document) {
        if let Some(retry) = &mut self.retry {
            retry.record(statement, result);
            self.unrecorded = true;
        }
    }

    /// The newest commit of this unit, 0 if there was none.
    pub fn committed(&self) -> CommitTime {
        self.committed
    }

    /// A transaction's bounds, checked after each statement.
    pub fn check_transaction_limits(&mut self) -> Result<()> {
        match &mut self.work {
            Work::Transaction(transaction) => {
                transaction.check_limits(&self.engine.sessions.transaction_bytes)
            }
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
