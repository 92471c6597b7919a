//! Cursors: results that outlive the command that asked for them.
//!
//! A cursor owns its executor and through it a snapshot. It is taken out of the registry while a
//! getMore runs, so two clients never pull from one at once.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Environment, Waiters};
use parking_lot::Mutex;

use crate::ids::{CollectionId, SessionId};
use crate::limits;
use crate::metrics::Counter;
use crate::namespace::Namespace;
use crate::operation::User;
use crate::operator::{ExecContext, Executor, Row, Step};
use crate::stream::{Event, Stream};
use crate::tail::Tail;
use kilim_query::text::document as shell_text;

/// An open result.
pub struct Cursor {
    pub namespace: Namespace,
    pub collection: Option<CollectionId>,
    pub session: Option<SessionId>,
    /// The connection it was opened by: whoever holds most cursors loses some first.
    pub connection: u64,
    /// The transaction it was opened in; only that one may read on.
    pub transaction: Option<i64>,
    pub source: CursorSource,
    /// Documents given so far, for explain and currentOp.
    pub returned: u64,
    /// Batches given so far.
    pub batches: u64,
    /// What did not fit into the last batch.
    held_over: Option<Document>,
    /// What it held in memory when it was last read from.
    memory_bytes: usize,
    /// What its operation held before the cursor was taken up, and what the reply takes that it was last read into:
    /// neither is the cursor's.
    others_bytes: usize,
    reply_bytes: usize,
    /// `noCursorTimeout`.
    pub immortal: bool,
    /// `awaitData`: a getMore waits a while where there is nothing to give.
    pub awaits: bool,
    /// The command that opened it.
    pub originating: Option<Arc<Document>>,
    /// The user who opened it, if he had logged in: nobody else may read on.
    pub user: Option<Arc<User>>,
    /// The version of the stable API that it was opened with; it is read on with the same.
    pub api: Option<StableApi>,
    /// What its owner must still be allowed when he reads on, for the commands to know again.
    pub claims: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a command says of version 1 of the stable API besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StableApi {
    pub strict: Option<bool>,
    pub deprecation_errors: Option<bool>,
}

/// Where a cursor's documents come from.
pub enum CursorSource {
    Executor(Box<Executor>),
    Pipeline(Box<dyn Step>),
    /// A list made beforehand: listCollections, listIndexes.
    List(std::vec::IntoIter<Document>),
    /// A capped collection, read on as documents arrive.
    Tail(Box<Tail>),
    /// Changes, as they happen.
    Stream(Box<Stream>),
}

impl CursorSource {
    /// As far as is known without further work.
    fn is_exhausted(&mut self) -> bool {
        match self {
            CursorSource::Executor(executor) => executor.is_exhausted(),
            // Whether a pipeline has more is known by asking it, which may be much work.
            CursorSource::Pipeline(_) => false,
            CursorSource::List(list) => list.as_slice().is_empty(),
            CursorSource::Tail(_) => false,
            CursorSource::Stream(stream) => stream.is_exhausted(),
        }
    }
}

/// How much one reply may hold.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    pub documents_max: usize,
    pub bytes_max: usize,
}

impl Batch {
    pub fn first(size: Option<usize>) -> Batch {
        let documents_max = size.unwrap_or(limits::FIRST_BATCH_DOCUMENTS);
        Batch { documents_max, bytes_max: limits::REPLY_BYTES_MAX }
    }

    pub fn next(size: Option<usize>) -> Batch {
        Batch {
            documents_max: size.filter(|&size| size > 0).unwrap_or(usize::MAX),
            bytes_max: limits::REPLY_BYTES_MAX,
        }
    }
}

impl Cursor {
    pub fn new(namespace: Namespace, source: CursorSource) -> Cursor {
        Cursor {
            namespace,
            collection: None,
            session: None,
            connection: 0,
            transaction: None,
            source,
            returned: 0,
            batches: 0,
            held_over: None,
            memory_bytes: 0,
            others_bytes: 0,
            reply_bytes: 0,
            immortal: false,
            awaits: false,
            originating: None,
            user: None,
            api: None,
            claims: None,
        }
    }

    /// What the operation holds for it is the cursor's from now on.
    pub fn rest(&mut self) {
        let held = kilim_memory::operation_bytes();
        self.memory_bytes = held.saturating_sub(self.others_bytes + self.reply_bytes);
        self.reply_bytes = 0;
    }

