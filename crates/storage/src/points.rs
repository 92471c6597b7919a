//! Index entries that were looked up by their whole key, kept beside the backend.
//!
//! A read by `_id` begins with such a lookup. An LSM tree answers it from memtables, filters and blocks, which takes
//! a microsecond or two, most of it waiting for memory. Here it is one look at a table: a slot holds an entry's key
//! and value, as far as both are short, in one line of the processor's cache.
//!
//! An entry is valid for every snapshot since the one that it was read from, until it is written. Writes empty its
//! slot before the state with those writes is published, and leave their time behind, so that a reader of an older
//! snapshot cannot put an outdated entry in place afterwards.
//!
//! Invariant: an entry that is found for a snapshot is the backend's entry of that snapshot.

use crate::clock::CommitTime;
use crate::space::{Bytes, Space, Write};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::hash::BuildHasher;

/// Locks are taken for nanoseconds; this many keep readers out of each other's way.
const SHARDS: usize = 64;

/// A shard begins with so many slots, and doubles them as they fill.
const SLOTS_MIN: usize = 16;

/// Key and value of an entry that is kept: what is left of a line of the processor's cache. An ObjectId takes 17
/// bytes as a key, and 8 as a value.
const ENTRY_BYTES: usize = 64 - size_of::<CommitTime>() - 2;

pub(crate) struct Points {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// A power of two.
    shard_slots_max: usize,
}

#[derive(Default)]
struct Shard {
    /// None, or a power of two of them. A key has two that are neighbours.
    slots: Vec<Slot>,
    filled: usize,
    /// When one of its keys was last written, whether it is here or not.
    written: CommitTime,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    since: CommitTime,
    /// Zero where the slot is empty.
    key_bytes: u8,
    value_bytes: u8,
    /// The key, and the value behind it.
    entry: [u8; ENTRY_BYTES],
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    const EMPTY: Slot = Slot { since: 0, key_bytes: 0, value_bytes: 0, entry: [0; ENTRY_BYTES] };

    fn new(key: &[u8], value: &[u8], since: CommitTime) -> Slot {
        let mut slot =
            Slot { since, key_bytes: key.len() as u8, value_bytes: value.len() as u8, ..Slot::EMPTY };
        slot.entry[..key.len()].copy_from_slice(key);
        slot.entry[key.len()..key.len() + value.len()].copy_from_slice(value);
        slot
    }

    fn is_empty(&self) -> bool {
        self.key_bytes == 0
    }

    fn key(&self) -> &[u8] {
        &self.entry[..usize::from(self.key_bytes)]
    }

    fn value(&self) -> &[u8] {
        &self.entry[usize::from(self.key_bytes)..][..usize::from(self.value_bytes)]
    }
}

impl Points {
    pub(crate) fn new(bytes_max: u64) -> Points {
        let slots = usize::try_from(bytes_max).unwrap_or(usize::MAX) / size_of::<Slot>() / SHARDS;
        // The greatest power of two that fits.
        let shard_slots_max = if slots < SLOTS_MIN { 0 } else { 1 << slots.ilog2() };
        let shards = std::array::from_fn(|_| Mutex::default());
        Points { hasher: RandomState::default(), shards, shard_slots_max }
    }

    pub(crate) fn get(&self, key: &[u8], at: CommitTime) -> Option<Bytes> {
        let (shard, hash) = self.place(key)?;
        let shard = shard.lock();
        let slot = shard.find(key, hash).map(|place| &shard.slots[place])?;
        (at >= slot.since).then(|| Bytes::from(slot.value()))
    }

    /// Keeps what a snapshot's reader found, unless one like it has been written since.
    pub(crate) fn offer(&self, key: &[u8], value: &[u8], at: CommitTime) {
        let Some((shard, hash)) = self.place(key) else { return };
        if key.len() + value.len() > ENTRY_BYTES {
            return;
        }
        let mut shard = shard.lock();
        if at < shard.written {
            return;
        }
        shard.grow(self.shard_slots_max, |key| self.hasher.hash_one(key));
        shard.keep(Slot::new(key, value, at), hash);
    }

    /// Drops entries that were written. Called before a state with these writes is published.
    pub(crate) fn end<'w>(&self, writes: impl Iterator<Item = &'w Write>, time: CommitTime) {
        for write in writes.filter(|write| write.space == Space::Index) {
            let Some((shard, hash)) = self.place(&write.key) else { continue };
            let mut shard = shard.lock();
            shard.written = time;
            if let Some(place) = shard.find(&write.key, hash) {
                shard.slots[place] = Slot::EMPTY;
                shard.filled -= 1;
            }
        }
    }

    /// Forgets everything, after a load that went past the commit queue. The states before and after it have the same
    /// time, so that only a later one can be kept again.
    pub(crate) fn clear(&self, time: CommitTime) {
        for shard in &self.shards {
            *shard.lock() = Shard { written: time + 1, ..Shard::default() };
        }
    }

    /// Where a key belongs, if it is short enough to be kept.
    fn place(&self, key: &[u8]) -> Option<(&Mutex<Shard>, u64)> {
        if key.is_empty() || key.len() > ENTRY_BYTES || self.shard_slots_max == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        // Slots are told apart by the lower bits.
        Some((&self.shards[(hash >> 58) as usize % SHARDS], hash))
    }
}

impl Shard {
    /// The two places of a key.
    fn places(&self, hash: u64) -> [usize; 2] {
        let place = hash as usize & (self.slots.len() - 1);
        [place, place ^ 1]
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        self.places(hash).into_iter().find(|&place| self.slots[place].key() == key)
    }

