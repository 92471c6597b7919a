//! The change log: what commits say of themselves, in commit order.
//!
//! A transaction gathers events, which are bytes to this crate. In the commit queue each gets its position: a commit time, and
//! inside a multi-statement transaction, whose events share one time, an index. They are rows of [`Space::Log`] in the batch
//! of their commit, so a commit is in the log if and only if it is in the data.
//!
//! Most events end with a document that their commit stores as a record. Such a document has a row of its own behind that of its
//! event, whose value is the record's: in memory both are one piece of bytes, and the journal has it once. Trees have it
//! twice, because the record changes and the event does not.
//!
//! The log is divided into segments, each a tree of its own: the first four bytes of a key are the segment's number. Rows are
//! only ever appended to the newest segment, and the oldest segments are dropped whole. Each segment has a row in `Meta`
//! that says after which commit it begins.
//!
//! Invariant: every commit after [`Log::begins`] that has events is in the log, whole, and positions ascend with keys. A row of a
//! document follows that of its event, and both are of one batch.

use crate::backend::{Backend, prefix_end};
use crate::clock::CommitTime;
use crate::environment::Environment;
use crate::format;
use crate::snapshot::{Direction, Scan, Snapshot};
use crate::space::{Bytes, STAMP_BYTES, Space, Write};
use crate::store::{Shared, Store};
use crate::transaction::Durability;
use kilim_error::{Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::{Bound, RangeInclusive};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How much of the log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Events are kept for about this time.
    pub age_max: Duration,
    /// The log takes about this much space; by default a twentieth of the disk and at most a gigabyte, in memory 64 MB.
    pub bytes_max: Option<u64>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { age_max: Duration::from_secs(7 * 24 * 3600), bytes_max: None }
    }
}

/// A part of the file system, within bounds, as MongoDB's oplog has one.
const DISK_PART: u64 = 20;
const DISK_BYTES: RangeInclusive<u64> = 16 << 20..=1 << 30;
const MEMORY_BYTES: u64 = 64 << 20;

/// The log is dropped by segments, so it may be this part longer than asked for.
const SEGMENTS: u32 = 16;

/// What an event costs beside its bytes.
const ROW_BYTES: u64 = 32;

/// Where an event lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    pub time: CommitTime,
    /// Among the events of one transaction; otherwise 0.
    pub index: u32,
}

/// How far the log reaches, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStats {
    /// Every later commit is in the log.
    pub begins: CommitTime,
    pub segments: usize,
    pub bytes: u64,
    pub bytes_max: u64,
    pub age_max: Duration,
}

/// An event of a commit that is about to be published.
#[derive(Debug, Clone, Copy)]
pub struct LogEvent<'e> {
    pub position: LogPosition,
    /// The event, without the document that has a row of its own.
    pub head: &'e Bytes,
    document: Option<&'e Bytes>,
}

impl<'e> LogEvent<'e> {
    /// One that is a single row.
    pub fn whole(position: LogPosition, head: &'e Bytes) -> LogEvent<'e> {
        LogEvent { position, head, document: None }
    }

    /// All of it.
    pub fn to_bytes(&self) -> Bytes {
        self.document.map_or_else(|| self.head.clone(), |document| Bytes::fused(self.head, document))
    }
}

/// An event that a transaction brings to the commit queue.
pub(crate) struct Event {
    /// All of it, or what comes before its document.
    pub(crate) head: Bytes,
    /// Which of the transaction's writes is the record that holds the document.
    pub(crate) record: Option<usize>,
}

/// Hears of events as their commits are published. It is called by the thread that commits, so it returns at once.
pub trait LogListener: Send + Sync {
    /// Whether anybody wants to hear. While it says no, nothing is told.
    fn is_listening(&self) -> bool;