    /// What the cursor holds counts as the operation's from now on.
    pub fn go_on(&mut self) {
        self.others_bytes = kilim_memory::operation_bytes();
        kilim_memory::set_operation_bytes(self.others_bytes + self.memory_bytes);
    }

    /// Appends documents to an open array. Returns whether the cursor is exhausted.
    ///
    /// A batch always holds at least one document, however large, so a client always gets on.
    pub fn fill(&mut self, writer: &mut Writer, batch: Batch, context: &mut ExecContext<'_>) -> Result<bool> {
        // What a stream shows is known: the reply need not grow, which would copy the events that it has already.
        if let CursorSource::Stream(stream) = &self.source
            && stream.ready_len() > 0
        {
            let bytes = stream.ready_bytes(batch.documents_max).min(batch.bytes_max);
            writer.reserve(bytes + BESIDE_EVENTS_BYTES);
        }
        let filled = self.fill_rows(writer, batch, context);
        self.reply_bytes = writer.capacity();
        if let CursorSource::Stream(stream) = &mut self.source {
            stream.note_given();
        }
        filled
    }

    fn fill_rows(
        &mut self,
        writer: &mut Writer,
        batch: Batch,
        context: &mut ExecContext<'_>,
    ) -> Result<bool> {
        self.batches += 1;
        let start = writer.len();
        let mut count = 0;
        let fits = |writer: &Writer, document: usize| writer.len() - start + document <= batch.bytes_max;
        if count < batch.documents_max
            && let Some(document) = self.held_over.take()
        {
            writer.append_index(count, RawValue::Document(document.as_raw()));
            count += 1;
        }
        while count < batch.documents_max {
            // An event that is put off stays in the stream, whose token names the last one that was given.
            if let CursorSource::Stream(stream) = &self.source
                && count > 0
                && stream.next_bytes().is_some_and(|bytes| !fits(writer, bytes))
            {
                break;
            }
            let row = match &mut self.source {
                CursorSource::Executor(executor) => executor.next_document(context)?,
                CursorSource::Pipeline(step) => step.next(context)?,
                CursorSource::List(list) => list.next().map(Row::of),
                CursorSource::Tail(tail) => tail.next(context)?,
                CursorSource::Stream(_) => None,
            };
            let document = match &mut self.source {
                CursorSource::Stream(stream) => stream.pop().map(Event::document),
                _ => row.as_ref().map(Row::document),
            };
            let Some(document) = document else {
                self.returned += count as u64;
                return Ok(match &self.source {
                    CursorSource::Tail(tail) => !tail.has_place(),
                    CursorSource::Stream(stream) => stream.is_exhausted(),
                    _ => true,
                });
            };
            check_size(document)?;
            if count > 0 && !fits(writer, document.as_bytes().len()) {
                self.held_over = Some(document.to_document());
                break;
            }
            writer.append_index(count, RawValue::Document(document));
            count += 1;
        }
        self.returned += count as u64;
        Ok(self.held_over.is_none() && self.source.is_exhausted())
    }
}

/// What the reply to a getMore has behind its events: tokens and times, about.
const BESIDE_EVENTS_BYTES: usize = 512;

/// Pipelines make documents that are larger than any that can be stored.
pub(crate) fn check_size(document: RawDocument<'_>) -> Result<()> {
    const MAX: usize = limits::DOCUMENT_BYTES_MAX + limits::DOCUMENT_BYTES_SLACK;
    let size = document.as_bytes().len();
    if size <= MAX {
        return Ok(());
    }
    let first: Document = document.iter().take(1).map(|(name, value)| (name, value.to_value())).collect();
    let first = shell_text(first.as_raw());
    let first = first.trim_start_matches("{ ").trim_end_matches(" }");
    Err(Error::user(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {MAX}(16MB) First element: {first}"
        ),
    ))
}

/// All open cursors.
pub struct Cursors {
    open: Mutex<HashMap<i64, Slot>>,
    /// How many may be open.
    max: usize,
    /// Woken when one is killed, since its reader may be waiting for a commit.
    waiters: Arc<Waiters>,
    environment: Environment,
    tally: Tally,
}

/// What became of cursors so far.
#[derive(Debug, Default)]
pub struct Tally {
    pub opened: Counter,
    /// Of those that have ended.
    pub more_than_one_batch: Counter,
    pub timed_out: Counter,
    /// How many lived about how long, by [`LIFESPANS`].
    pub lifespans: [Counter; LIFESPANS.len()],
}

