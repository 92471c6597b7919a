//! Runs of neighbouring records, kept decoded above the backend.
//!
//! An LSM tree finds a record by asking memtables, filters, index blocks and data blocks, and walks records
//! by merging all of its tables: a microsecond or two a lookup, half a microsecond a step. That is most of
//! what a collection scan costs. A run remembers the outcome: the rows whose keys differ in the last byte
//! only, so up to 256 records that follow each other in insertion order. Scans leave runs behind, and so do
//! lookups that keep coming back to one place.
//!
//! A run is valid for every snapshot since its records were last written. Writes end it before the state
//! with those writes is published, and remember the time, so that a reader of an older snapshot cannot put
//! an outdated run in place afterwards.
//!
//! Invariant: a run that is found for a snapshot holds exactly the backend's rows of that snapshot.

use crate::backend::Rows;
use crate::clock::CommitTime;
use crate::snapshot::{Direction, Published};
use crate::space::{Bytes, Space, Write};
use kilim_error::Result;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Only keys of this length are kept in runs: a collection's and a record's id.
const KEY_BYTES: usize = 12;

/// What the keys of a run have in common.
type Prefix = [u8; KEY_BYTES - 1];

/// Locks are taken for nanoseconds; this many keep 64 readers out of each other's way.
const SHARDS: usize = 16;

/// Lookups in one place, without a write between them, that make it worth a run.
const HOT: u8 = 16;

/// A run of large documents would push out hundreds of others.
const RUN_BYTES_MAX: usize = 2 << 20;

/// What a row costs beside its bytes.
const ROW_OVERHEAD: usize = size_of::<(u8, Bytes)>() + 16;

/// Places remembered for their last write, in one shard, before the oldest are lumped together.
const SLOTS_MAX: usize = 1 << 16;

pub(crate) struct Runs {
    shards: [Mutex<Shard>; SHARDS],
    shard_bytes_max: usize,
}

#[derive(Default)]
struct Shard {
    slots: HashMap<Prefix, Slot>,
    /// Runs in the order in which they are looked at for eviction.
    order: VecDeque<Prefix>,
    bytes: usize,
    /// What is not in `slots` was last written at this time or before.
    floor: CommitTime,
}

#[derive(Default)]
struct Slot {
    modified: CommitTime,
    heat: u8,
    used: bool,
    run: Option<Arc<Run>>,
}

/// Rows by the last byte of their key.
pub(crate) struct Run {
    rows: Vec<(u8, Bytes)>,
    bytes: usize,
}

/// What is known of a key without asking the backend.
pub(crate) enum Known {
    Row(Option<Bytes>),
    /// Nothing, and it is asked for often: load the run.
    Hot,
    Nothing,
}

impl Runs {
    pub(crate) fn new(bytes_max: u64) -> Runs {
        let shard_bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / SHARDS;
        Runs { shards: Default::default(), shard_bytes_max }
    }

    pub(crate) fn get(&self, key: &[u8], at: CommitTime) -> Known {
        let Some((prefix, last)) = split(key) else { return Known::Nothing };
        let mut shard = self.shard(&prefix).lock();
        let floor = shard.floor;
        let slot = shard.slots.entry(prefix).or_insert_with(|| Slot { modified: floor, ..Slot::default() });
        match &slot.run {
            Some(run) if at >= slot.modified => {
                slot.used = true;
                Known::Row(run.get(last))
            }
            Some(_) => Known::Nothing,
            None => {
                slot.heat = slot.heat.saturating_add(1);
                if slot.heat == HOT { Known::Hot } else { Known::Nothing }
            }
        }
    }

    fn find(&self, prefix: &Prefix, at: CommitTime) -> Option<Arc<Run>> {
        let mut shard = self.shard(prefix).lock();
        let slot = shard.slots.get_mut(prefix).filter(|slot| at >= slot.modified)?;
        slot.used = true;
        slot.run.clone()
    }

    /// Keeps what a snapshot's reader found, unless it has been written to since.
    fn offer(&self, prefix: Prefix, rows: Vec<(u8, Bytes)>, at: CommitTime) {
        let bytes = rows.iter().map(|(_, value)| value.len() + ROW_OVERHEAD).sum();
        if rows.is_empty() || bytes > RUN_BYTES_MAX.min(self.shard_bytes_max) {
            return;
        }
        let mut shard = self.shard(&prefix).lock();
        let floor = shard.floor;
        let slot = shard.slots.entry(prefix).or_insert_with(|| Slot { modified: floor, ..Slot::default() });
        if at < slot.modified || slot.run.is_some() {
            return;
        }
        slot.run = Some(Arc::new(Run { rows, bytes }));
        slot.used = false;
        shard.bytes += bytes;
        shard.order.push_back(prefix);
        shard.evict(self.shard_bytes_max);
    }

