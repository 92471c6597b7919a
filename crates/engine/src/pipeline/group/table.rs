//! The groups held in memory: a hash table over arenas.
//!
//! Keys, ids and states of all groups lie in three vectors. A row whose key is known costs a look into
//! the index and no memory. Slots of the index hold a group's number and a part of its hash, so most
//! misses are seen without touching the key.
//!
//! Invariant: groups are numbered in the order of their first appearance.

use std::hash::{BuildHasher, RandomState};

use kilim_bson::{RawDocument, Writer};
use kilim_query::accumulator::State;

/// No group.
const EMPTY: u32 = u32::MAX;

pub(super) struct Table {
    seed: u64,
    /// Open addressing with linear probing; a power of two of slots.
    slots: Vec<Slot>,
    hashes: Vec<u64>,
    keys: Arena,
    /// Documents of one field, `_id`.
    ids: Arena,
    /// Those of one group side by side.
    states: Vec<State>,
}

#[derive(Clone, Copy)]
struct Slot {
    group: u32,
    hash: u32,
}

/// Byte strings one behind the other.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Table {
    pub(super) fn new() -> Table {
        Table {
            // Not to be foreseen, so that nobody can choose keys that collide.
            seed: RandomState::new().hash_one(0u8),
            slots: vec![Slot { group: EMPTY, hash: 0 }; 64],
            hashes: Vec::new(),
            keys: Arena::default(),
            ids: Arena::default(),
            states: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    /// The group of a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.group == EMPTY {
                return None;
            }
            if slot.hash == (hash >> 32) as u32 && self.keys.get(slot.group as usize) == key {
                return Some(slot.group as usize);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a group that is not there yet: its id is written by `id`, its states follow. What it costs in bytes.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        id: impl FnOnce(&mut Writer) -> kilim_error::Result<()>,
    ) -> kilim_error::Result<usize> {
        let mut writer = Writer::after(std::mem::take(&mut self.ids.bytes));
        id(&mut writer)?;
        self.ids.bytes = writer.finish_bytes();
        self.ids.ends.push(self.ids.bytes.len());
        self.keys.bytes.extend_from_slice(key);
        self.keys.ends.push(self.keys.bytes.len());
        let group = self.hashes.len();
        self.hashes.push(hash);
        // At most three quarters full.
        if self.hashes.len() * 4 > self.slots.len() * 3 {
            self.grow();
        } else {
            self.place(group);
        }
        Ok(key.len() + self.ids.get(group).len() + 2 * size_of::<Slot>() + 3 * size_of::<u64>())
    }

    fn place(&mut self, group: usize) {
        let hash = self.hashes[group];
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].group != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = Slot { group: group as u32, hash: (hash >> 32) as u32 };
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, Slot { group: EMPTY, hash: 0 });
        (0..self.hashes.len()).for_each(|group| self.place(group));
    }

    pub(super) fn push_state(&mut self, state: State) {
        self.states.push(state);
    }

    /// The states of a group, of which each has `width`.
    #[inline]
    pub(super) fn states_mut(&mut self, group: usize, width: usize) -> &mut [State] {
        &mut self.states[group * width..(group + 1) * width]
    }

    /// Those of all groups, one group behind the other.
    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    pub(super) fn key(&self, group: usize) -> &[u8] {
        self.keys.get(group)
    }

    /// `{_id: …}`.
    pub(super) fn id(&self, group: usize) -> RawDocument<'_> {
        // SAFETY: the bytes were written by a `Writer`, whole documents one behind the other.
        unsafe { RawDocument::from_validated(self.ids.get(group)) }
    }

    /// Takes all states out, in the order of the groups.
    pub(super) fn take_states(&mut self) -> std::vec::IntoIter<State> {
        std::mem::take(&mut self.states).into_iter()
    }

    /// Forgets all groups, and keeps the memory for others.
    pub(super) fn clear(&mut self) {
        self.slots.fill(Slot { group: EMPTY, hash: 0 });
        self.hashes.clear();
        self.keys.clear();
        self.ids.clear();
        self.states.clear();
    }
}

/// Eight bytes at a time, each folded in by a wide multiplication.
#[inline]
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let fold = |left: u64, right: u64| {
        let product = u128::from(left) * u128::from(right);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = seed ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        state = fold(state ^ word, FACTOR ^ seed.rotate_left(32) | 1);
    }
    let rest = words.remainder().iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    fold(fold(state ^ rest, FACTOR ^ seed.rotate_left(32) | 1), FACTOR)
}

#[cfg(test)]
mod tests {
    use kilim_bson::RawValue;

    use super::*;

    #[test]
    fn groups_are_found_again() {
        let mut table = Table::new();
        for round in 0..2 {
            for number in 0..10_000i32 {
                let key = format!("key {}", number % 5_000);
                let hash = table.hash(key.as_bytes());
                match table.find(hash, key.as_bytes()) {
                    Some(group) => assert_eq!(group as i32, number % 5_000),
                    None => {
                        let id = |out: &mut Writer| {
                            out.append("_id", RawValue::Int32(number));
                            Ok(())
                        };
                        table.insert(hash, key.as_bytes(), id).expect("inserted");
                    }
                }
            }
            assert_eq!(table.len(), 5_000, "round {round}");
            assert!(matches!(table.id(4_321).get("_id"), Some(RawValue::Int32(4_321))));
            assert_eq!(table.key(4_321), b"key 4321");
            table.clear();
            assert_eq!(table.len(), 0);
        }
    }
}
