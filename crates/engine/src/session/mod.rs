//! Logical sessions: what a client's numbered writes and transactions hang on.
//!
//! A session runs one numbered operation at a time. Its number only grows: a retryable write or a
//! transaction with a smaller one is refused, one with the same is a retry. What a retry must be
//! answered is stored in the same commit as the write itself, so it survives a restart.

mod deferred;
mod retry;
mod transaction;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{CommitTime, Durability, Snapshot, Space, Store};
use parking_lot::Mutex;

pub(crate) use deferred::Deferred;
pub(crate) use retry::encode_committed;
pub use retry::{Retry, Statements};
pub use transaction::ActiveTransaction;

pub use crate::ids::SessionId;

use crate::layout;
use crate::limits;
use crate::operation::User;

#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    last_use: Mutex<Instant>,
    /// Whose it is; nobody's where nobody logs in.
    owner: Mutex<Option<Arc<User>>>,
    /// Locked for as long as a numbered operation of this session runs.
    state: Mutex<State>,
}

/// The newest numbered operation of a session.
#[derive(Debug, Default)]
pub struct State {
    number: Option<i64>,
    progress: Progress,
}

#[derive(Debug, Default)]
pub enum Progress {
    #[default]
    None,
    /// A retryable write; what its statements answered.
    Retryable(Statements),
    /// Boxed: most sessions never have one. `None` while a statement of it runs.
    Open(Option<Box<ActiveTransaction>>),
    Committed(CommitTime),
    Aborted,
}

/// How a command names the transaction it belongs to.
#[derive(Debug, Clone, Copy)]
pub struct TransactionNumber {
    pub number: i64,
    pub start: bool,
}

impl State {
    /// Takes up a retryable write. An equal number is a retry: its results so far are known.
    pub fn begin_retryable(&mut self, id: SessionId, number: i64) -> Result<Retry> {
        match self.number {
            Some(current) if number < current => {
                return Err(Error::user(
                    ErrorCode::TransactionTooOld,
                    format!(
                        "Retryable write with txnNumber {number} is prohibited on session {id} because a newer \
                         transaction with txnNumber {current} has already started on this session."
                    ),
                ));
            }
            Some(current) if number == current => match &self.progress {
                Progress::Retryable(statements) => {
                    return Ok(Retry { id, number, statements: statements.clone() });
                }
                Progress::None => {}
                _ => {
                    return Err(Error::user(
                        ErrorCode::IncompleteTransactionHistory,
                        format!(
                            "Cannot retry a retryable write that has been converted into a transaction, \
                             txnNumber {number} on session {id}"
                        ),
                    ));
                }
            },
            _ => self.start(number),
        }
        self.progress = Progress::Retryable(Statements::default());
        Ok(Retry { id, number, statements: Statements::default() })
    }

    /// Keeps what a retryable write has done, for its retry.
    pub fn finish_retryable(&mut self, retry: Retry) {
        if self.number == Some(retry.number) {
            self.progress = Progress::Retryable(retry.statements);
        }
    }

    /// Starts a transaction or goes on with it.
    pub fn begin_transaction(
        &mut self,
        id: SessionId,
        named: TransactionNumber,
        store: &Store,
    ) -> Result<Box<ActiveTransaction>> {
        let TransactionNumber { number, start } = named;
        if start {
            match self.number {
                Some(current) if number < current => return Err(too_old(id, number, current)),
                Some(current) if number == current && !matches!(self.progress, Progress::None) => {
                    return Err(Error::user(
                        ErrorCode::ConflictingOperationInProgress,
                        format!(
                            "Cannot start a transaction at given transaction number {number} a transaction with \
                             the same number is in state {}",
                            self.progress.name()
                        ),
                    ));
                }
                _ => {}
            }
            self.start(number);
            self.progress = Progress::Open(None);
            // Commits on their way to disk are not in the snapshot yet, and whatever they wrote would be a
            // conflict here. If they fail, the store says so to whoever writes next.
            let _ = store.settle(Durability::Relaxed);
            return Ok(Box::new(ActiveTransaction::new((id, number), store.begin(), store.environment())));
        }
        self.check_number(id, number)?;
        match &mut self.progress {
            Progress::Open(transaction) => {
                transaction.take().ok_or_else(|| Error::bug("a transaction's statement ran twice at once"))
            }
            Progress::Committed(_) => Err(Error::user(
                ErrorCode::TransactionCommitted,
                format!("Transaction with {{ txnNumber: {number} }} has been committed."),
            )),
            _ => Err(aborted(number)),
        }
    }

