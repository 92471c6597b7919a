//! A running command: what it may be stopped by, and what currentOp shows of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use parking_lot::Mutex;

/// One running command.
#[derive(Debug)]
pub struct Operation {
    pub id: i64,
    pub connection: u64,
    pub started: Instant,
    killed: AtomicBool,
    stopping: Arc<AtomicBool>,
    description: Mutex<Description>,
}

/// What currentOp shows; filled in once the command is known.
#[derive(Debug, Clone, Default)]
pub struct Description {
    pub namespace: String,
    pub command: Document,
    pub kind: &'static str,
    pub deadline: Option<Instant>,
    pub session: Option<Document>,
}

impl Operation {
    /// Called inside every loop that a user can make long.
    pub fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(Error::user(ErrorCode::Interrupted, "operation was interrupted"));
        }
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::user(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"));
        }
        match self.deadline() {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::user(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
            }
            _ => Ok(()),
        }
    }

    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.description.lock().deadline
    }

    pub fn set_time_limit(&self, limit: Option<Duration>) {
        self.description.lock().deadline = limit.map(|limit| self.started + limit);
    }

    pub fn describe(&self, change: impl FnOnce(&mut Description)) {
        change(&mut self.description.lock());
    }

    pub fn description(&self) -> Description {
        self.description.lock().clone()
    }
}

/// All running commands.
#[derive(Debug, Default)]
pub struct Operations {
    next: AtomicI64,
    stopping: Arc<AtomicBool>,
    running: Mutex<BTreeMap<i64, Arc<Operation>>>,
}

/// Takes the operation off the list when the command is done.
pub struct Running<'a> {
    operations: &'a Operations,
    operation: Arc<Operation>,
}

impl Operations {
    pub fn start(&self, connection: u64) -> Running<'_> {
        let operation = Arc::new(Operation {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            connection,
            started: Instant::now(),
            killed: AtomicBool::new(false),
            stopping: self.stopping.clone(),
            description: Mutex::default(),
        });
        self.running.lock().insert(operation.id, operation.clone());
        Running { operations: self, operation }
    }

    pub fn list(&self) -> Vec<Arc<Operation>> {
        self.running.lock().values().cloned().collect()
    }

    pub fn kill(&self, id: i64) {
        if let Some(operation) = self.running.lock().get(&id) {
            operation.kill();
        }
    }

    /// Interrupts everything that runs now or later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl std::ops::Deref for Running<'_> {
    type Target = Arc<Operation>;

    fn deref(&self) -> &Arc<Operation> {
        &self.operation
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.operations.running.lock().remove(&self.operation.id);
    }
}
