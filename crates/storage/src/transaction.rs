//! A transaction: a snapshot, an overlay of writes, and write intents.
//!
//! Reads see the snapshot under the transaction's own writes. A writer that holds a key's intent reads the
//! newest version through [`Transaction::latest`], or asks [`Transaction::check_unchanged`] whether its
//! snapshot is still good. What it writes becomes visible to writers when it enters the commit queue, to
//! readers when it is published. Dropped, it leaves no trace.

use crate::clock::CommitTime;
use crate::counter::{Counter, CounterChange};
use crate::format;
use crate::intents::{Hold, Locked, TransactionId, Wait};
use crate::log::{Event, check_event};
use crate::overlay::Overlay;
use crate::queue::{Ticket, WriteSet};
use crate::snapshot::{Published, Snapshot};
use crate::space::{Bytes, STAMP_BYTES, Space, Write};
use crate::store::Shared;
use crate::tree::page::KEY_BYTES_MAX;
use kilim_error::{Error, Result};
use std::sync::Arc;

/// When a commit is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on disk.
    Durable,
    /// Once it is visible; the sync follows within 100 ms.
    Relaxed,
}

/// Reads one state and collects writes to commit at once.
pub struct Transaction {
    shared: Arc<Shared>,
    id: TransactionId,
    base: Arc<Published>,
    overlay: Overlay,
    held: Vec<(Space, Bytes)>,
    reclaims: bool,
    /// It makes less of what it writes to.
    shrinks: bool,
    /// What the change log is to say of it, in order.
    events: Vec<Told>,
    /// All events have one commit time.
    one_time: bool,
    /// What the commit queue had refused when it began.
    refusals: u64,
    /// What its operation held in memory when it began.
    memory_bytes: usize,
}

/// An event that a transaction has gathered.
struct Told {
    /// All of it, or what comes before its document.
    head: Bytes,
    document: Option<InRecord>,
}

/// A document of an event that is also a record's.
struct InRecord {
    /// The record's key.
    key: Bytes,
    /// The record as it was then: its event tells of that, also if the transaction writes it again.
    value: Bytes,
}

/// Shorter documents are copied into their events: a row of its own costs as much.
const SHARED_BYTES_MIN: usize = 512;

/// A transaction's writes at some moment.
pub struct Savepoint {
    overlay: Overlay,
    events: usize,
}

impl Transaction {
    pub(crate) fn new(shared: Arc<Shared>, id: TransactionId) -> Transaction {
        // First, so that what is refused later is known to be.
        let refusals = shared.queue.refusals();
        let base = shared.published();
        let (overlay, held) = (Overlay::default(), Vec::new());
        let memory_bytes = kilim_memory::operation_bytes();
        Transaction {
            shared,
            id,
            base,
            overlay,
            held,
            reclaims: false,
            shrinks: false,
            events: Vec::new(),
            one_time: false,
            refusals,
            memory_bytes,
        }
    }

