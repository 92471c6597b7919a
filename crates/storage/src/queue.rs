//! The commit queue: many transactions, one batch, one sync.
//!
//! A transaction that ends enters the queue under its lock. There it gets the next commit time, its stamps are
//! filled in, its counter deltas become absolute values, and its writes join the `pending` maps, through which
//! later writers see them. Only then do its write intents end: a hot document is updated by one writer after
//! the other without waiting for the disk.
//!
//! A thread that waits for its ticket leads if nobody does. The leader takes all that is queued, merges it into
//! one backend batch with one sync, publishes the new state for readers, removes the writes from `pending`,
//! hands the lead to a thread whose write set came in meanwhile, and wakes its followers. A lone writer leads
//! itself and never changes threads. Tickets that nobody waits for are left to the background thread.
//!
//! Each waiter sleeps on its own condition variable, so that finishing a batch wakes exactly its members and
//! the next leader, also with 64 writers.
//!
//! Invariants: commit times follow queue order, and batches take the queue from its front, so published states
//! have no holes. A write is in `pending` until it is published, and published before it leaves `pending`: a
//! writer that finds nothing in `pending` finds the newest version in what is published then. Whenever members
//! wait, somebody leads or has been woken to lead.

use crate::clock::{self, CommitTime};
use crate::counter::{Counter, CounterChange};
use crate::log::Event;
use crate::snapshot::Published;
use crate::space::{Bytes, KeyMap, Space, Write};
use crate::store::Shared;
use crate::sync::{Condvar, Mutex, MutexGuard};
use foldhash::fast::RandomState;
use kilim_error::{Error, Result, StorageError};
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Of `Meta`, what was written last is remembered up to this: states that every write of a group reads again.
const RECENT_BYTES_MAX: usize = 8 << 20;

/// What a remembered key costs beside its bytes.
const ENTRY_BYTES: usize = 64;

/// A batch takes no more members beyond this: it bounds what one sync waits for and what a journal grows by.
const BATCH_BYTES_MAX: usize = 16 << 20;

pub(crate) struct CommitQueue {
    state: Mutex<State>,
    /// Wakes a thread that claimed the lead for something other than a batch.
    baton: Condvar,
}

struct State {
    /// The newest commit time given out.
    last: CommitTime,
    queued: VecDeque<Arc<Member>>,
    /// The last member of the batch that a leader took and has not published.
    under_way: Option<Arc<Member>>,
    leading: bool,
    /// Threads waiting to lead something other than a batch; they go first.
    claims: usize,
    pending: [KeyMap<Pending>; Space::COUNT],
    /// Keys of `Meta` that were published lately, with their newest values: a writer finds them without asking the
    /// backend. Everything that is published in `Meta` was queued, so none is outdated.
    recent: KeyMap<Option<Bytes>>,
    recent_bytes: usize,
    /// The newest value of each counter touched so far, queued ones included.
    counters: KeyMap<Counter>,
    poisoned: Option<String>,
    /// How many batches found no room. A transaction that is older than the last of them may have seen what was
    /// never committed.
    refusals: u64,
    batches: u64,
    commits: u64,
}

/// A queued write's value and commit time.
pub(crate) struct Pending {
    pub(crate) commit_time: CommitTime,
    pub(crate) value: Option<Bytes>,
}

/// A write set in the queue.
struct Member {
    commit_time: CommitTime,
    writes: Vec<Write>,
    /// Rows of the change log, which nobody looks up among what is queued.
    log: Vec<Write>,
    counters: Vec<(Bytes, Counter)>,
    bytes: usize,
    durable: bool,
    reclaims: bool,
    /// Some key was in `pending` already, so a batch may hold it twice.
    overlaps: bool,
    stage: Mutex<Stage>,
    wake: Condvar,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Queued or in a batch; its thread has not asked yet.
    Queued,
    /// Its thread sleeps.
    Waiting,
    /// Its ticket was dropped.
    Forsaken,
    /// Its thread has been given the lead.
    Leads,
    Done(Result<(), StorageError>),
}