/// Below how many seconds a cursor's life counts, and what it is called then, as on MongoDB.
pub const LIFESPANS: [(&str, u64); 7] = [
    ("lessThan1Second", 1),
    ("lessThan5Seconds", 5),
    ("lessThan15Seconds", 15),
    ("lessThan30Seconds", 30),
    ("lessThan1Minute", 60),
    ("lessThan10Minutes", 600),
    ("greaterThanOrEqual10Minutes", u64::MAX),
];

impl Tally {
    /// Notes the end of a cursor that was open until now.
    fn note_end(&self, slot: &Slot, now: Instant) {
        let (opened, batches) = match slot {
            Slot::Idle { cursor, opened, .. } => (*opened, cursor.batches),
            // One more was being read.
            Slot::InUse { opened, told, .. } => (*opened, told.batches + 1),
        };
        self.more_than_one_batch.add(u64::from(batches > 1));
        let seconds = now.saturating_duration_since(opened).as_secs();
        let class = LIFESPANS.iter().position(|(_, below)| seconds < *below).unwrap_or(LIFESPANS.len() - 1);
        self.lifespans[class].add(1);
    }
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors::with_limit(limits::CURSORS_MAX)
    }
}

/// Kept in place while a getMore runs, so that killCursors finds it.
enum Slot {
    Idle { cursor: Box<Cursor>, opened: Instant, since: Instant },
    InUse { owner: Owner, user: Option<Arc<User>>, opened: Instant, told: Told, end: End },
}

/// How a cursor that is in use will end when it is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It will not.
    Open,
    /// With what it belongs to: the batch at hand is still given.
    Closed,
    /// By a client's word, which the reader is told.
    Killed,
}

/// What became of a cursor that was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBack {
    Kept,
    Closed,
    Killed,
}

/// A cursor that nobody reads from at the moment, for currentOp.
pub struct IdleCursor {
    pub id: i64,
    pub namespace: Namespace,
    pub session: Option<SessionId>,
    pub user: Option<Arc<User>>,
    pub opened: Instant,
    pub told: Told,
}

/// What currentOp tells of a cursor. Of one that is in use, as it was when it was taken.
#[derive(Clone)]
pub struct Told {
    pub originating: Option<Arc<Document>>,
    pub last_use: Instant,
    pub returned: u64,
    pub batches: u64,
    pub immortal: bool,
    pub tailable: bool,
    pub awaits: bool,
}

impl Told {
    fn of(cursor: &Cursor, last_use: Instant) -> Told {
        Told {
            originating: cursor.originating.clone(),
            last_use,
            returned: cursor.returned,
            batches: cursor.batches,
            immortal: cursor.immortal,
            tailable: matches!(cursor.source, CursorSource::Tail(_) | CursorSource::Stream(_)),
            awaits: cursor.awaits,
        }
    }
}

/// How many cursors are open.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OpenCursors {
    pub total: usize,
    /// Of these a batch is being read.
    pub pinned: usize,
    /// These are not closed when they have been left alone for long.
    pub immortal: usize,
}

/// What a cursor ends with.
#[derive(Clone, Copy)]
struct Owner {
    collection: Option<CollectionId>,
    session: Option<SessionId>,
    transaction: Option<i64>,
}

impl Owner {
    fn of(cursor: &Cursor) -> Owner {
        Owner { collection: cursor.collection, session: cursor.session, transaction: cursor.transaction }
    }
}

impl Cursors {
    pub fn with_limit(max: usize) -> Cursors {
        Cursors {
            open: Mutex::default(),
            max,
            waiters: Arc::default(),
            environment: Environment::default(),
            tally: Tally::default(),
        }
    }

    /// None yet; readers that wait for commits are woken through `waiters`.
    pub fn new(waiters: Arc<Waiters>, environment: Environment) -> Cursors {
        Cursors { waiters, environment, ..Cursors::default() }
    }