    /// The events of all commits after `before` up to `last`, which are about to be published. A `before` that is not the
    /// `last` of the call before says that what lies between was not told.
    fn take(&self, before: CommitTime, last: CommitTime, events: &mut dyn Iterator<Item = LogEvent<'_>>);

    /// Commits up to this time are published and on disk, so that their events may be shown.
    fn show(&self, until: CommitTime);
}

pub(crate) struct Log {
    /// None if nothing is logged.
    kept: Option<Kept>,
    state: Mutex<State>,
    listener: OnceLock<Arc<dyn LogListener>>,
}

struct Kept {
    age_max: Duration,
    bytes_max: u64,
}

struct State {
    /// The oldest first.
    segments: VecDeque<Segment>,
    /// Whether the newest segment takes more rows.
    open: bool,
    /// Where the log begins while it has no segment.
    empty_after: CommitTime,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    number: u32,
    /// All of its events are later.
    after: CommitTime,
    bytes: u64,
}

impl Log {
    /// The log of a store that is being opened. Without options one that is there has to go ([`Shared::has_log_to_end`]).
    pub(crate) fn open(backend: &dyn Backend, disk_bytes: u64, options: Option<LogOptions>) -> Result<Log> {
        let mut segments = VecDeque::new();
        let end = prefix_end(&format::LOG_PREFIX);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows =
            backend.view().rows(Space::Meta, Bound::Included(&format::LOG_PREFIX), upper, Direction::Forward);
        for row in rows {
            let (key, value) = row?;
            let number = key[format::LOG_PREFIX.len()..].first_chunk::<4>();
            let (Some(number), Some(after)) = (number, value.first_chunk::<8>()) else {
                return Err(format::corrupt("a segment of the change log is described by other bytes"));
            };
            let bytes = backend.tree_bytes(Space::Log, *number);
            let (number, after) = (u32::from_be_bytes(*number), CommitTime::from_le_bytes(*after));
            segments.push_back(Segment { number, after, bytes });
        }
        let open = !segments.is_empty();
        let bytes_max = match backend.is_volatile() {
            true => MEMORY_BYTES,
            false => (disk_bytes / DISK_PART).clamp(*DISK_BYTES.start(), *DISK_BYTES.end()),
        };
        let kept = options.map(|options| Kept {
            age_max: options.age_max,
            bytes_max: options.bytes_max.unwrap_or(bytes_max).max(1 << 20),
        });
        let state = State { segments, open, empty_after: backend.commit_time() };
        Ok(Log { kept, state: Mutex::new(state), listener: OnceLock::new() })
    }

    fn listener(&self) -> Option<&Arc<dyn LogListener>> {
        self.listener.get().filter(|listener| listener.is_listening())
    }

    /// Publishes commits, and tells whoever listens of their events. The commit queue's leader alone does so.
    pub(crate) fn tell<'w>(
        &self,
        shared: &Shared,
        rows: impl Iterator<Item = &'w Write>,
        last: CommitTime,
        publish: impl FnOnce(),
    ) {
        let told = self.listener();
        if let Some(listener) = told {
            let mut rows = rows.filter(|row| row.space == Space::Log).peekable();
            let mut events = std::iter::from_fn(|| {
                let row = rows.next()?;
                let document = rows.next_if(|next| is_document_of(&next.key, &row.key));
                let (position, head) = (decode_key(&row.key).ok()?, row.value.as_ref()?);
                Some(LogEvent { position, head, document: document.and_then(|row| row.value.as_ref()) })
            });
            listener.take(shared.published().commit_time, last, &mut events);
        }
        publish();
        // A listener says that it listens before it looks at what is published, so one of the two sees the other.
        fence(Ordering::SeqCst);
        if let Some(listener) = self.listener() {
            if told.is_none() {
                listener.take(last, last, &mut std::iter::empty());
            }
            listener.show(shared.durable_time());
        }
    }

    /// Tells whoever listens that commits have come to be on disk.
    pub(crate) fn tell_shown(&self, until: CommitTime) {
        self.listener().into_iter().for_each(|listener| listener.show(until));
    }

    pub(crate) fn is_on(&self) -> bool {
        self.kept.is_some()
    }

    /// Every commit after this one is in the log.
    pub(crate) fn begins(&self) -> CommitTime {
        let state = self.state.lock();
        state.segments.front().map_or(state.empty_after, |first| first.after)
    }

