//! The feed: one shared tail of the change log, for all streams.
//!
//! The commit queue hands over the events of a commit as it is published ([`LogListener`]). The feed puts each on the topics
//! that it concerns: its collection's, its database's, the deployment's. There is a topic for every scope that some stream
//! has, so what nobody listens to is dropped at once. Streams that wait sleep on their topic: a commit wakes those that it
//! concerns, once it is on disk, and nobody else. While there is no stream, a commit looks at one number.
//!
//! A topic holds the newest events in memory, so that the log is not read again for each of a thousand streams, and an
//! image that several ask for is looked up once. It is bounded; a stream that has fallen behind reads the log itself.
//!
//! Invariant: a topic holds every event of its scope later than `after`, up to the feed's `newest`.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

use kilim_bson::Document;
use kilim_error::{Error, Result};
use kilim_storage::{Bytes, CommitTime, LogEvent, LogListener, LogPosition, Waiters};
use parking_lot::Mutex;

use crate::change_log::{Kind, Record};
use crate::limits;
use crate::namespace::Namespace;

/// Whose events a stream shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Collection(Namespace),
    Database(String),
    Deployment,
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Collection(namespace) => write!(out, "{namespace}"),
            Scope::Database(database) => write!(out, "{database}"),
            Scope::Deployment => write!(out, "all databases"),
        }
    }
}

/// An event of the log. Those that come from the feed are shared by all streams.
pub(crate) struct Entry {
    pub position: LogPosition,
    pub bytes: Bytes,
    /// The document as it was when the first stream asked for it.
    found: OnceLock<Option<Document>>,
    /// What streams show of it that ask for nothing special.
    shown: OnceLock<Document>,
}

/// What an event has beside what its record has, about: a token, names, times.
const SHOWN_BESIDE_BYTES: usize = 512;

impl Entry {
    pub(crate) fn new(position: LogPosition, bytes: Bytes) -> Entry {
        Entry { position, bytes, found: OnceLock::new(), shown: OnceLock::new() }
    }

    /// The event as it is shown to streams that ask for nothing special, made for the first of them.
    pub(crate) fn show(&self, make: impl FnOnce() -> Result<Document>) -> Result<&Document> {
        if self.shown.get().is_none() {
            let _ = self.shown.set(make()?);
        }
        self.shown().ok_or_else(|| Error::bug("an event that was made is gone"))
    }

    /// The same, if it was made.
    pub(crate) fn shown(&self) -> Option<&Document> {
        self.shown.get()
    }

    /// The document of the event as it is, or was when another stream asked. A large one is looked up for each stream, since
    /// what is held counts only the event.
    pub(crate) fn found(
        &self,
        find: impl FnOnce() -> Result<Option<Document>>,
    ) -> Result<Option<Cow<'_, Document>>> {
        if self.found.get().is_none() {
            let found = find()?;
            if found.as_ref().is_some_and(|found| found.as_bytes().len() > limits::FEED_IMAGE_BYTES_MAX) {
                return Ok(found.map(Cow::Owned));
            }
            let _ = self.found.set(found);
        }
        Ok(self.found.get().and_then(Option::as_ref).map(Cow::Borrowed))
    }

    /// What it holds, with the event that is made of it.
    fn bytes_held(&self) -> usize {
        2 * self.bytes.len() + size_of::<Entry>() + SHOWN_BESIDE_BYTES
    }
}

pub struct Feed {
    /// Streams that are open.
    streams: AtomicUsize,
    /// The last commit that was taken.
    newest: AtomicU64,
    /// What all topics hold.
    bytes: AtomicUsize,
    topics: Mutex<Topics>,
    waiters: Arc<Waiters>,
}

#[derive(Default)]
struct Topics {
    deployment: Option<Arc<Topic>>,
    databases: HashMap<String, OfDatabase>,
    /// Those with events that are not on disk yet.
    fresh: Vec<Arc<Topic>>,
}

#[derive(Default)]
struct OfDatabase {
    own: Option<Arc<Topic>>,
    collections: HashMap<String, Arc<Topic>>,
}