    /// Registers a cursor and gives its id: never zero, which means "exhausted", and hard to guess.
    ///
    /// Where too many are open, the connection that opened most of them loses the ones it has left alone longest, so
    /// that one client cannot end the reads of the others. Its next getMore finds no cursor, as after a timeout.
    pub fn open(&self, mut cursor: Cursor) -> Result<i64> {
        cursor.rest();
        // Dropped behind the lock: an executor may hold much.
        let _closed;
        let mut open = self.open.lock();
        if open.len() >= self.max {
            _closed = self.close_of_greediest(&mut open, (self.max / 100).max(1));
            if open.len() >= self.max {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!("too many open cursors: {}; close some, or read them to the end", open.len()),
                ));
            }
        }
        loop {
            let id = (self.environment.random() >> 1) as i64;
            if id != 0 && !open.contains_key(&id) {
                let now = self.environment.now();
                open.insert(id, Slot::Idle { cursor: Box::new(cursor), opened: now, since: now });
                self.tally.opened.add(1);
                return Ok(id);
            }
        }
    }

    /// Takes a cursor out to read from it; give it back with [`Cursors::put_back`] or it is gone.
    pub fn take(&self, id: i64) -> Result<Box<Cursor>> {
        let mut open = self.open.lock();
        let slot = open.get_mut(&id).ok_or_else(|| not_found(id))?;
        let in_use = match slot {
            Slot::Idle { cursor, opened, .. } => {
                let (owner, user) = (Owner::of(cursor), cursor.user.clone());
                let told = Told::of(cursor, self.environment.now());
                Slot::InUse { owner, user, opened: *opened, told, end: End::Open }
            }
            Slot::InUse { .. } => {
                return Err(Error::user(ErrorCode::CursorInUse, format!("cursor id {id} is already in use")));
            }
        };
        match std::mem::replace(slot, in_use) {
            Slot::Idle { mut cursor, .. } => {
                cursor.go_on();
                Ok(cursor)
            }
            Slot::InUse { .. } => Err(Error::bug("a cursor was taken twice")),
        }
    }

    pub fn put_back(&self, id: i64, mut cursor: Box<Cursor>) -> PutBack {
        cursor.rest();
        let mut open = self.open.lock();
        match open.get_mut(&id) {
            Some(Slot::InUse { end: End::Killed, .. }) => {
                self.remove(&mut open, id);
                PutBack::Killed
            }
            Some(Slot::InUse { end: End::Closed, .. }) | None => {
                self.remove(&mut open, id);
                PutBack::Closed
            }
            Some(slot) => {
                let (Slot::Idle { opened, .. } | Slot::InUse { opened, .. }) = *slot;
                *slot = Slot::Idle { cursor, opened, since: self.environment.now() };
                PutBack::Kept
            }
        }
    }

    /// Whose a cursor is, if there is such a cursor: a user's, or nobody's in particular.
    pub fn user_of(&self, id: i64) -> Option<Option<Arc<User>>> {
        Some(match self.open.lock().get(&id)? {
            Slot::Idle { cursor, .. } => cursor.user.clone(),
            Slot::InUse { user, .. } => user.clone(),
        })
    }

    /// Whether a cursor that is in use was killed meanwhile.
    pub fn is_killed(&self, id: i64) -> bool {
        matches!(self.open.lock().get(&id), Some(Slot::InUse { end: End::Killed, .. }))
    }

    /// Forgets a cursor that was taken and is exhausted.
    pub fn forget(&self, id: i64) {
        self.remove(&mut self.open.lock(), id);
    }

    fn remove(&self, open: &mut HashMap<i64, Slot>, id: i64) -> Option<Slot> {
        let removed = open.remove(&id)?;
        self.tally.note_end(&removed, self.environment.now());
        Some(removed)
    }

    /// Whether there was one to close.
    pub fn kill(&self, id: i64) -> bool {
        let mut open = self.open.lock();
        match open.get_mut(&id) {
            Some(Slot::InUse { end, .. }) => {
                *end = End::Killed;
                drop(open);
                self.waiters.wake();
                true
            }
            Some(Slot::Idle { .. }) => {
                self.remove(&mut open, id);
                true
            }
            None => false,
        }
    }

    /// The cursors that nobody reads from, the oldest first.
    pub fn list_idle(&self) -> Vec<IdleCursor> {
        let open = self.open.lock();
        let idle = open.iter().filter_map(|(&id, slot)| match slot {
            Slot::Idle { cursor, opened, since } => Some(IdleCursor {
                id,
                namespace: cursor.namespace.clone(),
                session: cursor.session,
                user: cursor.user.clone(),
                opened: *opened,
                told: Told::of(cursor, *since),
            }),
            Slot::InUse { .. } => None,
        });
        let mut idle: Vec<IdleCursor> = idle.collect();
        idle.sort_by_key(|cursor| cursor.opened);
        idle
    }

    /// When a cursor was opened that somebody reads from, and what is told of it.
    pub fn in_use(&self, id: i64) -> Option<(Instant, Told)> {
        match self.open.lock().get(&id)? {
            Slot::InUse { opened, told, .. } => Some((*opened, told.clone())),
            Slot::Idle { .. } => None,
        }
    }

    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub fn counts(&self) -> OpenCursors {
        let open = self.open.lock();
        let mut counts = OpenCursors { total: open.len(), ..OpenCursors::default() };
        for slot in open.values() {
            let (is_pinned, is_immortal) = match slot {
                Slot::Idle { cursor, .. } => (false, cursor.immortal),
                Slot::InUse { told, .. } => (true, told.immortal),
            };
            counts.pinned += usize::from(is_pinned);
            counts.immortal += usize::from(is_immortal);
        }
        counts
    }

    pub fn close_idle(&self, now: Instant, idle: Duration) {
        let closed = self.close(|slot| match slot {
            Slot::Idle { cursor, since, .. } => !cursor.immortal && now.duration_since(*since) >= idle,
            Slot::InUse { .. } => false,
        });
        self.tally.timed_out.add(closed as u64);
    }

    /// Closes cursors that hold much, the largest first, until so many bytes are free. Their next getMore finds no cursor,
    /// as after a timeout. Gives how many were closed.
    pub fn close_largest(&self, bytes: usize) -> usize {
        let mut open = self.open.lock();
        let mut held: Vec<(usize, i64)> = open
            .iter()
            .filter_map(|(&id, slot)| match slot {
                Slot::Idle { cursor, .. } => Some((cursor.memory_bytes, id)),
                Slot::InUse { .. } => None,
            })
            .filter(|(held, _)| *held > kilim_memory::SPARED_BYTES)
            .collect();
        held.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
        let (mut closed, mut freed) = (Vec::new(), 0);
        for (held, id) in held {
            if freed >= bytes {
                break;
            }
            freed += held;
            closed.extend(self.remove(&mut open, id));
        }
        // Dropped behind the lock: they hold much.
        drop(open);
        closed.len()
    }

    pub fn close_of_session(&self, session: SessionId) {
        self.close_of(|owner| owner.session == Some(session));
    }

    pub fn close_of_collection(&self, collection: CollectionId) {
        self.close_of(|owner| owner.collection == Some(collection));
    }

    pub fn close_of_transaction(&self, session: SessionId, number: i64) {
        self.close_of(|owner| owner.session == Some(session) && owner.transaction == Some(number));
    }

    pub fn clear(&self) {
        self.open.lock().clear();
    }

    fn close_of(&self, ends: impl Fn(Owner) -> bool) {
        let _ = self.close(|slot| match slot {
            Slot::Idle { cursor, .. } => ends(Owner::of(cursor)),
            Slot::InUse { owner, .. } => ends(*owner),
        });
    }

    /// Closes some; one in use ends when it is put back. Gives how many are closed.
    fn close(&self, ends: impl Fn(&Slot) -> bool) -> usize {
        // Dropped outside the lock: an executor may hold much.
        let mut closed = Vec::new();
        let mut open = self.open.lock();
        let ids: Vec<i64> = open.iter().filter(|(_, slot)| ends(slot)).map(|(&id, _)| id).collect();
        for id in ids {
            match open.get_mut(&id) {
                Some(Slot::InUse { end, .. }) if *end == End::Open => *end = End::Closed,
                Some(Slot::InUse { .. }) => {}
                _ => closed.extend(self.remove(&mut open, id)),
            }
        }
        drop(open);
        closed.len()
    }

    /// Closes idle cursors of the connection that has most, longest idle first, and gives them back.
    ///
    /// Several at once, because finding them looks at all that are open. Cursors that a client asked never to time out
    /// stay, and so do those that are being read.
    fn close_of_greediest(&self, open: &mut HashMap<i64, Slot>, count: usize) -> Vec<Slot> {
        let idle = |slot: &Slot| match slot {
            Slot::Idle { cursor, since, .. } if !cursor.immortal => Some((cursor.connection, *since)),
            _ => None,
        };
        let mut held: HashMap<u64, usize> = HashMap::new();
        for (connection, _) in open.values().filter_map(idle) {
            *held.entry(connection).or_default() += 1;
        }
        let Some((&greediest, _)) = held.iter().max_by_key(|(_, count)| **count) else { return Vec::new() };
        let mut oldest: Vec<(Instant, i64)> = open
            .iter()
            .filter_map(|(&id, slot)| {
                idle(slot).filter(|(by, _)| *by == greediest).map(|(_, since)| (since, id))
            })
            .collect();
        oldest.sort_unstable();
        oldest.truncate(count);
        oldest.iter().filter_map(|(_, id)| self.remove(open, *id)).collect()
    }
}

fn not_found(id: i64) -> Error {
    Error::user(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursors({})", self.count())
    }
}