    /// The rows of a commit's events. `stored` are the commit's other rows, as they will be published. `before` is the commit time
    /// given out before, `first` the time of the first event. `one_time` says that all events have that time.
    pub(crate) fn place(
        &self,
        environment: &Environment,
        events: Vec<Event>,
        stored: &[Write],
        before: CommitTime,
        first: CommitTime,
        one_time: bool,
    ) -> Vec<Write> {
        let Some(kept) = self.kept.as_ref().filter(|_| !events.is_empty()) else { return Vec::new() };
        let wall = environment.since_epoch().as_millis() as u64;
        let mut state = self.state.lock();
        let mut writes = Vec::with_capacity(2 * events.len() + 1);
        let newest = state.segments.back().copied().filter(|_| state.open);
        let number = match newest.filter(|newest| kept.has_room(newest, first)) {
            Some(newest) => newest.number,
            None => {
                // Numbers are never used twice, because a dropped tree's rows are passed over: they follow the clock, which
                // never goes back.
                let least = state.segments.back().map_or(0, |last| last.number + 1);
                let number = ((first >> 32) as u32).max(least);
                // Commits without events may have come before the first segment: the log has all there was to say of them.
                let after = if state.segments.is_empty() { state.empty_after } else { before };
                state.segments.push_back(Segment { number, after, bytes: 0 });
                state.open = true;
                let value = Bytes::from(after.to_le_bytes());
                writes.push(Write { space: Space::Meta, key: format::log_key(number), value: Some(value) });
                number
            }
        };
        let mut bytes = 0;
        for (at, Event { mut head, record }) in events.into_iter().enumerate() {
            crate::queue::fill(&mut head, wall.to_le_bytes());
            let at = at as u32;
            let position = match one_time {
                true => LogPosition { time: first, index: at },
                false => LogPosition { time: first + u64::from(at), index: 0 },
            };
            let key = key(number, position);
            let record = record.and_then(|record| stored[record].value.as_ref());
            let document = record.map(|record| (document_key(&key), record.slice(STAMP_BYTES..)));
            bytes += head.len() as u64 + ROW_BYTES;
            writes.push(Write { space: Space::Log, key, value: Some(head) });
            if let Some((key, document)) = document {
                bytes += document.len() as u64 + ROW_BYTES;
                writes.push(Write { space: Space::Log, key, value: Some(document) });
            }
        }
        if let Some(newest) = state.segments.back_mut() {
            newest.bytes += bytes;
        }
        writes
    }

    /// A batch was not written. Its first row may have been that of a segment, so the next commit begins another one.
    pub(crate) fn end_segment(&self) {
        self.state.lock().open = false;
    }

    /// Forgets segments that are too old or too many; gives their numbers. Where the disk has no room for data
    /// (`is_full`), the log has none either. A segment stays until all of it is published: a batch that both begins and drops
    /// it would have its row twice.
    fn take_old(&self, now: CommitTime, published: CommitTime, is_full: bool) -> Vec<u32> {
        let mut state = self.state.lock();
        let Some(kept) = &self.kept else {
            state.open = false;
            return state.segments.drain(..).map(|segment| segment.number).collect();
        };
        let horizon = now.saturating_sub(kept.age_max.as_secs() << 32);
        let mut bytes: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
        let mut old = Vec::new();
        while state.segments.len() > 2
            && state.segments[1].after <= published
            && (is_full || state.segments[1].after < horizon || bytes > kept.bytes_max)
            && let Some(gone) = state.segments.pop_front()
        {
            bytes -= gone.bytes;
            old.push(gone.number);
        }
        old
    }

    /// The first key that an event at or after a position can have.
    fn key_from(&self, from: LogPosition) -> Bytes {
        let state = self.state.lock();
        let behind = state.segments.partition_point(|segment| segment.after < from.time);
        let segment = state.segments.get(behind.saturating_sub(1));
        key(segment.map_or(0, |segment| segment.number), from)
    }
}

impl Kept {
    fn has_room(&self, segment: &Segment, now: CommitTime) -> bool {
        let age = (now >> 32).saturating_sub(segment.after >> 32);
        segment.bytes < self.bytes_max / u64::from(SEGMENTS)
            && age <= (self.age_max / SEGMENTS).as_secs().max(1)
    }
}

/// On disk: the segment's number, the commit time and the index, big-endian.
fn key(segment: u32, position: LogPosition) -> Bytes {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&segment.to_be_bytes());
    key[4..12].copy_from_slice(&position.time.to_be_bytes());
    key[12..].copy_from_slice(&position.index.to_be_bytes());
    Bytes::from(key)
}

/// On disk: what the key of a document has behind that of its event.
const DOCUMENT: u8 = 1;
const KEY_BYTES: usize = 16;

fn document_key(event: &[u8]) -> Bytes {
    Bytes::fused(event, &[DOCUMENT])
}

fn is_document_of(key: &[u8], event: &[u8]) -> bool {
    key.strip_prefix(event) == Some(&[DOCUMENT])
}