    /// Ends the runs of written records. Called before a state with these writes is published.
    pub(crate) fn end<'w>(&self, writes: impl Iterator<Item = &'w Write>, time: CommitTime) {
        let mut previous = None;
        for write in writes.filter(|write| write.space == Space::Records) {
            let Some((prefix, _)) = split(&write.key) else { continue };
            // Bulk writes go record by record through one run after the other.
            if previous.replace(prefix) == Some(prefix) {
                continue;
            }
            self.shard(&prefix).lock().end(prefix, time);
        }
    }

    /// Forgets everything, after a load that went past the commit queue.
    pub(crate) fn clear(&self, time: CommitTime) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            *shard = Shard { floor: time, ..Shard::default() };
        }
    }

    fn shard(&self, prefix: &Prefix) -> &Mutex<Shard> {
        &self.shards[usize::from(prefix[KEY_BYTES - 2]) % SHARDS]
    }
}

impl Shard {
    fn end(&mut self, prefix: Prefix, time: CommitTime) {
        let slot = self.slots.entry(prefix).or_default();
        slot.modified = time;
        slot.heat = 0;
        if let Some(run) = slot.run.take() {
            self.bytes -= run.bytes;
        }
        if self.slots.len() > SLOTS_MAX {
            let mut floor = self.floor;
            self.slots.retain(|_, slot| {
                if slot.run.is_none() {
                    floor = floor.max(slot.modified);
                }
                slot.run.is_some()
            });
            self.floor = floor;
        }
    }

    /// Gives runs up until the rest fits; one that was used since it was last looked at is spared once.
    fn evict(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(prefix) = self.order.pop_front() else { return };
            let Some(slot) = self.slots.get_mut(&prefix) else { continue };
            if std::mem::take(&mut slot.used) {
                self.order.push_back(prefix);
            } else if let Some(run) = slot.run.take() {
                slot.heat = 0;
                self.bytes -= run.bytes;
            }
        }
        // A run that ended and came back stands here twice.
        if self.order.len() > 2 * self.slots.len() + 16 {
            let slots = &self.slots;
            let mut seen = std::collections::HashSet::new();
            self.order.retain(|prefix| {
                slots.get(prefix).is_some_and(|slot| slot.run.is_some()) && seen.insert(*prefix)
            });
        }
    }
}

impl Run {
    fn get(&self, last: u8) -> Option<Bytes> {
        let at = self.rows.binary_search_by_key(&last, |(last, _)| *last).ok()?;
        Some(self.rows[at].1.clone())
    }
}

fn split(key: &[u8]) -> Option<(Prefix, u8)> {
    let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
    let (last, prefix) = key.split_last()?;
    Some((prefix.try_into().ok()?, *last))
}

fn join(prefix: &Prefix, last: u8) -> [u8; KEY_BYTES] {
    let mut key = [last; KEY_BYTES];
    key[..KEY_BYTES - 1].copy_from_slice(prefix);
    key
}

/// Reads the run around a key that is asked for often.
pub(crate) fn load(published: &Published, runs: &Runs, key: &[u8]) -> Result<()> {
    let Some((prefix, _)) = split(key) else { return Ok(()) };
    let (first, last) = (join(&prefix, 0), join(&prefix, u8::MAX));
    let (lower, upper) = (Bound::Included(&first[..]), Bound::Included(&last[..]));
    let mut rows = Vec::new();
    let mut bytes = 0;
    for row in published.view.rows(Space::Records, lower, upper, Direction::Forward) {
        let (key, value) = row?;
        bytes += value.len();
        if bytes > RUN_BYTES_MAX {
            return Ok(());
        }
        rows.push((key[KEY_BYTES - 1], value));
    }
    runs.offer(prefix, rows, published.commit_time);
    Ok(())
}

/// A forward scan of records: from runs where there are any, else from the backend, leaving runs behind.
pub(crate) struct RunRows {
    published: Arc<Published>,
    runs: Arc<Runs>,
    upper: Bound<Bytes>,
    from: From,
}

enum From {
    /// Nothing yet; goes on at this key.
    Key([u8; KEY_BYTES]),
    Run { prefix: Prefix, run: Arc<Run>, next: usize, end: usize },
    Backend { rows: Box<Rows>, gathered: Option<Gathered> },
    Nowhere,
}

/// The rows of a run in the making, seen from its first key on.
struct Gathered {
    prefix: Prefix,
    rows: Vec<(u8, Bytes)>,
    bytes: usize,
}