    /// Puts an entry in the first of its places; what is there moves to the other one, and what is there goes.
    fn keep(&mut self, slot: Slot, hash: u64) {
        let [first, second] = self.places(hash);
        if self.slots[first].key() != slot.key() && !self.slots[first].is_empty() {
            self.filled += usize::from(self.slots[second].is_empty());
            self.slots[second] = self.slots[first];
        } else {
            self.filled += usize::from(self.slots[first].is_empty());
            if self.slots[second].key() == slot.key() {
                self.slots[second] = Slot::EMPTY;
                self.filled -= 1;
            }
        }
        self.slots[first] = slot;
    }

    /// Makes room before half of the slots are in use, up to a bound.
    fn grow(&mut self, slots_max: usize, hash: impl Fn(&[u8]) -> u64) {
        if self.slots.len() > 2 * self.filled || self.slots.len() == slots_max {
            return;
        }
        let more = vec![Slot::EMPTY; (2 * self.slots.len()).max(SLOTS_MIN)];
        self.filled = 0;
        for slot in std::mem::replace(&mut self.slots, more).into_iter().filter(|slot| !slot.is_empty()) {
            self.keep(slot, hash(slot.key()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Snapshot, Store};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, u8),
        Delete(u8),
        Get(u8),
        /// Keeps a snapshot to read from later.
        Keep,
        ReadKept(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0u8..24;
        let step = prop_oneof![
            3 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            1 => key.clone().prop_map(Step::Delete),
            6 => key.clone().prop_map(Step::Get),
            1 => Just(Step::Keep),
            4 => key.prop_map(Step::ReadKept),
        ];
        prop::collection::vec(step, 1..200)
    }

    type Model = BTreeMap<u8, u8>;

    fn check(snapshot: &Snapshot, model: &Model, key: u8) {
        let found = snapshot.get(Space::Index, &[key]).unwrap().map(|value| value[0]);
        assert_eq!(found, model.get(&key).copied());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn readers_see_what_the_backend_holds(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), Options { cache_bytes: 8 << 20, ..Options::default() }).unwrap();
            let mut model = Model::new();
            let mut kept: Option<(Snapshot, Model)> = None;
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let mut transaction = store.begin();
                        transaction.put(Space::Index, vec![key], vec![value]);
                        transaction.commit(Durability::Relaxed).unwrap();
                        model.insert(key, value);
                    }
                    Step::Delete(key) => {
                        let mut transaction = store.begin();
                        transaction.delete(Space::Index, &[key]);
                        transaction.commit(Durability::Relaxed).unwrap();
                        model.remove(&key);
                    }
                    Step::Get(key) => check(&store.snapshot(), &model, key),
                    Step::Keep => kept = Some((store.snapshot(), model.clone())),
                    Step::ReadKept(key) => {
                        if let Some((snapshot, model)) = &kept {
                            check(snapshot, model, key);
                        }
                    }
                }
            }
        }
    }

    fn write(key: &[u8]) -> Write {
        Write { space: Space::Index, key: Bytes::from(key), value: None }
    }

    #[test]
    fn an_old_reader_cannot_bring_back_what_was_overwritten() {
        let points = Points::new(1 << 20);
        points.end([&write(b"a")].into_iter(), 20);
        points.offer(b"a", b"old", 10);
        assert_eq!(points.get(b"a", 30), None);
        points.offer(b"a", b"new", 25);
        assert_eq!(points.get(b"a", 30).as_deref(), Some(b"new".as_slice()));
        assert_eq!(points.get(b"a", 15), None, "too new for an older snapshot");
        points.end([&write(b"a")].into_iter(), 40);
        assert_eq!(points.get(b"a", 30), None);
    }

    #[test]
    fn after_a_load_only_later_states_are_kept() {
        let points = Points::new(1 << 20);
        points.offer(b"a", b"before", 10);
        points.clear(10);
        points.offer(b"a", b"before", 10);
        assert_eq!(points.get(b"a", 10), None);
        points.offer(b"a", b"after", 11);
        assert_eq!(points.get(b"a", 11).as_deref(), Some(b"after".as_slice()));
    }

    #[test]
    fn memory_stays_within_its_bound_and_newer_entries_stay() {
        let bytes = SHARDS * 64 * size_of::<Slot>();
        let points = Points::new(bytes as u64);
        for number in 0..100_000u32 {
            points.offer(&number.to_be_bytes(), b"value", 1);
            assert!(points.get(&number.to_be_bytes(), 1).is_some());
        }
        for shard in &points.shards {
            let shard = shard.lock();
            assert_eq!(shard.slots.len(), 64);
            assert_eq!(shard.filled, shard.slots.iter().filter(|slot| !slot.is_empty()).count());
        }
    }

    #[test]
    fn entries_that_do_not_fit_are_left_to_the_backend() {
        let points = Points::new(1 << 20);
        for (key, value) in [(ENTRY_BYTES + 1, 0), (ENTRY_BYTES - 7, 8), (0, 8)] {
            let (key, value) = (vec![7; key], vec![7; value]);
            points.offer(&key, &value, 1);
            assert_eq!(points.get(&key, 1), None);
        }
        let (key, value) = (vec![7; ENTRY_BYTES - 8], vec![7; 8]);
        points.offer(&key, &value, 1);
        assert_eq!(points.get(&key, 1).as_deref(), Some(&value[..]));
    }
}