    /// The transaction's view as of now; later writes do not change it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.base.clone(), Some(self.overlay.clone()))
    }

    /// Its own writes over the newest published state, which may be newer than its snapshot.
    pub fn newest_snapshot(&self) -> Snapshot {
        Snapshot::new(self.shared.published(), Some(self.overlay.clone()))
    }

    /// Whether it holds no key, so that it may wait for one.
    pub fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// Its writes so far, to come back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { overlay: self.overlay.clone(), events: self.events.len() }
    }

    /// Forgets what was written since. What is held stays held.
    pub fn restore(&mut self, savepoint: Savepoint) {
        self.overlay = savepoint.overlay;
        self.events.truncate(savepoint.events);
    }

    /// The newest commit that the transaction's reads include.
    pub fn base_time(&self) -> CommitTime {
        self.base.commit_time
    }

    /// Its own write, or what its snapshot holds.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match self.overlay.get(space, key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(space, key),
        }
    }

    /// Its own write, or the newest version of all: what the holder of a key's intent must read.
    pub fn latest(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match self.overlay.get(space, key) {
            Some(value) => Ok(value.clone()),
            None => self.shared.latest(space, key),
        }
    }

    /// Takes a key's write intent: the first writer wins. Taking it again is free.
    pub fn lock(&mut self, space: Space, key: &[u8], wait: Wait) -> Result<Locked> {
        self.hold(space, key, Hold::Alone, wait)
    }

    /// Takes a share in a key: nobody writes it before this transaction ends.
    pub fn share(&mut self, space: Space, key: &[u8], wait: Wait) -> Result<Locked> {
        self.hold(space, key, Hold::Shared, wait)
    }

    fn hold(&mut self, space: Space, key: &[u8], hold: Hold, wait: Wait) -> Result<Locked> {
        match self.shared.intents.acquire(self.id, space, key, hold, wait)? {
            Some(locked) => {
                self.held.push((space, Bytes::from(key)));
                Ok(locked)
            }
            None => Ok(Locked { waited: false }),
        }
    }

    /// Refuses if somebody committed the key after this transaction's snapshot. Holds only under its intent.
    pub fn check_unchanged(&self, space: Space, key: &[u8]) -> Result<()> {
        const CHANGED: Error = Error::Conflict("the key was written after the transaction began");
        let queued = self.shared.queue.pending(space, key, |pending| pending.commit_time);
        if queued.is_some_and(|commit_time| commit_time > self.base.commit_time) {
            return Err(CHANGED);
        }
        let published = self.shared.published();
        if Arc::ptr_eq(&published, &self.base) {
            return Ok(());
        }
        let newest = published.get(space, key)?;
        let unchanged = match (space, &newest) {
            (Space::Records, Some(value)) => commit_time_of(value)? <= self.base.commit_time,
            _ => newest == self.base.get(space, key)?,
        };
        if unchanged { Ok(()) } else { Err(CHANGED) }
    }

    /// Writes a key. A `Records` value begins with 8 zero bytes, where the commit puts its time.
    pub fn put(&mut self, space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.set(space, key.into(), Some(value.into()));
    }

    /// Writes a key, or deletes it.
    pub fn set(&mut self, space: Space, key: Bytes, value: Option<Bytes>) {
        debug_assert!(
            space != Space::Meta || key.first() != Some(&format::OWN),
            "a key of the storage crate"
        );
        self.overlay.set(Write { space, key, value });
    }

    /// Deletes a key, if it is there.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
        self.set(space, Bytes::from(key), None);
    }

    /// Adds to a counter. Deltas of concurrent transactions never conflict.
    pub fn add(&mut self, counter: &[u8], count: i64, bytes: i64) {
        let delta = Counter { count, bytes };
        self.overlay.change_counter(CounterChange {
            key: format::counter_key(counter),
            removed: false,
            delta,
        });
    }

    /// Sets a counter back to zero, for instance because its collection is dropped.
    pub fn reset_counter(&mut self, counter: &[u8]) {
        let delta = Counter::default();
        self.overlay.change_counter(CounterChange {
            key: format::counter_key(counter),
            removed: true,
            delta,
        });
    }

    /// Declares a prefix dead as of this commit: nobody reads or writes it afterwards, and its space is given
    /// back once no older snapshot lives. Such a commit is let through below the free-space reserve.
    pub fn reclaim(&mut self, space: Space, prefix: &[u8]) {
        let key = crate::reclaim::dead_key(space, prefix);
        self.overlay.set(Write { space: Space::Meta, key, value: Some(Bytes::default()) });
        self.reclaims = true;
    }

    /// Says that what it writes is smaller than what was there, as a bucket that has lost measurements. Such a commit is let
    /// through below the free-space reserve as deletions are.
    pub fn shrinks(&mut self) {
        self.shrinks = true;
    }

    /// Deletes a key of the storage crate's own.
    pub(crate) fn delete_own(&mut self, key: Bytes) {
        self.overlay.set(Write { space: Space::Meta, key, value: None });
    }

    /// Adds an event to what the change log says of this commit. It begins with 8 zero bytes, where the commit puts the time
    /// of day. Each event gets a commit time of its own, in order, and the commit the last of them.
    pub fn log(&mut self, event: impl Into<Bytes>) {
        self.events.push(Told { head: event.into(), document: None });
    }

    /// Adds an event that ends with a document: `head`, then `document`. If the record of this key holds just that document, behind
    /// the place for its commit time, the document is not copied.
    pub fn log_with_document(&mut self, head: &[u8], document: &[u8], record: &[u8]) {
        let stored = self.overlay.get(Space::Records, record).and_then(Option::as_ref);
        let stored = stored.filter(|stored| stored.get(STAMP_BYTES..) == Some(document));
        match stored.filter(|_| document.len() >= SHARED_BYTES_MIN).cloned() {
            Some(value) => {
                let document = Some(InRecord { key: Bytes::from(record), value });
                self.events.push(Told { head: Bytes::from(head), document });
            }
            None => self.log(Bytes::fused(head, document)),
        }
    }

    /// All of its events get one commit time.
    pub fn log_at_one_time(&mut self) {
        self.one_time = true;
    }

    pub fn is_empty(&self) -> bool {
        self.overlay.is_empty() && self.events.is_empty()
    }

    /// About how much memory the transaction's writes hold.
    pub fn overlay_bytes(&self) -> usize {
        self.overlay.bytes()
    }

    /// Enters the commit queue. From here on later writers see the writes, and the intents have ended.
    pub fn enqueue(mut self, durability: Durability) -> Result<Ticket> {
        if self.is_empty() {
            return Ok(Ticket::empty(self.shared.published().commit_time));
        }
        let stored_bytes = self.overlay.bytes();
        let (writes, counters) = std::mem::take(&mut self.overlay).into_parts();
        let events = in_their_records(std::mem::take(&mut self.events), &writes);
        events.iter().try_for_each(|event| check_event(&event.head))?;
        let bytes = stored_bytes + events.iter().map(|event| event.head.len()).sum::<usize>();
        self.shared.backend.await_room(&|| self.shared.background.keep_soon());
        if !self.reclaims {
            self.shared.backend.check_trees(&writes)?;
            match Need::of(&writes) {
                Need::Nothing => {}
                Need::Room if self.shrinks => self.shared.free_space.check_little()?,
                Need::Little => self.shared.free_space.check_little()?,
                Need::Room => {
                    self.shared.free_space.check()?;
                    self.shared.backend.check_writable()?;
                }
            }
        }
        if let Some(write) =
            writes.iter().find(|write| write.key.is_empty() || write.key.len() > KEY_BYTES_MAX)
        {
            return Err(Error::bug(format!("a key of {} bytes in {}", write.key.len(), write.space.name())));
        }
        let durable = durability == Durability::Durable;
        let (reclaims, refusals) = (self.reclaims, self.refusals);
        let one_time = self.one_time;
        let set = WriteSet { writes, counters, events, one_time, bytes, durable, reclaims, refusals };
        // What was made for the writes is the store's from here on.
        kilim_memory::set_operation_bytes(self.memory_bytes.min(kilim_memory::operation_bytes()));
        self.shared.queue.enqueue(&self.shared, set)
        // The intents end as `self` is dropped, after the queue has the writes.
    }

    pub fn commit(self, durability: Durability) -> Result<CommitTime> {
        self.enqueue(durability)?.wait()
    }
}

