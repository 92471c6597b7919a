//! A unit of work: where a command's writes gather on their way to the commit queue.
//!
//! Outside a transaction a unit gathers a [`Batch`]: documents, each written as a whole or not at all. A batch that
//! would have to wait for another writer is handed in first, so a unit never waits while it holds more than the
//! document at hand. Within a document, intents are taken in one order: the record, then unique keys by their bytes. So
//! no two units wait for each other. [`locks::MayWait`] lists the cases in which a unit may wait.
//!
//! Inside a multi-statement transaction nothing waits: the second writer of a key gets a conflict.

mod batch;
mod caused;
mod collections;
mod intents;
mod locks;
pub(crate) mod pending;

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Place, Position};
use kilim_storage::{CommitTime, Durability, Snapshot, Transaction};

pub use caused::{Caused, CausedPending};
pub(crate) use collections::Statement;
pub(crate) use locks::Contended;

use self::batch::Batch;
use self::collections::SchemaGuard;
use crate::change::Cause;
use crate::engine::Engine;
use crate::figures::Figures;
use crate::ids::{PatternId, SessionId};
use crate::index::{Entries, KeySet};
use crate::operation::Operation;
use crate::session::{ActiveTransaction, Deferred, Retry};

pub struct Unit<'e> {
    pub engine: &'e Engine,
    pub operation: Arc<Operation>,
    durability: Durability,
    writes: Writes,
    /// Who keeps schema changes away from the collections that it writes to.
    schema_guard: SchemaGuard,
    /// Remembers the answers of statements for their retry, in the commit of the statement's writes.
    pub retry: Option<Retry>,
    /// Statements were answered whose answers are not in the session's record yet.
    unrecorded: bool,
    /// Statements that a retry found done already.
    retried: Vec<i32>,
    /// The snapshot that it reads instead of the newest state.
    pub read_at: Option<Snapshot>,
    /// The newest commit of this unit that is published, for operationTime.
    committed: CommitTime,
    /// What the last attempt to maintain patterns did not get, so that it ended with a conflict.
    pub(crate) contended: Option<Contended>,
    /// Why its statements change documents.
    pub cause: Cause<'static>,
    /// Whoever writes may do so while users may not: `setUserWriteBlockMode`.
    pub bypasses_write_block: bool,
    /// `bypassDocumentValidation`: validators are not asked.
    pub bypass_validation: bool,
    /// What it writes to buckets is made of measurements, so it is as it must be.
    pub(crate) writes_measurements: bool,
    /// The place among its siblings, in the tree of a pattern, of the node that the statement moves.
    pub(crate) position: Option<(PatternId, Position)>,
    /// What its writes caused beside themselves, for the reply.
    pub caused: Caused,
    /// What it did, for the slow query log and the profiler.
    pub figures: Figures,
    pub(crate) buffers: Buffers,
}

/// What the changes of a unit use one after the other, so that the first of many allocates for all.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Where records of the change log are put together.
    pub record: Vec<u8>,
    /// The keys of a document, index by index.
    pub keys: Vec<KeySet>,
    /// The entry of a key that must be unique.
    pub entry: Vec<u8>,
    pub entries: Entries,
    /// Where a measurement belongs.
    pub place: Place,
}

/// The writes that a unit has gathered.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for every write of a single statement"
)]
enum Writes {
    /// A command outside a transaction: commits follow each other while it runs.
    Batch(Batch),
    /// A statement of a multi-statement transaction: nothing is committed before the transaction's end.
    Transaction { active: Box<ActiveTransaction>, phase: Phase },
}

/// How far a multi-statement transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its statements run. They read the transaction's snapshot.
    Statements,
    /// It commits. What maintenance writes now is made of the newest commit, not of the transaction's snapshot.
    Commit,
}

impl<'e> Unit<'e> {
    pub fn new(engine: &'e Engine, operation: Arc<Operation>, durability: Durability) -> Unit<'e> {
        Unit::of(engine, operation, durability, Writes::Batch(Batch::default()))
    }

    pub fn in_transaction(
        engine: &'e Engine,
        operation: Arc<Operation>,
        transaction: Box<ActiveTransaction>,
    ) -> Unit<'e> {
        let writes = Writes::Transaction { active: transaction, phase: Phase::Statements };
        Unit::of(engine, operation, Durability::Durable, writes)
    }

