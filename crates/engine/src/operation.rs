//! A running command: what it may be stopped by, and what currentOp shows of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_memory::Exceeded;
use kilim_query::interrupt::Interrupt;
use kilim_storage::Waiters;
use parking_lot::Mutex;

/// One running command.
#[derive(Debug)]
pub struct Operation {
    pub id: i64,
    pub connection: u64,
    pub started: Instant,
    killed: AtomicBool,
    /// Nobody is there to read the answer.
    abandoned: AtomicBool,
    /// Woken when it is ended, since it may be waiting for a commit.
    waiters: Arc<Waiters>,
    /// Whether it then need not go on: it reads. Writes are done also for clients that do not wait for them.
    ends_with_client: AtomicBool,
    stopping: Arc<AtomicBool>,
    kind: Mutex<&'static str>,
    deadline: Mutex<Option<Instant>>,
    command: OnceLock<Document>,
    progress: Mutex<Option<Progress>>,
}

/// How far an operation is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What it does.
    pub what: &'static str,
    pub done: u64,
    pub total: u64,
}

impl Interrupt for Operation {
    fn check(&self) -> Result<()> {
        Operation::check(self)
    }
}

impl Operation {
    /// Called inside every loop that a user can make long.
    pub fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(Error::user(ErrorCode::Interrupted, "operation was interrupted"));
        }
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Error::user(
                ErrorCode::ClientDisconnect,
                "operation was interrupted because the client disconnected",
            ));
        }
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::user(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"));
        }
        match self.deadline() {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::user(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
            }
            _ => kilim_memory::check().map_err(holds_too_much),
        }
    }

    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.waiters.wake();
    }

    /// Says that the operation may end when its client is gone.
    pub fn end_with_client(&self) {
        self.ends_with_client.store(true, Ordering::Relaxed);
    }

    pub fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock()
    }

    pub fn set_time_limit(&self, limit: Option<Duration>) {
        *self.deadline.lock() = limit.map(|limit| self.started + limit);
    }

    /// Tells what runs; the first call counts.
    pub fn describe(&self, command: Document) {
        let _ = self.command.set(command);
    }

    pub fn set_kind(&self, kind: &'static str) {
        *self.kind.lock() = kind;
    }

    pub fn kind(&self) -> &'static str {
        *self.kind.lock()
    }

    pub fn set_progress(&self, progress: Progress) {
        *self.progress.lock() = Some(progress);
    }

    pub fn progress(&self) -> Option<Progress> {
        *self.progress.lock()
    }

    /// The command that runs, once it is known.
    pub fn command(&self) -> Option<&Document> {
        self.command.get()
    }
}

fn holds_too_much(exceeded: Exceeded) -> Error {
    let limits = kilim_memory::Limits::get();
    let message = match exceeded {
        Exceeded::Operation => {
            format!("an operation cannot hold more than {} bytes in memory", limits.operation_bytes)
        }
        Exceeded::Process => format!(
            "the operation holds {} bytes, and the server more than the {} that it may",
            kilim_memory::operation_bytes(),
            limits.process_bytes
        ),
    };
    Error::user(ErrorCode::ExceededMemoryLimit, message)
}

/// All running commands.
#[derive(Debug, Default)]
pub struct Operations {
    next: AtomicI64,
    /// The server is about to end: what only waits should not wait any longer.
    ending: AtomicBool,
    stopping: Arc<AtomicBool>,
    waiters: Arc<Waiters>,
    /// Hashed, since that keeps its memory when the last one is through.
    running: Mutex<HashMap<i64, Arc<Operation>, RandomState>>,
}

/// Takes the operation off the list when the command is done.
pub struct Running<'a> {
    operations: &'a Operations,
    operation: Arc<Operation>,
}

impl Operations {
    /// None yet; those that wait for commits are woken through `waiters`.
    pub fn new(waiters: Arc<Waiters>) -> Operations {
        Operations { waiters, ..Operations::default() }
    }

    pub fn start(&self, connection: u64) -> Running<'_> {
        kilim_memory::begin();
        let operation = Arc::new(Operation {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            connection,
            started: Instant::now(),
            killed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            waiters: self.waiters.clone(),
            ends_with_client: AtomicBool::new(false),
            stopping: self.stopping.clone(),
            kind: Mutex::new("none"),
            deadline: Mutex::new(None),
            command: OnceLock::new(),
            progress: Mutex::default(),
        });
        self.running.lock().insert(operation.id, operation.clone());
        Running { operations: self, operation }
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<Arc<Operation>> {
        let mut list: Vec<Arc<Operation>> = self.running.lock().values().cloned().collect();
        list.sort_unstable_by_key(|operation| operation.id);
        list
    }

    pub fn kill(&self, id: i64) {
        if let Some(operation) = self.running.lock().get(&id) {
            operation.kill();
        }
    }

    /// Ends what runs for a client that is gone, unless it writes.
    pub fn abandon(&self, connection: u64) {
        for operation in self.running.lock().values().filter(|operation| operation.connection == connection) {
            if operation.ends_with_client.load(Ordering::Relaxed) {
                operation.abandoned.store(true, Ordering::Relaxed);
            }
        }
        self.waiters.wake();
    }

    /// Asks those who only wait for something to happen to wait no longer.
    pub fn end_waiting(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.waiters.wake();
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Interrupts everything that runs now or later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.waiters.wake();
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
