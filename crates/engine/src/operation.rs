//! A running command: what it may be stopped by, and what currentOp shows of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_memory::Exceeded;
use kilim_query::interrupt::Interrupt;
use kilim_storage::{Environment, Waiters};
use parking_lot::Mutex;

use crate::namespace::Namespace;

/// The user for whom something runs or stays open.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub db: String,
}

/// One running command.
#[derive(Debug)]
pub struct Operation {
    pub id: i64,
    pub connection: u64,
    /// The user who runs it, if he has logged in.
    user: OnceLock<Arc<User>>,
    pub started: Instant,
    environment: Environment,
    killed: AtomicBool,
    /// Nobody is there to read the answer.
    abandoned: AtomicBool,
    /// Woken when it is ended.
    waits: Arc<Waits>,
    /// Whether it then need not go on: it reads. Writes are done also for clients that do not wait for them.
    ends_with_client: AtomicBool,
    stopping: Arc<AtomicBool>,
    kind: Mutex<&'static str>,
    deadline: Mutex<Option<Instant>>,
    command: OnceLock<Document>,
    /// Which collections it means by the names that it uses, where it says so.
    expected: OnceLock<Vec<Expected>>,
    progress: Mutex<Option<Progress>>,
}

/// A collection that a command names twice: by its name and by its id.
#[derive(Debug, Clone)]
pub struct Expected {
    pub namespace: Namespace,
    pub uuid: [u8; 16],
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
            Some(deadline) if self.environment.now() >= deadline => {
                Err(Error::user(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
            }
            _ => kilim_memory::check().map_err(holds_too_much),
        }
    }

    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.waits.wake();
    }

    /// Says that the operation may end when its client is gone.
    pub fn end_with_client(&self) {
        self.ends_with_client.store(true, Ordering::Relaxed);
    }

    /// Waits for a while, but for no longer than it may.
    pub fn rest(&self, time: Duration) -> Result<()> {
        self.rest_unless(time, &|| false)
    }

    /// Waits for a while, but no longer than until `is_over`, which is looked at whenever the operation is woken.
    pub(crate) fn rest_unless(&self, time: Duration, is_over: &dyn Fn() -> bool) -> Result<()> {
        self.waits.endings.wait(self.environment.now() + time, &|| self.check().is_err() || is_over());
        self.check()
    }

    /// Wakes it from its rest, to look again whether that is over.
    pub(crate) fn wake(&self) {
        self.waits.wake();
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

    /// Says which collections it means; the first call counts.
    pub fn expect(&self, expected: Vec<Expected>) {
        let _ = self.expected.set(expected);
    }

    /// The id of the collection that it means by a name.
    pub fn expected_at(&self, namespace: &Namespace) -> Option<&Expected> {
        self.expected.get()?.iter().find(|expected| expected.namespace == *namespace)
    }

    /// Says who runs it; the first call counts.
    pub fn set_user(&self, user: Arc<User>) {
        let _ = self.user.set(user);
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.get()
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

/// What operations wait for. Each is waited for by itself, so that nobody is woken for what concerns others; the end of
/// an operation wakes all of them.
#[derive(Debug, Default)]
struct Waits {
    /// For a commit.
    commits: Arc<Waiters>,
    /// For the time to pass.
    endings: Waiters,
    /// For a pattern to get on.
    patterns: Waiters,
    /// How often one has.
    patterns_moved: AtomicU64,
}

impl Waits {
    fn wake(&self) {
        self.commits.wake();
        self.endings.wake();
        self.patterns.wake();
    }
}

/// All running commands.
#[derive(Debug, Default)]
pub struct Operations {
    next: AtomicI64,
    /// The server is about to end: what only waits should not wait any longer.
    ending: AtomicBool,
    stopping: Arc<AtomicBool>,
    waits: Arc<Waits>,
    environment: Environment,
    /// Hashed, since that keeps its memory when the last one is through.
    running: Mutex<HashMap<i64, Arc<Operation>, RandomState>>,
}

/// Takes the operation off the list when the command is done.
pub struct Running<'a> {
    operations: &'a Operations,
    operation: Arc<Operation>,
    is_suspended: bool,
}

impl Operations {
    /// None yet; those that wait for commits are woken through `commits`.
    pub fn new(commits: Arc<Waiters>, environment: Environment) -> Operations {
        let waits = Arc::new(Waits { commits, ..Waits::default() });
        Operations { waits, environment, ..Operations::default() }
    }

    /// Waits until a time has come, the operation is to end, or the server is.
    pub fn wait(&self, operation: &Operation, until: Instant) {
        self.waits.endings.wait(until, &|| operation.check().is_err() || self.is_ending());
    }

    /// How often a pattern has got on: asked before one looks at what [`Operations::wait_for_patterns`] waits for.
    pub fn patterns_moved(&self) -> u64 {
        self.waits.patterns_moved.load(Ordering::Acquire)
    }

    /// A pattern has another state, something of it is pending no more, or a job of it has ended.
    pub(crate) fn note_pattern_moved(&self) {
        self.waits.patterns_moved.fetch_add(1, Ordering::Release);
        self.waits.patterns.wake();
    }

    /// Waits until a pattern has got on since `seen`, a time has come or the operation is to end. What a pattern is may also
    /// change with nobody telling, by the end of a thread for instance, so it is looked at now and then all the same.
    pub fn wait_for_patterns(&self, operation: &Operation, seen: u64, until: Option<Instant>) -> Result<()> {
        const LOOK: Duration = Duration::from_secs(1);
        let look = self.environment.now() + LOOK;
        let is_over = || self.patterns_moved() != seen || operation.check().is_err();
        self.waits.patterns.wait(until.map_or(look, |until| until.min(look)), &is_over);
        operation.check()
    }

    pub fn start(&self, connection: u64) -> Running<'_> {
        kilim_memory::begin();
        let operation = Arc::new(Operation {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            connection,
            user: OnceLock::new(),
            started: self.environment.now(),
            environment: self.environment.clone(),
            killed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            waits: self.waits.clone(),
            ends_with_client: AtomicBool::new(false),
            stopping: self.stopping.clone(),
            kind: Mutex::new("none"),
            deadline: Mutex::new(None),
            command: OnceLock::new(),
            expected: OnceLock::new(),
            progress: Mutex::default(),
        });
        self.running.lock().insert(operation.id, operation.clone());
        Running { operations: self, operation, is_suspended: false }
    }

    /// Goes on with one that was suspended.
    pub fn resume(&self, operation: Arc<Operation>) -> Running<'_> {
        kilim_memory::begin();
        Running { operations: self, operation, is_suspended: false }
    }

    /// A suspended one will not be gone on with.
    pub fn end(&self, operation: &Operation) {
        self.running.lock().remove(&operation.id);
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<Arc<Operation>> {
        let mut list: Vec<Arc<Operation>> = self.running.lock().values().cloned().collect();
        list.sort_unstable_by_key(|operation| operation.id);
        list
    }

    /// The running operation with this number.
    pub fn get(&self, id: i64) -> Option<Arc<Operation>> {
        self.running.lock().get(&id).cloned()
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
        self.waits.wake();
    }

    /// Asks those who only wait for something to happen to wait no longer.
    pub fn end_waiting(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.waits.wake();
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Interrupts everything that runs now or later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.waits.wake();
    }
}

impl Running<'_> {
    /// The thread turns to other things, and the operation stays on the list until somebody resumes or ends it.
    pub fn suspend(mut self) {
        self.is_suspended = true;
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
        if !self.is_suspended {
            self.operations.end(&self.operation);
        }
        kilim_memory::end();
    }
}