/// What a transaction brings to the queue.
pub(crate) struct WriteSet {
    pub(crate) writes: Vec<Write>,
    pub(crate) counters: Arc<Vec<CounterChange>>,
    /// For the change log.
    pub(crate) events: Vec<Event>,
    /// All events have one commit time. Otherwise each has its own.
    pub(crate) one_time: bool,
    pub(crate) bytes: usize,
    pub(crate) durable: bool,
    pub(crate) reclaims: bool,
    /// [`CommitQueue::refusals`] when the transaction began.
    pub(crate) refusals: u64,
}

/// A commit on its way. Dropped, it is committed all the same.
#[must_use = "a commit is acknowledged by waiting for its ticket"]
pub struct Ticket {
    /// The time of the commit; of the newest published one if there was nothing to commit.
    pub commit_time: CommitTime,
    queued: Option<(Arc<Shared>, Arc<Member>)>,
}

impl Ticket {
    pub(crate) fn empty(commit_time: CommitTime) -> Ticket {
        Ticket { commit_time, queued: None }
    }

    /// Returns once the commit is published, and on disk if that was asked for.
    pub fn wait(mut self) -> Result<CommitTime> {
        if let Some((shared, member)) = self.queued.take() {
            shared.queue.lead_until_done(&shared, &member)?;
        }
        Ok(self.commit_time)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some((shared, member)) = self.queued.take() {
            shared.queue.forsake(&shared, &member);
        }
    }
}

impl CommitQueue {
    pub(crate) fn new(last: CommitTime) -> CommitQueue {
        CommitQueue {
            state: Mutex::new(State {
                last,
                queued: VecDeque::new(),
                under_way: None,
                leading: false,
                claims: 0,
                pending: Default::default(),
                recent: KeyMap::default(),
                recent_bytes: 0,
                counters: KeyMap::default(),
                poisoned: None,
                refusals: 0,
                batches: 0,
                commits: 0,
            }),
            baton: Condvar::new(),
        }
    }

    pub(crate) fn enqueue(&self, shared: &Arc<Shared>, mut set: WriteSet) -> Result<Ticket> {
        let mut state = self.state.lock();
        state.check_healthy()?;
        if set.refusals != state.refusals {
            return Err(Error::Conflict("a commit that the transaction may have seen found no room on disk"));
        }
        let counters = state.apply_counters(shared, &set.counters)?;
        let first = clock::next(&shared.environment, state.last);
        let times = if set.one_time { 1 } else { set.events.len().max(1) };
        let commit_time = first + (times as u64 - 1);
        let before = std::mem::replace(&mut state.last, commit_time);
        let mut overlaps = false;
        for write in &mut set.writes {
            stamp(write, commit_time);
            let pending = Pending { commit_time, value: write.value.clone() };
            overlaps |= state.pending[write.space.at()].insert(write.key.clone(), pending).is_some();
        }
        // Behind the stamps, since an event shares its document with a record.
        let log = shared.log.place(&shared.environment, set.events, &set.writes, before, first, set.one_time);
        let member = Arc::new(Member {
            commit_time,
            writes: set.writes,
            log,
            counters,
            bytes: set.bytes,
            durable: set.durable,
            reclaims: set.reclaims,
            overlaps,
            stage: Mutex::new(Stage::Queued),
            wake: Condvar::new(),
        });
        state.queued.push_back(member.clone());
        drop(state);
        Ok(Ticket { commit_time, queued: Some((shared.clone(), member)) })
    }

    /// Looks a key up among the writes that are not yet published.
    pub(crate) fn pending<T>(
        &self,
        space: Space,
        key: &[u8],
        found: impl FnOnce(&Pending) -> T,
    ) -> Option<T> {
        self.state.lock().pending[space.at()].get(key).map(found)
    }

    /// The newest version of a key, if it is queued, or is in `Meta` and was published lately.
    pub(crate) fn newest(&self, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        let state = self.state.lock();
        match state.pending[space.at()].get(key) {
            Some(pending) => Some(pending.value.clone()),
            None if space == Space::Meta => state.recent.get(key).cloned(),
            None => None,
        }
    }

    /// Commits everything that is queued; returns once it and any batch under way are published.
    pub(crate) fn drain(&self, shared: &Shared) -> Result<()> {
        let last = {
            let state = self.state.lock();
            state.queued.back().or(state.under_way.as_ref()).cloned()
        };
        match last {
            Some(last) => self.lead_until_done(shared, &last),
            None => Ok(()),
        }
    }