    /// Gives a transaction back after a statement.
    pub fn keep_transaction(&mut self, transaction: Box<ActiveTransaction>) {
        self.progress = Progress::Open(Some(transaction));
    }

    pub fn abort_transaction(&mut self) {
        self.progress = Progress::Aborted;
    }

    pub fn committed(&mut self, time: CommitTime) {
        self.progress = Progress::Committed(time);
    }

    /// What commitTransaction finds: the transaction to commit, or that it was committed already.
    pub fn take_for_commit(
        &mut self,
        id: SessionId,
        number: i64,
    ) -> Result<Result<Box<ActiveTransaction>, CommitTime>> {
        self.check_number(id, number)?;
        match std::mem::replace(&mut self.progress, Progress::Aborted) {
            Progress::Open(Some(transaction)) => Ok(Ok(transaction)),
            Progress::Committed(time) => {
                self.progress = Progress::Committed(time);
                Ok(Err(time))
            }
            Progress::Retryable(statements) => {
                self.progress = Progress::Retryable(statements);
                Err(no_such(number))
            }
            _ => Err(aborted(number)),
        }
    }

    /// What abortTransaction finds.
    pub fn take_for_abort(&mut self, id: SessionId, number: i64) -> Result<Box<ActiveTransaction>> {
        self.check_number(id, number)?;
        match &mut self.progress {
            Progress::Open(transaction) => {
                let transaction = transaction.take().ok_or_else(|| aborted(number))?;
                self.progress = Progress::Aborted;
                Ok(transaction)
            }
            Progress::Committed(_) => Err(Error::user(
                ErrorCode::TransactionCommitted,
                format!("Transaction with {{ txnNumber: {number} }} has been committed."),
            )),
            _ => Err(aborted(number)),
        }
    }

    fn check_number(&self, id: SessionId, number: i64) -> Result<()> {
        match self.number {
            Some(current) if number < current => Err(too_old(id, number, current)),
            Some(current) if number == current => Ok(()),
            Some(current) => Err(Error::user(
                ErrorCode::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress transactions. The active \
                     transaction number is {current}"
                ),
            )),
            None => Err(Error::user(
                ErrorCode::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress transactions. The active \
                     transaction number is -1"
                ),
            )),
        }
    }

    /// A newer number ends whatever the older one left open.
    fn start(&mut self, number: i64) {
        self.number = Some(number);
        self.progress = Progress::None;
    }
}

impl Progress {
    fn name(&self) -> &'static str {
        match self {
            Progress::None => "TxnState::kNone",
            Progress::Retryable(_) => "TxnState::kExecutedRetryableWrite",
            Progress::Open(_) => "TxnState::kInProgress",
            Progress::Committed(_) => "TxnState::kCommitted",
            Progress::Aborted => "TxnState::kAbortedWithoutPrepare",
        }
    }
}

fn too_old(id: SessionId, number: i64, current: i64) -> Error {
    Error::user(
        ErrorCode::TransactionTooOld,
        format!(
            "Cannot start transaction with {{ txnNumber: {number} }} on session {id} because a newer transaction \
             with txnNumber {current} has already started on this session."
        ),
    )
}

fn aborted(number: i64) -> Error {
    Error::user(
        ErrorCode::NoSuchTransaction,
        format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
    )
}