/// The events of one scope.
struct Topic {
    /// The streams that wait for events.
    waiters: Arc<Waiters>,
    /// The newest of its events that is on disk.
    shown: AtomicU64,
    held: Mutex<Held>,
}

struct Held {
    streams: usize,
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    after: CommitTime,
    /// The newest event, whether it is held or not.
    newest: CommitTime,
    /// Times between which there was no event, those of the events before and behind. The newest are kept.
    gaps: VecDeque<(CommitTime, CommitTime)>,
    is_fresh: bool,
}

/// Shorter times without an event are not remembered.
const GAP: CommitTime = 1 << 32;
const GAPS_MAX: usize = 16;

/// A stream's place in the feed, given up with the stream.
pub struct Subscription {
    feed: Arc<Feed>,
    topic: Arc<Topic>,
    scope: Scope,
}

impl Feed {
    /// Waits in it end as others that belong to `waiters` do.
    pub(crate) fn new(waiters: Arc<Waiters>) -> Feed {
        Feed {
            streams: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            topics: Mutex::default(),
            waiters,
        }
    }

    /// Has the events of a scope held from now on.
    pub(crate) fn subscribe(self: &Arc<Feed>, scope: Scope) -> Subscription {
        let mut topics = self.topics.lock();
        let make = || {
            let newest = self.newest.load(Ordering::SeqCst);
            let held = Held {
                streams: 0,
                entries: VecDeque::new(),
                bytes: 0,
                after: newest,
                newest,
                gaps: VecDeque::new(),
                is_fresh: false,
            };
            let waiters = self.waiters.group();
            Arc::new(Topic { waiters, shown: AtomicU64::new(0), held: Mutex::new(held) })
        };
        let topic = match &scope {
            Scope::Deployment => topics.deployment.get_or_insert_with(make),
            Scope::Database(database) => {
                topics.databases.entry(database.clone()).or_default().own.get_or_insert_with(make)
            }
            Scope::Collection(Namespace { database, collection }) => {
                let database = topics.databases.entry(database.clone()).or_default();
                database.collections.entry(collection.clone()).or_insert_with(make)
            }
        };
        let topic = topic.clone();
        topic.held.lock().streams += 1;
        drop(topics);
        // Before the stream looks at what is published: see `kilim_storage::LogListener`.
        self.streams.fetch_add(1, Ordering::SeqCst);
        Subscription { feed: self.clone(), topic, scope }
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Lets go of events that streams had the time to take. Called about once a second, with the newest commit time.
    pub(crate) fn forget_old(&self, now: CommitTime) {
        let horizon = now.saturating_sub(limits::FEED_AGE.as_secs() << 32);
        let topics = self.topics.lock();
        for topic in topics.all() {
            let mut held = topic.held.lock();
            while held.entries.front().is_some_and(|entry| entry.position.time < horizon) {
                held.let_go(&self.bytes);
            }
        }
    }

    fn leave(&self, scope: &Scope, topic: &Topic) {
        let mut topics = self.topics.lock();
        self.streams.fetch_sub(1, Ordering::SeqCst);
        let mut held = topic.held.lock();
        held.streams -= 1;
        if held.streams > 0 {
            return;
        }
        while !held.entries.is_empty() {
            held.let_go(&self.bytes);
        }
        match scope {
            Scope::Deployment => topics.deployment = None,
            Scope::Database(name) => topics.of_database(name, |database| database.own = None),
            Scope::Collection(Namespace { database, collection }) => {
                topics.of_database(database, |database| drop(database.collections.remove(collection)));
            }
        }
    }
}

impl LogListener for Feed {
    fn is_listening(&self) -> bool {
        self.streams.load(Ordering::SeqCst) > 0
    }