    /// Runs something that publishes a state by itself, with no batch under way.
    pub(crate) fn exclusively(&self, shared: &Shared, publish: impl FnOnce() -> Result<()>) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.claims += 1;
            while state.leading {
                self.baton.wait(&mut state);
            }
            state.claims -= 1;
            state.leading = true;
            if let Err(error) = state.check_healthy() {
                self.hand_over(shared, state);
                return Err(error);
            }
        }
        let result = publish();
        let mut state = self.state.lock();
        if let Err(Error::Storage(error)) = &result
            && !is_passing(error)
        {
            state.poison(error);
        }
        self.hand_over(shared, state);
        result
    }

    /// Forgets what was written lately to `Meta`, after a load that went past the queue.
    pub(crate) fn forget_recent(&self) {
        let mut state = self.state.lock();
        state.recent.clear();
        state.recent_bytes = 0;
    }

    /// How many batches found no room so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.state.lock().refusals
    }

    /// Refuses all writes from now on.
    pub(crate) fn poison(&self, error: &StorageError) {
        self.state.lock().poison(error);
        self.baton.notify_one();
    }

    pub(crate) fn check_healthy(&self) -> Result<()> {
        self.state.lock().check_healthy()
    }

    /// Commits and batches so far.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.commits, state.batches)
    }

    /// Leads batches, or sleeps while others lead, until the member is done.
    fn lead_until_done(&self, shared: &Shared, member: &Member) -> Result<()> {
        loop {
            let mut state = self.state.lock();
            let mut stage = member.stage.lock();
            match &*stage {
                Stage::Done(result) => return result.clone().map_err(Into::into),
                Stage::Leads => {}
                // One that has left the queue is about to be told how it ended: there is nothing to lead for it.
                _ if state.leading || state.claims > 0 || !state.has_queued(member) => {
                    // Set under the queue's lock, so that a leader who hands over sees it.
                    *stage = Stage::Waiting;
                    drop(state);
                    while matches!(*stage, Stage::Waiting) {
                        member.wake.wait(&mut stage);
                    }
                    continue;
                }
                _ => state.leading = true,
            }
            *stage = Stage::Queued;
            drop(stage);
            self.lead(shared, state);
        }
    }

    /// Commits one batch. The caller holds the lead; it is handed over on return.
    fn lead(&self, shared: &Shared, mut state: MutexGuard<State>) {
        let members = state.take_batch();
        state.under_way = members.last().cloned();
        drop(state);
        // What others have written, too: it is nobody's that leads. A panic must not keep the lead for ever.
        let applied =
            kilim_memory::shared(|| std::panic::catch_unwind(AssertUnwindSafe(|| apply(shared, &members))));
        let result =
            applied.unwrap_or_else(|_| Err(StorageError::Io("a commit ended in a panic".to_owned())));
        let mut state = self.state.lock();
        state.under_way = None;
        match &result {
            Ok(()) => {
                state.batches += 1;
                state.commits += members.len() as u64;
                for member in &members {
                    state.forget(member);
                }
            }
            Err(error) if is_passing(error) => state.refuse(error),
            Err(error) => state.poison(error),
        }
        if result.is_err() {
            shared.log.end_segment();
        }
        self.hand_over(shared, state);
        for member in &members {
            member.finish(result.clone());
        }
        if result.is_ok() && !members.iter().any(|member| member.durable) {
            shared.background.sync_soon(&shared.environment);
        }
        if members.iter().any(|member| member.reclaims) {
            shared.background.reclaim_soon();
        }
    }

    /// Gives the lead to a claim, to the first member that waits, or to nobody.
    fn hand_over(&self, shared: &Shared, mut state: MutexGuard<State>) {
        if state.claims > 0 {
            state.leading = false;
            self.baton.notify_one();
            return;
        }
        let mut forsaken = false;
        for member in &state.queued {
            let mut stage = member.stage.lock();
            match &*stage {
                Stage::Waiting => {
                    *stage = Stage::Leads;
                    member.wake.notify_one();
                    return;
                }
                Stage::Forsaken => forsaken = true,
                _ => {}
            }
        }
        // Members whose threads have yet to ask will lead themselves.
        state.leading = false;
        drop(state);
        if forsaken && !shared.background.drain_soon() {
            let _ = self.drain(shared);
        }
    }

    fn forsake(&self, shared: &Shared, member: &Member) {
        let state = self.state.lock();
        let mut stage = member.stage.lock();
        if matches!(*stage, Stage::Queued) {
            *stage = Stage::Forsaken;
            drop(stage);
            let nobody_leads = !state.leading;
            drop(state);
            if nobody_leads && !shared.background.drain_soon() {
                // The last handle is gone and its threads with it. Its members are told of an error; nobody
                // is left to tell here.
                let _ = self.drain(shared);
            }
        }
    }
}