/// Whether a row is the document of an event.
pub(crate) fn is_document(write: &Write) -> bool {
    write.space == Space::Log && write.key.len() > KEY_BYTES
}

fn decode_key(key: &[u8]) -> Result<LogPosition> {
    let key: &[u8; KEY_BYTES] =
        key.try_into().map_err(|_| format::corrupt("an event of the change log has no position"))?;
    Ok(LogPosition {
        time: u64::from_be_bytes(*key[4..].first_chunk().unwrap_or(&[0; 8])),
        index: u32::from_be_bytes(*key[12..].first_chunk().unwrap_or(&[0; 4])),
    })
}

/// Events of the log in order, from some position on. It owns its view.
pub struct LogRows(Peekable<Scan>);

impl Iterator for LogRows {
    type Item = Result<(LogPosition, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, head) = match self.0.next()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        let is_ours =
            |row: &Result<(Bytes, Bytes)>| row.as_ref().is_ok_and(|(next, _)| is_document_of(next, &key));
        // An event is not shown without its document: what follows may be a damaged page that has it.
        if let Some(Err(_)) = self.0.peek() {
            return self
                .0
                .next()
                .map(|damage| damage.and_then(|(key, value)| Ok((decode_key(&key)?, value))));
        }
        let bytes = match self.0.next_if(is_ours) {
            Some(Ok((_, document))) => Bytes::fused(&head, &document),
            _ => head,
        };
        Some(decode_key(&key).map(|position| (position, bytes)))
    }
}

impl Store {
    /// Whether commits are logged.
    pub fn logs(&self) -> bool {
        self.shared().log.is_on()
    }

    /// Every commit after this one is in the log.
    pub fn log_begins(&self) -> CommitTime {
        self.shared().log.begins()
    }

    /// The time of the newest published commit that is on disk with all before it.
    pub fn durable_time(&self) -> CommitTime {
        self.shared().durable_time()
    }

    /// Has somebody hear of events as their commits are published. The first one stays.
    pub fn tell_of_events(&self, listener: Arc<dyn LogListener>) {
        let _ = self.shared().log.listener.set(listener);
    }

    /// The events of a snapshot from a position on. Whether the log reaches back so far is to be asked afterwards, by
    /// [`Store::log_begins`]: what is dropped later is still in the snapshot.
    pub fn log_from(&self, snapshot: &Snapshot, from: LogPosition) -> LogRows {
        let lower = self.shared().log.key_from(from);
        let rows = snapshot.scan(Space::Log, Bound::Included(&lower), Bound::Unbounded, Direction::Forward);
        LogRows(rows.peekable())
    }

    /// Drops what is older than the log reaches back, or more than it may hold, and all but the newest where the disk is
    /// so full that writes are refused. Called now and then.
    pub fn trim_log(&self) -> Result<()> {
        let shared = self.shared();
        let is_full = shared.free_space.check().is_err();
        let published = shared.published().commit_time;
        let old = shared.log.take_old(crate::clock::wall(&shared.environment), published, is_full);
        if old.is_empty() {
            return Ok(());
        }
        if is_full {
            tracing::warn!("the disk is full: the older part of the change log is dropped");
        }
        let mut transaction = self.begin();
        for number in old {
            transaction.reclaim(Space::Log, &number.to_be_bytes());
            transaction.delete_own(format::log_key(number));
        }
        transaction.commit(Durability::Relaxed).map(|_| ())
    }

    /// None if nothing is logged.
    pub fn log_stats(&self) -> Option<LogStats> {
        let log = &self.shared().log;
        let kept = log.kept.as_ref()?;
        let begins = log.begins();
        let state = log.state.lock();
        Some(LogStats {
            begins,
            segments: state.segments.len(),
            bytes: state.segments.iter().map(|segment| segment.bytes).sum(),
            bytes_max: kept.bytes_max,
            age_max: kept.age_max,
        })
    }
}

impl Shared {
    /// Whether there is a log although the store was opened without one.
    pub(crate) fn has_log_to_end(&self) -> bool {
        !self.log.is_on() && !self.log.state.lock().segments.is_empty()
    }
}

/// An event must have room for the time of day.
pub(crate) fn check_event(event: &[u8]) -> Result<()> {
    match event.len() >= 8 {
        true => Ok(()),
        false => Err(Error::bug("an event of the change log has no place for its time")),
    }
}
