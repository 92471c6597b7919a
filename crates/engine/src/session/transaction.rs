//! An open multi-statement transaction: one storage transaction, the collections it holds, and those
//! it made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Environment, Transaction};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use super::Deferred;
use crate::catalog::Collection;
use crate::ids::{CollectionId, SessionId};
use crate::limits;

pub struct ActiveTransaction {
    /// Its session and number.
    pub of: (SessionId, i64),
    pub storage: Transaction,
    pub started: Instant,
    environment: Environment,
    /// Collections made inside; others see them after the commit.
    pub created: Vec<Arc<Collection>>,
    /// Schema changes of these collections wait until the transaction ends.
    pub(crate) held: Vec<(CollectionId, ArcRwLockReadGuard<RawRwLock, ()>)>,
    /// Work on groups that its statements defer to the commit.
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

impl ActiveTransaction {
    pub fn new(
        of: (SessionId, i64),
        mut storage: Transaction,
        environment: &Environment,
    ) -> ActiveTransaction {
        storage.log_at_one_time();
        ActiveTransaction {
            of,
            storage,
            started: environment.now(),
            environment: environment.clone(),
            created: Vec::new(),
            held: Vec::new(),
            deferred: Vec::new(),
            charge: Charge::default(),
        }
    }

    /// Called after each document that is written, and after each statement. `all` counts what all open transactions
    /// hold.
    pub fn check_limits(&mut self, all: &Arc<AtomicUsize>, lifetime: Duration) -> Result<()> {
        if self.environment.since(self.started) > lifetime {
            return Err(Error::user(
                ErrorCode::TransactionExceededLifetimeLimitSeconds,
                "the transaction has lived longer than transactionLifetimeLimitSeconds",
            ));
        }
        let bytes = self.storage.overlay_bytes();
        let held = self.charge.set(all, bytes);
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
}

impl std::fmt::Debug for ActiveTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveTransaction").field("started", &self.started).finish_non_exhaustive()
    }
}