    fn take(&self, before: CommitTime, last: CommitTime, events: &mut dyn Iterator<Item = LogEvent<'_>>) {
        let mut topics = self.topics.lock();
        let topics = &mut *topics;
        if self.newest.load(Ordering::SeqCst) != before {
            topics.begin_anew(before, &self.bytes);
        }
        let mut fresh = Vec::new();
        // Events of one collection come in rows.
        let (mut namespace, mut at) = (None, [None; 3]);
        for event in events {
            // What cannot be read is an error of the streams that meet it.
            let Ok(record) = Record::decode(event.head) else { continue };
            let mut entry = None;
            let renamed = (record.kind == Kind::Rename).then(|| record.renamed_to()).flatten();
            if namespace != Some((record.database, record.collection)) {
                at = topics.concerned(record.database, record.collection);
                namespace = Some((record.database, record.collection));
            }
            let target = renamed.iter().filter_map(|to| topics.collection(&to.database, &to.collection));
            for topic in at.into_iter().flatten().chain(target) {
                let entry =
                    entry.get_or_insert_with(|| Arc::new(Entry::new(event.position, event.to_bytes())));
                let mut held = topic.held.lock();
                held.take(entry, &self.bytes);
                if !std::mem::replace(&mut held.is_fresh, true) {
                    fresh.push(topic.clone());
                }
            }
        }
        topics.fresh.append(&mut fresh);
        self.newest.store(last, Ordering::SeqCst);
    }

    fn show(&self, until: CommitTime) {
        let mut woken = Vec::new();
        self.topics.lock().fresh.retain(|topic| {
            let mut held = topic.held.lock();
            let times = held.entries.iter().rev().map(|entry| entry.position.time);
            let newest = match held.newest <= until {
                true => Some(held.newest),
                false => times.into_iter().find(|time| *time <= until),
            };
            held.is_fresh = held.newest > until;
            if let Some(newest) = newest
                && topic.shown.fetch_max(newest, Ordering::SeqCst) < newest
            {
                woken.push(topic.clone());
            }
            held.is_fresh
        });
        // With no lock held: a stream that wakes may hold others while it looks whether its wait is over.
        woken.iter().for_each(|topic| topic.waiters.wake());
    }
}

impl Topics {
    fn all(&self) -> impl Iterator<Item = &Arc<Topic>> {
        let databases = self.databases.values();
        self.deployment.iter().chain(databases.flat_map(|one| one.own.iter().chain(one.collections.values())))
    }

    /// The topics that an event of a collection concerns.
    fn concerned(&self, database: &str, collection: &str) -> [Option<&Arc<Topic>>; 3] {
        let of = self.databases.get(database);
        let own = of.and_then(|of| of.own.as_ref());
        [self.deployment.as_ref(), own, of.and_then(|of| of.collections.get(collection))]
    }

    fn collection(&self, database: &str, collection: &str) -> Option<&Arc<Topic>> {
        self.databases.get(database)?.collections.get(collection)
    }

    fn of_database(&mut self, name: &str, change: impl FnOnce(&mut OfDatabase)) {
        if let Some(database) = self.databases.get_mut(name) {
            change(database);
            if database.own.is_none() && database.collections.is_empty() {
                self.databases.remove(name);
            }
        }
    }

    /// Commits up to this one were not told: there may have been events of any topic among them.
    fn begin_anew(&mut self, after: CommitTime, bytes: &AtomicUsize) {
        let all: Vec<Arc<Topic>> = self.all().cloned().collect();
        for topic in all {
            let mut held = topic.held.lock();
            while !held.entries.is_empty() {
                held.let_go(bytes);
            }
            (held.after, held.newest) = (after, after);
            held.gaps.clear();
            if !std::mem::replace(&mut held.is_fresh, true) {
                self.fresh.push(topic.clone());
            }
        }
    }
}

impl Held {
    fn take(&mut self, entry: &Arc<Entry>, all: &AtomicUsize) {
        let bytes = entry.bytes_held();
        if entry.position.time >= self.newest.saturating_add(GAP) {
            self.gaps.push_back((self.newest, entry.position.time));
            if self.gaps.len() > GAPS_MAX {
                self.gaps.pop_front();
            }
        }
        self.newest = entry.position.time;
        self.entries.push_back(entry.clone());
        self.bytes += bytes;
        all.fetch_add(bytes, Ordering::Relaxed);
        while self.bytes > limits::TOPIC_BYTES_MAX
            || (all.load(Ordering::Relaxed) > limits::FEED_BYTES_MAX && !self.entries.is_empty())
        {
            self.let_go(all);
        }
    }