impl RunRows {
    /// `None` where the range does not begin at a record's key.
    pub(crate) fn new(
        published: &Arc<Published>,
        runs: &Arc<Runs>,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Option<RunRows> {
        let Bound::Included(key) = lower else { return None };
        let key = key.try_into().ok()?;
        let (published, runs) = (published.clone(), runs.clone());
        Some(RunRows { published, runs, upper: upper.map(Bytes::from), from: From::Key(key) })
    }

    fn upper(&self) -> Bound<&[u8]> {
        match &self.upper {
            Bound::Included(key) => Bound::Included(key),
            Bound::Excluded(key) => Bound::Excluded(key),
            Bound::Unbounded => Bound::Unbounded,
        }
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key > &upper[..],
            Bound::Excluded(upper) => key >= &upper[..],
            Bound::Unbounded => false,
        }
    }

    /// Goes on from a run, at the row of `last` or the first behind it.
    fn enter(&self, prefix: Prefix, run: Arc<Run>, last: u8) -> From {
        let next = run.rows.partition_point(|(each, _)| *each < last);
        let end = match self.ends_before(&join(&prefix, u8::MAX)) {
            true => run.rows.partition_point(|(each, _)| !self.ends_before(&join(&prefix, *each))),
            false => run.rows.len(),
        };
        From::Run { prefix, run, next, end }
    }

    /// Where to go on: a run, or the backend.
    fn seek(&self, key: [u8; KEY_BYTES]) -> From {
        if self.ends_before(&key) {
            return From::Nowhere;
        }
        let Some((prefix, last)) = split(&key) else { return From::Nowhere };
        if let Some(run) = self.runs.find(&prefix, self.published.commit_time) {
            return self.enter(prefix, run, last);
        }
        let lower = Bound::Included(&key[..]);
        let rows = self.published.view.rows(Space::Records, lower, self.upper(), Direction::Forward);
        let gathered = (last == 0).then(|| Gathered::new(prefix));
        From::Backend { rows: Box::new(rows), gathered }
    }

    /// Offers a gathered run once all of it has been seen.
    fn give(&self, gathered: Option<Gathered>, to_the_end: bool) {
        let Some(gathered) = gathered else { return };
        if !to_the_end || !self.ends_before(&join(&gathered.prefix, u8::MAX)) {
            self.runs.offer(gathered.prefix, gathered.rows, self.published.commit_time);
        }
    }
}

impl Gathered {
    fn new(prefix: Prefix) -> Gathered {
        Gathered { prefix, rows: Vec::new(), bytes: 0 }
    }
}

impl Iterator for RunRows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match &mut self.from {
                From::Nowhere => return None,
                From::Key(key) => {
                    let key = *key;
                    self.from = self.seek(key);
                }
                From::Run { prefix, run, next, end } => {
                    if *next < *end {
                        let (last, value) = &run.rows[*next];
                        *next += 1;
                        return Some(Ok((Bytes::from(join(prefix, *last)), value.clone())));
                    }
                    let cut = *end < run.rows.len();
                    self.from = match after(prefix) {
                        Some(following) if !cut => From::Key(join(&following, 0)),
                        _ => From::Nowhere,
                    };
                }
                From::Backend { rows, gathered } => {
                    let row = match rows.next() {
                        Some(Ok(row)) => row,
                        Some(Err(error)) => {
                            self.from = From::Nowhere;
                            return Some(Err(error));
                        }
                        None => {
                            let gathered = gathered.take();
                            self.give(gathered, true);
                            self.from = From::Nowhere;
                            return None;
                        }
                    };
                    let Some((prefix, last)) = split(&row.0) else { return Some(Ok(row)) };
                    if gathered.as_ref().is_none_or(|gathered| gathered.prefix != prefix) {
                        // From the middle of a run on, nothing is gathered before the next one begins.
                        let entered = gathered.is_some() || last == 0;
                        let done = gathered.take();
                        self.give(done, false);
                        if let Some(run) = self.runs.find(&prefix, self.published.commit_time) {
                            self.from = self.enter(prefix, run, last);
                            continue;
                        }
                        if let From::Backend { gathered, .. } = &mut self.from
                            && entered
                        {
                            *gathered = Some(Gathered::new(prefix));
                        }
                    }
                    if let From::Backend { gathered, .. } = &mut self.from
                        && let Some(run) = gathered
                    {
                        run.bytes += row.1.len() + ROW_OVERHEAD;
                        run.rows.push((last, row.1.clone()));
                        if run.bytes > RUN_BYTES_MAX {
                            // Too large to keep; its rest must not be taken for a whole.
                            run.rows = Vec::new();
                            run.bytes = 0;
                            *gathered = None;
                        }
                    }
                    return Some(Ok(row));
                }
            }
        }
    }
}

fn after(prefix: &Prefix) -> Option<Prefix> {
    let end = crate::backend::prefix_end(prefix)?;
    let mut following = [0; KEY_BYTES - 1];
    following[..end.len()].copy_from_slice(&end);
    Some(following)
}
