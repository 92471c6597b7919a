//! An open multi-statement transaction: one storage transaction, the collections it holds, and those
//! it made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{CommitTime, Durability, Space, Transaction};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use super::{SessionId, retry};
use crate::catalog::Collection;
use crate::engine::Engine;
use crate::ids::CollectionId;
use crate::layout;
use crate::limits;
use crate::maintenance::{Caused, Deferred, carry_deferred};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::write::Unit;

pub struct ActiveTransaction {
    pub storage: Transaction,
    pub started: Instant,
    /// Collections made inside; others see them after the commit.
    pub created: Vec<Arc<Collection>>,
    /// Schema changes of these collections wait until the transaction ends.
    held: Vec<(CollectionId, ArcRwLockReadGuard<RawRwLock, ()>)>,
    /// What maintenance does at the commit.
    pub(crate) deferred: Vec<Deferred>,
    charge: Charge,
}

/// A transaction's part of what all open transactions hold; given back when it ends.
#[derive(Default)]
struct Charge {
    bytes: usize,
    all: Option<Arc<AtomicUsize>>,
}

impl Charge {
    /// Counts what the transaction holds now; how much all of them hold then.
    fn set(&mut self, all: &Arc<AtomicUsize>, bytes: usize) -> usize {
        let all = self.all.get_or_insert_with(|| all.clone());
        let before = std::mem::replace(&mut self.bytes, bytes);
        let held = all.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        held.wrapping_add(bytes).wrapping_sub(before)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A transaction's end.
#[derive(Debug)]
pub struct Committed {
    pub time: CommitTime,
    /// What maintenance did at the commit.
    pub caused: Caused,
}

impl ActiveTransaction {
    pub fn new(storage: Transaction) -> ActiveTransaction {
        ActiveTransaction {
            storage,
            started: Instant::now(),
            created: Vec::new(),
            held: Vec::new(),
            deferred: Vec::new(),
            charge: Charge::default(),
        }
    }

    /// The collection as this transaction sees it, held until it ends.
    pub fn collection(&mut self, engine: &Engine, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        if let Some(created) = self.created.iter().find(|collection| collection.namespace == *namespace) {
            return Ok(Some(created.clone()));
        }
        loop {
            let Some(collection) = engine.collection(namespace) else { return Ok(None) };
            if self.held.iter().any(|(id, _)| *id == collection.id) {
                return Ok(Some(collection));
            }
            let Some(guard) = collection.shared.lock.try_read_arc_for(limits::TRANSACTION_LOCK_WAIT) else {
                return Err(Error::user(
                    ErrorCode::LockTimeout,
                    format!(
                        "Unable to acquire a lock on '{namespace}' within {}ms.",
                        limits::TRANSACTION_LOCK_WAIT.as_millis()
                    ),
                ));
            };
            // A schema change may have ended while we waited: look again, and hold what is there now.
            if engine.collection(namespace).is_some_and(|now| now.id == collection.id) {
                self.held.push((collection.id, guard));
            }
        }
    }

    /// Called after each document that is written, and after each statement.
    pub fn check_limits(&mut self, engine: &Engine) -> Result<()> {
        if self.started.elapsed() > limits::TRANSACTION_LIFETIME {
            return Err(Error::user(
                ErrorCode::TransactionExceededLifetimeLimitSeconds,
                "the transaction has lived longer than transactionLifetimeLimitSeconds",
            ));
        }
        let bytes = self.storage.overlay_bytes();
        let held = self.charge.set(&engine.sessions.transaction_bytes, bytes);
        if held > limits::TRANSACTIONS_BYTES_MAX && bytes > limits::TRANSACTION_BYTES_SPARED {
            // Others will end: drivers try the whole transaction again, as after a conflict.
            return Err(Error::Conflict("open transactions hold too much memory"));
        }
        if bytes > limits::TRANSACTION_BYTES_MAX {
            return Err(Error::user(
                ErrorCode::TransactionTooLarge,
                format!(
                    "the transaction's uncommitted writes are larger than {} bytes",
                    limits::TRANSACTION_BYTES_MAX
                ),
            ));
        }
        Ok(())
    }

    /// Commits everything, or nothing. The session's record goes along, so that a repeated commit can
    /// be answered after a restart.
    pub fn commit(
        self: Box<Self>,
        engine: &Engine,
        operation: Arc<Operation>,
        id: SessionId,
        number: i64,
        durability: Durability,
    ) -> Result<Committed> {
        let mut unit = Unit::in_transaction(engine, operation, self);
        carry_deferred(&mut unit)?;
        let caused = std::mem::take(&mut unit.caused);
        let committed = |time| Committed { time, caused };
        let Some(transaction) = unit.into_transaction() else {
            return Err(Error::bug("a transaction's unit lost it"));
        };
        let ActiveTransaction { mut storage, created, held, .. } = *transaction;
        if storage.is_empty() {
            return Ok(committed(engine.store.last_commit_time()));
        }
        storage.put(
            Space::Meta,
            layout::session_key(id).to_vec(),
            retry::encode_committed(number).into_bytes(),
        );
        if created.is_empty() {
            let ticket = storage.enqueue(durability)?;
            drop(held);
            return ticket.wait().map(committed);
        }
        engine.commit_created(storage, created, durability).map(committed)
    }
}

impl std::fmt::Debug for ActiveTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveTransaction").field("started", &self.started).finish_non_exhaustive()
    }
}