    /// Lets go of the oldest event.
    fn let_go(&mut self, all: &AtomicUsize) {
        if let Some(entry) = self.entries.pop_front() {
            let bytes = entry.bytes_held();
            self.bytes -= bytes;
            all.fetch_sub(bytes, Ordering::Relaxed);
            self.after = self.after.max(entry.position.time);
        }
    }
}

impl Subscription {
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The events from a position on up to a time, so many at most; none if they are not all held.
    pub(crate) fn held(&self, from: LogPosition, until: CommitTime, max: usize) -> Option<Vec<Arc<Entry>>> {
        if self.feed.newest.load(Ordering::SeqCst) < until {
            return None;
        }
        let held = self.topic.held.lock();
        if from.time <= held.after {
            return None;
        }
        let first = held.entries.partition_point(|entry| entry.position < from);
        let found = held.entries.range(first..).take_while(|entry| entry.position.time <= until);
        Some(found.take(max).cloned().collect())
    }

    /// The first position from this one on that may have an event. A stream that has waited for long need not look for one
    /// in a part of the log that may be gone by now.
    pub(crate) fn first_from(&self, from: LogPosition) -> LogPosition {
        let held = self.topic.held.lock();
        let within =
            |(before, behind): &&(CommitTime, CommitTime)| (before + 1..=*behind).contains(&from.time);
        let gap = held.gaps.iter().find(within);
        gap.map_or(from, |(_, behind)| from.max(LogPosition { time: *behind, index: 0 }))
    }

    /// Waits until there is an event later than `seen` to show, until a time has come, or until `is_ended` holds.
    pub fn wait(&self, seen: CommitTime, until: Instant, is_ended: &dyn Fn() -> bool) {
        let is_over = || self.has_news(seen) || is_ended();
        self.topic.waiters.wait(until, &is_over);
    }

    /// Whether there is an event later than `seen` to show.
    pub fn has_news(&self, seen: CommitTime) -> bool {
        self.topic.shown.load(Ordering::SeqCst) > seen
    }

    /// The same without a thread: the waker is called once, when a wait would be over or ended. Whoever leaves it looks
    /// afterwards. A stream has one number and leaves one waker.
    pub fn leave_waker(&self, number: u64, waker: &Waker) {
        self.topic.waiters.leave(number, waker);
    }