fn no_such(number: i64) -> Error {
    Error::user(
        ErrorCode::NoSuchTransaction,
        format!("Given transaction number {number} does not match any in-progress transactions."),
    )
}

impl Session {
    /// The state, once no other operation of this session runs.
    pub fn check_out(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether somebody may use it: it belongs to the first user who did. Without users it is everybody's.
    pub fn is_open_to(&self, user: Option<&Arc<User>>) -> bool {
        let Some(user) = user else { return true };
        self.owner.lock().get_or_insert_with(|| user.clone()) == user
    }
}

/// A transaction that waits for its next statement, for currentOp.
pub struct OpenTransaction {
    pub session: SessionId,
    pub number: i64,
    pub owner: Option<Arc<User>>,
    pub started: Instant,
}

/// All sessions that were used lately.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Sessions that were on disk when the engine was opened, and when that was; until they are overdue.
    stored: Mutex<Option<(Instant, Vec<SessionId>)>>,
    /// What the uncommitted writes of all open transactions hold.
    pub(crate) transaction_bytes: Arc<AtomicUsize>,
}

impl Sessions {
    /// The session of that id, made or read back where it is not in memory.
    pub fn get(&self, store: &Store, id: SessionId) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(&id) {
            *session.last_use.lock() = store.environment().now();
            return Ok(session.clone());
        }
        if sessions.len() >= limits::SESSIONS_MAX {
            return Err(Error::user(
                ErrorCode::TooManyLogicalSessions,
                "Unable to add session into the cache because the number of active sessions is too high",
            ));
        }
        let (state, owner) = match store.latest(Space::Meta, &layout::session_key(id))? {
            Some(record) => retry::decode_state(&record)?,
            None => (State::default(), None),
        };
        let session = Arc::new(Session {
            id,
            last_use: Mutex::new(store.environment().now()),
            owner: Mutex::new(owner),
            state: Mutex::new(state),
        });
        sessions.insert(id, session.clone());
        Ok(session)
    }

    /// The sessions in memory, with how long each has not been used, and whose it is.
    pub fn list_idle(&self, now: Instant) -> Vec<(SessionId, Duration, Option<Arc<User>>)> {
        let sessions = self.sessions.lock();
        let idle = |session: &Session| now.saturating_duration_since(*session.last_use.lock());
        let listed = |session: &Arc<Session>| (session.id, idle(session), session.owner.lock().clone());
        sessions.values().map(listed).collect()
    }

    /// Open transactions none of whose statements runs, with their sessions, owners and beginnings.
    pub fn list_open_transactions(&self) -> Vec<OpenTransaction> {
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        let open = sessions.into_iter().filter_map(|session| {
            let state = session.state.try_lock()?;
            let Progress::Open(Some(transaction)) = &state.progress else { return None };
            let ((session_id, number), started) = (transaction.of, transaction.started);
            let owner = session.owner.lock().clone();
            Some(OpenTransaction { session: session_id, number, owner, started })
        });
        open.collect()
    }

    /// The sessions of some users.
    pub fn of_users(&self, users: &[User]) -> Vec<SessionId> {
        let sessions = self.sessions.lock();
        let is_theirs = |session: &&Arc<Session>| {
            session.owner.lock().as_ref().is_some_and(|owner| users.contains(owner))
        };
        sessions.values().filter(is_theirs).map(|session| session.id).collect()
    }

    /// Whose a session is, if it is in memory: somebody's, or nobody's in particular.
    pub fn owner(&self, id: SessionId) -> Option<Option<Arc<User>>> {
        self.sessions.lock().get(&id).map(|session| session.owner.lock().clone())
    }

    pub fn list(&self) -> Vec<SessionId> {
        self.sessions.lock().keys().copied().collect()
    }

    /// Ends a session: its transaction is aborted. Waits for the operation it runs.
    ///
    /// What its retries must be answered stays on disk.
    pub(crate) fn end(&self, id: SessionId) {
        let session = self.sessions.lock().get(&id).cloned();
        if let Some(session) = session {
            abort_open(&mut session.state.lock());
            self.remove_unused(session);
        }
    }

    /// Takes a session off the list, unless somebody else has it in hand: two of one id would let a write
    /// and its retry run side by side.
    fn remove_unused(&self, session: Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock();
        // Ours and the list's; a third can only be had under the lock.
        let unused = Arc::strong_count(&session) == 2;
        if unused {
            sessions.remove(&session.id);
        }
        unused
    }

    pub fn abort_all(&self) {
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            if let Some(mut state) = session.state.try_lock() {
                abort_open(&mut state);
            }
        }
    }

    /// Aborts transactions past their lifetime, and says which. One whose statement is running is left for the next
    /// look.
    pub(crate) fn end_overdue_transactions(&self, now: Instant, lifetime: Duration) -> Vec<(SessionId, i64)> {
        let mut ended = Vec::new();
        let sessions: Vec<Arc<Session>> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            let Some(mut state) = session.state.try_lock() else { continue };
            if let (Some(number), Progress::Open(Some(transaction))) = (state.number, &state.progress)
                && now.duration_since(transaction.started) > lifetime
            {
                state.progress = Progress::Aborted;
                ended.push((session.id, number));
            }
        }
        ended
    }

    /// Notes the sessions that a former run left on disk: they have as long as any to come back.
    pub(crate) fn note_stored(&self, snapshot: &Snapshot, now: Instant) -> Result<()> {
        let mut stored = Vec::new();
        for record in layout::entries_of(snapshot, layout::SESSION_TAG) {
            if let Ok(id) = record?.0[1..].try_into() {
                stored.push(SessionId(id));
            }
        }
        *self.stored.lock() = Some((now, stored));
        Ok(())
    }

    /// Forgets sessions past their idle time, and says which were in memory. One whose operation still runs is not idle,
    /// however long ago it began. [`Sessions::forget_stored`] removes their records.
    pub(crate) fn forget_idle(&self, now: Instant) -> Vec<SessionId> {
        let idle: Vec<Arc<Session>> = {
            let sessions = self.sessions.lock();
            let overdue =
                |session: &Session| now.duration_since(*session.last_use.lock()) > limits::SESSION_IDLE;
            sessions.values().filter(|session| overdue(session)).cloned().collect()
        };
        let mut gone = Vec::new();
        for session in idle {
            let id = session.id;
            match session.state.try_lock() {
                Some(mut state) => abort_open(&mut state),
                None => continue,
            }
            if self.remove_unused(session) {
                gone.push(id);
            }
        }
        gone
    }

    /// The sessions of a former run that have not come back in time.
    pub(crate) fn take_stored_idle(&self, now: Instant) -> Vec<SessionId> {
        let overdue =
            |stored: &mut (Instant, Vec<SessionId>)| now.duration_since(stored.0) > limits::SESSION_IDLE;
        self.stored.lock().take_if(overdue).map(|(_, stored)| stored).unwrap_or_default()
    }

    /// Removes the records of sessions, unless they are in use again.
    pub(crate) fn forget_stored(&self, store: &Store, gone: &[SessionId]) -> Result<()> {
        for gone in gone.chunks(FORGOTTEN_PER_COMMIT) {
            let mut transaction = store.begin();
            // Queued under the lock: whoever comes back is behind it, and its records are too.
            let sessions = self.sessions.lock();
            for id in gone.iter().filter(|id| !sessions.contains_key(id)) {
                transaction.delete(Space::Meta, &layout::session_key(*id));
            }
            let queued = transaction.enqueue(Durability::Relaxed)?;
            drop(sessions);
            queued.wait()?;
        }
        Ok(())
    }
}

/// Small enough that a client who opens a session does not notice.
const FORGOTTEN_PER_COMMIT: usize = 1000;

fn abort_open(state: &mut State) {
    if matches!(state.progress, Progress::Open(_)) {
        state.progress = Progress::Aborted;
    }
}