    fn of(engine: &'e Engine, operation: Arc<Operation>, durability: Durability, writes: Writes) -> Unit<'e> {
        Unit {
            engine,
            operation,
            durability,
            writes,
            schema_guard: SchemaGuard::Unit,
            retry: None,
            unrecorded: false,
            retried: Vec::new(),
            read_at: None,
            committed: 0,
            contended: None,
            cause: Cause::User,
            bypasses_write_block: false,
            bypass_validation: false,
            writes_measurements: false,
            position: None,
            caused: Caused::default(),
            figures: Figures::default(),
            buffers: Buffers::default(),
        }
    }

    /// The session and number of the multi-statement transaction that it belongs to.
    pub(crate) fn transaction_of(&self) -> Option<(SessionId, i64)> {
        match &self.writes {
            Writes::Transaction { active, .. } => Some(active.of),
            Writes::Batch(_) => None,
        }
    }

    pub fn is_transaction(&self) -> bool {
        matches!(self.writes, Writes::Transaction { .. })
    }

    /// The transaction's statements are done and it commits.
    pub(crate) fn begin_commit(&mut self) {
        if let Writes::Transaction { phase, .. } = &mut self.writes {
            *phase = Phase::Commit;
        }
    }

    /// Whether a transaction commits.
    pub(crate) fn is_committing(&self) -> bool {
        matches!(self.writes, Writes::Transaction { phase: Phase::Commit, .. })
    }

    /// Whether it reads what its transaction's snapshot has, not the newest commit.
    pub(crate) fn reads_transaction_snapshot(&self) -> bool {
        matches!(self.writes, Writes::Transaction { phase: Phase::Statements, .. })
    }

    /// The open transaction back, after the command.
    pub fn into_transaction(self) -> Option<Box<ActiveTransaction>> {
        match self.writes {
            Writes::Transaction { active, .. } => Some(active),
            Writes::Batch(_) => None,
        }
    }

    /// What this unit's statements read: the newest published state with the unit's own writes.
    pub fn snapshot(&self) -> Snapshot {
        if let Some(snapshot) = &self.read_at {
            return snapshot.clone();
        }
        match &self.writes {
            Writes::Batch(Batch { transaction: None, .. }) => self.engine.store.snapshot(),
            Writes::Batch(Batch { transaction: Some(transaction), .. }) => transaction.snapshot(),
            Writes::Transaction { active, .. } => active.storage.snapshot(),
        }
    }

    /// Publishes everything that was queued until now, and reads it with the unit's own writes.
    pub(crate) fn newest_snapshot(&mut self) -> Result<Snapshot> {
        self.engine.store.settle(Durability::Relaxed)?;
        Ok(self.transaction().newest_snapshot())
    }

    /// Defers work to the transaction's commit.
    pub(crate) fn defer(&mut self, deferred: Deferred) {
        if let Writes::Transaction { active, .. } = &mut self.writes {
            active.deferred.push(deferred);
        }
    }

    /// How many entries are deferred to the commit.
    pub(crate) fn deferred(&self) -> usize {
        match &self.writes {
            Writes::Transaction { active, .. } => active.deferred.len(),
            Writes::Batch(_) => 0,
        }
    }

    /// Forgets what a failed change deferred: all but the first `before` entries.
    pub(crate) fn undo_deferred(&mut self, before: usize) {
        if let Writes::Transaction { active, .. } = &mut self.writes {
            active.deferred.truncate(before);
        }
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<Deferred> {
        match &mut self.writes {
            Writes::Transaction { active, .. } => std::mem::take(&mut active.deferred),
            Writes::Batch(_) => Vec::new(),
        }
    }

    pub(crate) fn transaction(&mut self) -> &mut Transaction {
        match &mut self.writes {
            Writes::Batch(batch) => batch.transaction.get_or_insert_with(|| self.engine.store.begin()),
            Writes::Transaction { active, .. } => &mut active.storage,
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

    /// Remembers a statement's answer, where it may be sent again. It is stored with the batch of the statement's writes.
    pub(crate) fn record_statement(
        &mut self,
        statement: i32,
        result: impl FnOnce() -> Cow<'static, Document>,
    ) {
        if let Some(retry) = &mut self.retry {
            retry.record(statement, result());
            self.unrecorded = true;
        }
    }

    /// The newest commit of this unit, 0 if there was none.
    pub fn committed(&self) -> CommitTime {
        self.committed
    }

    /// Checks a transaction's bounds, after each statement.
    pub fn check_transaction_limits(&mut self) -> Result<()> {
        match &mut self.writes {
            Writes::Transaction { active, .. } => {
                let lifetime = self.engine.settings.transaction_lifetime();
                active.check_limits(&self.engine.sessions.transaction_bytes, lifetime)
            }
            Writes::Batch(_) => Ok(()),
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
