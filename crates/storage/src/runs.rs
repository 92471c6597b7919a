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
use crate::backend::memory::as_slice;
use crate::clock::CommitTime;
use crate::prefetch::prefetch;
use crate::snapshot::{Direction, Published};
use crate::space::{Bytes, Space, Write};
use foldhash::fast::RandomState;
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

/// How many rows before it is read a record is asked for.
const PREFETCHED: usize = 2;

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
    slots: HashMap<Prefix, Slot, RandomState>,
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
    /// What the run takes, if there is one.
    bytes: usize,
}

/// Rows by the last byte of their key.
type Run = [(u8, Bytes)];

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
                Known::Row(row_of(run, last))
            }
            Some(_) => Known::Nothing,
            None => {
                slot.heat = slot.heat.saturating_add(1);
                if slot.heat == HOT { Known::Hot } else { Known::Nothing }
            }
        }
    }

    /// A row of a run, if there is one; leaves no trace.
    pub(crate) fn peek(&self, key: &[u8], at: CommitTime) -> Option<Option<Bytes>> {
        let (prefix, last) = split(key)?;
        let shard = self.shard(&prefix).lock();
        let slot = shard.slots.get(&prefix).filter(|slot| at >= slot.modified)?;
        slot.run.as_ref().map(|run| row_of(run, last))
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
        slot.run = Some(rows.into());
        slot.bytes = bytes;
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
        if slot.run.take().is_some() {
            self.bytes -= slot.bytes;
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
            } else if slot.run.take().is_some() {
                slot.heat = 0;
                self.bytes -= slot.bytes;
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

fn row_of(run: &Run, last: u8) -> Option<Bytes> {
    let (first, _) = run.first()?;
    // Where nothing was deleted, records follow each other; where something was, this one comes before.
    let at = usize::from(last.checked_sub(*first)?);
    if let Some((found, value)) = run.get(at)
        && *found == last
    {
        return Some(value.clone());
    }
    let before = &run[..at.min(run.len())];
    let at = before.binary_search_by_key(&last, |(last, _)| *last).ok()?;
    Some(before[at].1.clone())
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
    Run {
        prefix: Prefix,
        run: Arc<Run>,
        next: usize,
        end: usize,
    },
    Backend {
        rows: Box<Rows>,
        passing: Passing,
    },
    Nowhere,
}

/// The run that a backend's rows pass through at the moment.
struct Passing {
    prefix: Prefix,
    /// Its rows so far; `None` where its first key was not seen, or where they grew too large to keep.
    rows: Option<Vec<(u8, Bytes)>>,
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

    fn ends_before(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key > &upper[..],
            Bound::Excluded(upper) => key >= &upper[..],
            Bound::Unbounded => false,
        }
    }

    /// Goes on from a run, at the row of `last` or the first behind it.
    fn enter(&self, prefix: Prefix, run: Arc<Run>, last: u8) -> From {
        let next = run.partition_point(|(each, _)| *each < last);
        let end = match self.ends_before(&join(&prefix, u8::MAX)) {
            true => run.partition_point(|(each, _)| !self.ends_before(&join(&prefix, *each))),
            false => run.len(),
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
        let rows = self.published.view.rows(Space::Records, lower, as_slice(&self.upper), Direction::Forward);
        let passing = Passing { prefix, rows: (last == 0).then(Vec::new), bytes: 0 };
        From::Backend { rows: Box::new(rows), passing }
    }

    /// Offers a run that was passed from its first key to its last.
    fn offer(&self, passed: Passing) {
        if let Some(rows) = passed.rows {
            self.runs.offer(passed.prefix, rows, self.published.commit_time);
        }
    }
}

impl Passing {
    fn push(&mut self, last: u8, value: &Bytes) {
        let Some(rows) = &mut self.rows else { return };
        self.bytes += value.len() + ROW_OVERHEAD;
        match self.bytes > RUN_BYTES_MAX {
            true => self.rows = None,
            false => rows.push((last, value.clone())),
        }
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
                        let (last, value) = &run[*next];
                        *next += 1;
                        if let Some((_, ahead)) = run.get(*next + PREFETCHED) {
                            prefetch(ahead);
                        }
                        return Some(Ok((Bytes::from(join(prefix, *last)), value.clone())));
                    }
                    let cut = *end < run.len();
                    self.from = match after(prefix) {
                        Some(following) if !cut => From::Key(join(&following, 0)),
                        _ => From::Nowhere,
                    };
                }
                From::Backend { rows, passing } => match rows.next() {
                    Some(Ok(row)) => {
                        let Some((prefix, last)) = split(&row.0) else { return Some(Ok(row)) };
                        if prefix != passing.prefix {
                            let begun = Passing { prefix, rows: Some(Vec::new()), bytes: 0 };
                            let passed = std::mem::replace(passing, begun);
                            self.offer(passed);
                            if let Some(run) = self.runs.find(&prefix, self.published.commit_time) {
                                self.from = self.enter(prefix, run, last);
                                continue;
                            }
                        }
                        if let From::Backend { passing, .. } = &mut self.from {
                            passing.push(last, &row.1);
                        }
                        return Some(Ok(row));
                    }
                    ended => {
                        let From::Backend { passing, .. } = std::mem::replace(&mut self.from, From::Nowhere)
                        else {
                            return None;
                        };
                        let whole = !self.ends_before(&join(&passing.prefix, u8::MAX));
                        if ended.is_none() && whole {
                            self.offer(passing);
                        }
                        return ended;
                    }
                },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Store};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What happens to a store; small numbers, so that runs are shared and revisited.
    #[derive(Debug, Clone)]
    enum Step {
        Put(u16, u8),
        Delete(u16),
        Get(u16),
        Scan(u16, u16),
        /// Keeps a snapshot to read from later.
        Keep,
        ReadKept(u16, u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = 0u16..1200;
        let step = prop_oneof![
            3 => (number.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            1 => number.clone().prop_map(Step::Delete),
            4 => (0u16..40).prop_map(Step::Get),
            2 => number.clone().prop_map(Step::Get),
            3 => (number.clone(), number.clone()).prop_map(|(from, to)| Step::Scan(from, to)),
            2 => Just(Step::Scan(0, 2000)),
            1 => Just(Step::Keep),
            2 => (number.clone(), number).prop_map(|(from, to)| Step::ReadKept(from, to)),
        ];
        prop::collection::vec(step, 1..150)
    }

    fn key(number: u16) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[KEY_BYTES - 2..].copy_from_slice(&number.to_be_bytes());
        key
    }

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn check(snapshot: &crate::Snapshot, model: &Model, from: u16, to: u16) {
        let (first, last) = (key(from), key(to));
        let scanned: Vec<(Vec<u8>, Vec<u8>)> = snapshot
            .scan(Space::Records, Bound::Included(&first), Bound::Excluded(&last), Direction::Forward)
            .map(|row| row.map(|(key, value)| (key.to_vec(), value[8..].to_vec())).unwrap())
            .collect();
        let expected: Vec<(Vec<u8>, Vec<u8>)> = match first <= last {
            true => model.range(first.to_vec()..last.to_vec()).map(|(k, v)| (k.clone(), v.clone())).collect(),
            false => Vec::new(),
        };
        assert_eq!(scanned, expected);
        let got = snapshot.get(Space::Records, &first).unwrap().map(|value| value[8..].to_vec());
        assert_eq!(got.as_ref(), model.get(&first[..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn readers_see_what_the_backend_holds(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), Options { cache_bytes: 8 << 20, ..Options::default() }).unwrap();
            let mut model = Model::new();
            let mut kept: Option<(crate::Snapshot, Model)> = None;
            for step in steps {
                match step {
                    Step::Put(number, value) => {
                        let mut transaction = store.begin();
                        let mut stamped = vec![0; 8];
                        stamped.push(value);
                        transaction.put(Space::Records, key(number).to_vec(), stamped);
                        transaction.commit(Durability::Relaxed).unwrap();
                        model.insert(key(number).to_vec(), vec![value]);
                    }
                    Step::Delete(number) => {
                        let mut transaction = store.begin();
                        transaction.delete(Space::Records, &key(number));
                        transaction.commit(Durability::Relaxed).unwrap();
                        model.remove(&key(number)[..]);
                    }
                    Step::Get(number) => {
                        for _ in 0..6 {
                            check(&store.snapshot(), &model, number, number);
                        }
                    }
                    Step::Scan(from, to) => check(&store.snapshot(), &model, from, to),
                    Step::Keep => kept = Some((store.snapshot(), model.clone())),
                    Step::ReadKept(from, to) => {
                        if let Some((snapshot, model)) = &kept {
                            check(snapshot, model, from, to);
                            check(snapshot, model, 0, 2000);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_old_reader_cannot_bring_back_what_was_overwritten() {
        let runs = Runs::new(1 << 20);
        let write = Write { space: Space::Records, key: Bytes::from(key(7)), value: None };
        runs.end(std::iter::once(&write), 20);
        let (prefix, last) = split(&key(7)).unwrap();
        runs.offer(prefix, vec![(last, Bytes::from(b"old".as_slice()))], 10);
        assert!(matches!(runs.get(&key(7), 30), Known::Nothing));
        runs.offer(prefix, vec![(last, Bytes::from(b"new".as_slice()))], 25);
        assert!(matches!(runs.get(&key(7), 30), Known::Row(Some(_))));
        assert!(matches!(runs.get(&key(7), 15), Known::Nothing), "too new for an older snapshot");
    }

    #[test]
    fn memory_stays_within_its_bound() {
        let runs = Runs::new(16 * 10_000);
        for number in 0..2000u16 {
            let mut prefix = [0; KEY_BYTES - 1];
            prefix[KEY_BYTES - 3..].copy_from_slice(&number.to_be_bytes());
            runs.offer(prefix, vec![(0, Bytes::from(vec![0; 1000]))], 1);
        }
        for shard in &runs.shards {
            assert!(shard.lock().bytes <= 10_000);
        }
    }
}