    pub fn take_waker_back(&self, number: u64) {
        self.topic.waiters.take_back(number);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.leave(&self.scope, &self.topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_log::SchemaChange;

    fn record(database: &str, collection: &str) -> Bytes {
        let namespace = Namespace { database: database.to_owned(), collection: collection.to_owned() };
        let change = SchemaChange::of_database(&namespace, Kind::Create);
        Bytes::from(SchemaChange { uuid: Some([1; 16]), ..change }.record())
    }

    fn feed() -> Arc<Feed> {
        Arc::new(Feed::new(Arc::default()))
    }

    fn of_collection(name: &str) -> Scope {
        Scope::Collection(Namespace { database: "d".to_owned(), collection: name.to_owned() })
    }

    /// Tells the feed of commits of an event each, one after the other.
    fn tell(feed: &Feed, before: CommitTime, events: &[Bytes]) -> CommitTime {
        let at = |time: CommitTime| LogPosition { time, index: 0 };
        let mut positions = (before + 1..).zip(events).map(|(time, bytes)| LogEvent::whole(at(time), bytes));
        let last = before + events.len() as u64;
        feed.take(before, last, &mut positions);
        last
    }

    fn times(held: Option<Vec<Arc<Entry>>>) -> Option<Vec<CommitTime>> {
        Some(held?.iter().map(|entry| entry.position.time).collect())
    }

    const FIRST: LogPosition = LogPosition { time: 11, index: 0 };

    #[test]
    fn an_event_goes_to_the_streams_that_it_concerns() {
        let feed = feed();
        assert!(!feed.is_listening());
        let scopes =
            [of_collection("a"), of_collection("b"), Scope::Database("d".to_owned()), Scope::Deployment];
        let streams: Vec<Subscription> = scopes.into_iter().map(|scope| feed.subscribe(scope)).collect();
        let last = tell(&feed, 10, &[record("d", "a"), record("d", "b"), record("e", "a"), record("d", "c")]);
        let held: Vec<_> = streams.iter().map(|stream| times(stream.held(FIRST, last, 9)).unwrap()).collect();
        assert_eq!(held, [vec![11], vec![12], vec![11, 12, 14], vec![11, 12, 13, 14]]);
        assert_eq!(times(streams[3].held(FIRST, 12, 9)), Some(vec![11, 12]), "what is on disk");
        assert_eq!(times(streams[3].held(FIRST, last, 1)), Some(vec![11]));
        drop(streams);
        assert!(!feed.is_listening());
        assert_eq!(feed.bytes.load(Ordering::Relaxed), 0);
        assert!(feed.topics.lock().databases.is_empty());
    }

    #[test]
    fn a_stream_wakes_for_its_own_events_once_they_are_on_disk() {
        let feed = feed();
        let (a, b) = (feed.subscribe(of_collection("a")), feed.subscribe(of_collection("b")));
        // The first commit that is told of begins the topics: there may have been others before.
        feed.show(tell(&feed, 10, &[record("d", "c")]));
        let shown = |stream: &Subscription| stream.topic.shown.load(Ordering::SeqCst);
        let last = tell(&feed, 11, &[record("d", "a")]);
        assert_eq!((shown(&a), shown(&b)), (10, 10), "not on disk yet");
        feed.show(last);
        assert_eq!((shown(&a), shown(&b)), (12, 10));
        let looks = AtomicUsize::new(0);
        let is_ended = || looks.fetch_add(1, Ordering::Relaxed) > 0;
        a.wait(11, Instant::now(), &is_ended);
        assert_eq!(looks.load(Ordering::Relaxed), 0, "there is something to show");
        b.wait(11, Instant::now(), &is_ended);
        assert_eq!(looks.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_was_not_told_is_not_taken_for_nothing() {
        let feed = feed();
        let stream = feed.subscribe(of_collection("a"));
        let last = tell(&feed, 10, &[record("d", "a")]);
        assert_eq!(times(stream.held(FIRST, last, 9)), Some(vec![11]));
        assert_eq!(times(stream.held(LogPosition { time: 10, index: 0 }, last, 9)), None, "too old");
        assert_eq!(times(stream.held(FIRST, last + 1, 9)), None, "not told yet");
        // Commits 12 to 20 were not told.
        let last = tell(&feed, 20, &[record("d", "a")]);
        assert_eq!(times(stream.held(FIRST, last, 9)), None);
        assert_eq!(times(stream.held(LogPosition { time: 21, index: 0 }, last, 9)), Some(vec![21]));
        feed.show(last);
        assert_eq!(stream.topic.shown.load(Ordering::SeqCst), 21);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let feed = feed();
        let stream = feed.subscribe(of_collection("a"));
        let large = Bytes::from([&*record("d", "a"), &vec![0; limits::TOPIC_BYTES_MAX / 8]].concat());
        let last = tell(&feed, 10, &vec![large; 9]);
        assert_eq!(times(stream.held(FIRST, last, 99)), None);
        assert_eq!(times(stream.held(LogPosition { time: 17, index: 0 }, last, 99)), Some(vec![17, 18, 19]));
        assert!(feed.bytes.load(Ordering::Relaxed) <= limits::TOPIC_BYTES_MAX);
        feed.forget_old(1000 << 32);
        assert_eq!(feed.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(times(stream.held(LogPosition { time: 19, index: 0 }, last, 99)), None);
        assert_eq!(times(stream.held(LogPosition { time: 20, index: 0 }, last, 99)), Some(vec![]));
    }
}