/// Finds the records that hold documents of events. One that was written again later holds another one by now.
fn in_their_records(events: Vec<Told>, writes: &[Write]) -> Vec<Event> {
    let mut next = 0;
    let in_record = |Told { head, document }| {
        let Some(InRecord { key, value }) = document else { return Event { head, record: None } };
        let is_here = |write: &Write| write.space == Space::Records && write.key == key;
        // Documents of one command lie in the order of their events, as a rule.
        let found = match writes.get(next) {
            Some(write) if is_here(write) => Some(next),
            _ => {
                writes.binary_search_by(|write| (write.space, &*write.key).cmp(&(Space::Records, &*key))).ok()
            }
        };
        let is_same = |at: &usize| {
            writes[*at]
                .value
                .as_ref()
                .is_some_and(|now| now.as_ptr() == value.as_ptr() && now.len() == value.len())
        };
        match found.filter(is_same) {
            Some(at) => {
                next = at + 1;
                Event { head, record: Some(at) }
            }
            None => Event { head: Bytes::fused(&head, &value[STAMP_BYTES..]), record: None },
        }
    };
    events.into_iter().map(in_record).collect()
}

/// What a commit asks of a disk that is nearly full.
enum Need {
    /// It frees more than it takes.
    Nothing,
    /// It frees something, and writes elsewhere for that, as a maintained sum does.
    Little,
    Room,
}

impl Need {
    fn of(writes: &[Write]) -> Need {
        if !writes.is_empty() && writes.iter().all(|write| write.value.is_none()) {
            return Need::Nothing;
        }
        let deletes = writes.iter().any(|write| write.space == Space::Records && write.value.is_none());
        let puts = writes.iter().any(|write| write.space != Space::Meta && write.value.is_some());
        match (deletes, puts) {
            (true, false) => Need::Nothing,
            (true, true) => Need::Little,
            (false, _) => Need::Room,
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // The first last: who stands in line for it then finds the others free.
        for (space, key) in self.held.drain(..).rev() {
            self.shared.intents.release(self.id, space, key);
        }
    }
}

fn commit_time_of(record: &[u8]) -> Result<CommitTime> {
    match record.first_chunk::<8>() {
        Some(stamp) => Ok(CommitTime::from_le_bytes(*stamp)),
        None => Err(format::corrupt("a record without a commit time")),
    }
}