impl State {
    fn check_healthy(&self) -> Result<()> {
        match &self.poisoned {
            Some(why) => Err(StorageError::Poisoned(why.clone()).into()),
            None => Ok(()),
        }
    }

    fn apply_counters(
        &mut self,
        shared: &Shared,
        changes: &[CounterChange],
    ) -> Result<Vec<(Bytes, Counter)>> {
        let mut absolute = Vec::with_capacity(changes.len());
        for change in changes {
            let before = match self.counters.get(&change.key) {
                Some(counter) => *counter,
                // Read once per counter and run; nothing queued touches it, or it would be known.
                None => match shared.published().view.get(Space::Meta, &change.key)? {
                    Some(stored) => Counter::decode(&stored)?,
                    None => Counter::default(),
                },
            };
            absolute.push((change.key.clone(), change.apply(before)));
        }
        // After the last read that can fail, so that a refused commit leaves no trace.
        for (key, counter) in &absolute {
            self.counters.insert(key.clone(), *counter);
        }
        Ok(absolute)
    }

    /// Whether no leader has taken the member; the queue is in order of commit times.
    fn has_queued(&self, member: &Member) -> bool {
        self.queued.front().is_some_and(|first| first.commit_time <= member.commit_time)
    }

    fn take_batch(&mut self) -> Vec<Arc<Member>> {
        let mut bytes = 0;
        let fitting = self.queued.iter().take_while(|member| {
            let fits = bytes <= BATCH_BYTES_MAX;
            bytes += member.bytes;
            fits
        });
        let count = fitting.count();
        self.queued.drain(..count).collect()
    }

    fn forget(&mut self, member: &Member) {
        for write in &member.writes {
            let pending = &mut self.pending[write.space.at()];
            match pending.remove_entry(&*write.key) {
                // A newer one, which stays: that is rare.
                Some((key, newest)) if newest.commit_time != member.commit_time => {
                    pending.insert(key, newest);
                }
                Some(_) if write.space == Space::Meta => self.remember(write),
                _ => {}
            }
        }
    }

    fn remember(&mut self, write: &Write) {
        let bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, |value| value.len());
        if self.recent_bytes > RECENT_BYTES_MAX {
            self.recent.clear();
            self.recent_bytes = 0;
        }
        self.recent_bytes += bytes(&write.value);
        match self.recent.insert(write.key.clone(), write.value.clone()) {
            Some(replaced) => self.recent_bytes -= bytes(&replaced),
            None => self.recent_bytes += write.key.len() + ENTRY_BYTES,
        }
    }

    fn poison(&mut self, error: &StorageError) {
        let why = match error {
            StorageError::Poisoned(why) => why.clone(),
            other => other.to_string(),
        };
        tracing::error!(%why, "writes are refused from now on");
        let poisoned = self.poisoned.get_or_insert(why).clone();
        self.fail_queued(&StorageError::Poisoned(poisoned));
    }

    /// A batch was not written and left no trace. What is queued behind it may rest on it, so all of it fails;
    /// later transactions may succeed.
    fn refuse(&mut self, error: &StorageError) {
        self.refusals += 1;
        self.fail_queued(error);
    }

    fn fail_queued(&mut self, error: &StorageError) {
        for member in self.queued.drain(..) {
            // One that was just given the lead will find itself done instead.
            let led = member.finish(Err(error.clone()));
            self.leading &= !led;
        }
        self.pending = Default::default();
        self.recent.clear();
        self.recent_bytes = 0;
        self.counters.clear();
    }
}

impl Member {
    /// True if its thread had been given the lead and not yet taken it.
    fn finish(&self, result: Result<(), StorageError>) -> bool {
        let mut stage = self.stage.lock();
        let led = matches!(*stage, Stage::Leads);
        *stage = Stage::Done(result);
        // Its own thread and one that drains the queue may both sleep here.
        self.wake.notify_all();
        led
    }
}

/// Whether a failed write left no trace and a later one may succeed.
fn is_passing(error: &StorageError) -> bool {
    matches!(error, StorageError::OutOfSpace { .. })
}

/// Writes a batch and publishes the state after it.
fn apply(shared: &Shared, members: &[Arc<Member>]) -> Result<(), StorageError> {
    let Some(last) = members.last() else { return Ok(()) };
    let sync = members.iter().any(|member| member.durable);
    let own = own_writes(members);
    let log = members.iter().flat_map(|member| &member.log);
    let written = if members.len() > 1 && members.iter().any(|member| member.overlaps) {
        let newest = newest_writes(members);
        shared.apply(&mut newest.into_iter().chain(log).chain(&own), last.commit_time, sync)
    } else {
        let writes = members.iter().flat_map(|member| &member.writes);
        shared.apply(&mut writes.chain(log).chain(&own), last.commit_time, sync)
    };
    written.map_err(|error| match error {
        Error::Storage(error) => error,
        other => StorageError::Io(other.to_string()),
    })?;
    let kept = shared.published().kept.clone();
    if let Some(kept) = &kept {
        kept.end(members.iter().flat_map(|member| &member.writes), last.commit_time);
    }
    let published = Published { view: shared.backend.view(), commit_time: last.commit_time, kept };
    let log = members.iter().flat_map(|member| &member.log);
    shared.log.tell(shared, log, last.commit_time, || shared.publish(published));
    Ok(())
}

/// What the batch as a whole writes: the counters' last values.
fn own_writes(members: &[Arc<Member>]) -> Vec<Write> {
    let mut own: Vec<Write> = Vec::with_capacity(4);
    for (key, counter) in members.iter().rev().flat_map(|member| &member.counters) {
        // A batch touches few counters, so looking through them beats hashing.
        if !own.iter().any(|write| write.key == *key) {
            own.push(Write { space: Space::Meta, key: key.clone(), value: Some(counter.encode()) });
        }
    }
    own
}

/// The newest write of each key: a batch may hold a key once only.
fn newest_writes(members: &[Arc<Member>]) -> Vec<&Write> {
    let count = members.iter().map(|member| member.writes.len()).sum();
    let mut seen = HashSet::with_capacity_and_hasher(count, RandomState::default());
    let mut newest = Vec::with_capacity(count);
    for write in members.iter().rev().flat_map(|member| &member.writes) {
        if seen.insert((write.space, &*write.key)) {
            newest.push(write);
        }
    }
    newest
}

/// Fills in the commit time where the layout has a place for it.
fn stamp(write: &mut Write, commit_time: CommitTime) {
    match write.space {
        Space::Records => {
            if let Some(value) = &mut write.value {
                fill(value, commit_time.to_le_bytes());
            }
        }
        Space::Meta | Space::Index | Space::Log => {}
    }
}

pub(crate) fn fill(bytes: &mut Bytes, stamp: [u8; 8]) {
    if bytes.len() < stamp.len() {
        debug_assert!(false, "a stamped value or key begins with 8 bytes for the commit time");
        return;
    }
    let mut owned = std::mem::take(bytes);
    if let Some(mut inner) = owned.get_mut() {
        inner[..8].copy_from_slice(&stamp);
    } else {
        // A view of the transaction still holds the value.
        let mut copy = owned.to_vec();
        copy[..8].copy_from_slice(&stamp);
        owned = Bytes::from(copy);
    }
    *bytes = owned;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamping_leaves_shared_bytes_as_they_were() {
        for len in [8, 12, 500] {
            let mut bytes = Bytes::from(vec![0; len]);
            let shared = bytes.clone();
            fill(&mut bytes, 7u64.to_le_bytes());
            assert_eq!(&bytes[..8], 7u64.to_le_bytes());
            assert_eq!(&*shared, vec![0; len]);
            drop(shared);
            fill(&mut bytes, 9u64.to_le_bytes());
            assert_eq!(&bytes[..8], 9u64.to_le_bytes());
            assert_eq!(bytes.len(), len);
        }
    }
}
