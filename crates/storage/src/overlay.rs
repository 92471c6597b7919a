//! A transaction's own writes, ordered, and cheap to freeze into a view.
//!
//! Most transactions write a handful of keys, so the overlay is a sorted vector behind an `Arc`: few
//! allocations, and a view of it is a reference count. The vector is copied if it is written to while a view
//! lives, which stays cheap because past `SMALL_MAX` entries it becomes persistent ordered maps.
//!
//! Invariant: at most one entry per space and key; a view never changes.

use crate::counter::{Counter, CounterChange};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use rpds::RedBlackTreeMapSync;
use std::ops::Bound;
use std::sync::Arc;

/// Entries up to which a sorted vector beats a tree; also bounds what a copy on write costs.
const SMALL_MAX: usize = 32;

type Map = RedBlackTreeMapSync<Bytes, Option<Bytes>>;

#[derive(Clone, Default)]
pub(crate) struct Overlay {
    entries: Entries,
    counters: Arc<Vec<CounterChange>>,
    bytes: usize,
}

#[derive(Clone)]
enum Entries {
    Small(Arc<Vec<Write>>),
    Large(Box<[Map; Space::COUNT]>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Small(Arc::default())
    }
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        self.counters.is_empty() && !self.has_entries()
    }

    pub(crate) fn has_entries(&self) -> bool {
        match &self.entries {
            Entries::Small(sorted) => !sorted.is_empty(),
            Entries::Large(maps) => maps.iter().any(|map| !map.is_empty()),
        }
    }

    /// About how much memory the writes hold; overwritten values are counted once more.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The outer `None` is "not written here", the inner one "deleted here".
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<&Option<Bytes>> {
        match &self.entries {
            Entries::Small(sorted) => {
                find(sorted, space, key).ok().and_then(|at| sorted.get(at)).map(|write| &write.value)
            }
            Entries::Large(maps) => maps[space.at()].get(key),
        }
    }

    pub(crate) fn set(&mut self, write: Write) {
        self.bytes += write.bytes();
        if let Entries::Small(sorted) = &self.entries
            && sorted.len() >= SMALL_MAX
        {
            let mut maps = Box::new(<[Map; Space::COUNT]>::default());
            for Write { space, key, value } in sorted.iter() {
                maps[space.at()].insert_mut(key.clone(), value.clone());
            }
            self.entries = Entries::Large(maps);
        }
        match &mut self.entries {
            Entries::Small(sorted) => {
                let place = find(sorted, write.space, &write.key);
                let sorted = Arc::make_mut(sorted);
                match place {
                    Ok(at) => sorted[at] = write,
                    Err(at) => sorted.insert(at, write),
                }
            }
            Entries::Large(maps) => maps[write.space.at()].insert_mut(write.key, write.value),
        }
    }

    pub(crate) fn change_counter(&mut self, change: CounterChange) {
        let counters = Arc::make_mut(&mut self.counters);
        match counters.iter_mut().find(|known| known.key == change.key) {
            Some(known) if change.removed => *known = change,
            Some(known) => known.delta = known.delta.plus(change.delta),
            None => counters.push(change),
        }
    }

    pub(crate) fn counter(&self, key: &[u8], before: Counter) -> Counter {
        match self.counters.iter().find(|change| *change.key == *key) {
            Some(change) => change.apply(before),
            None => before,
        }
    }

    /// The writes, sorted within each space, and the counter changes.
    pub(crate) fn into_parts(self) -> (Vec<Write>, Arc<Vec<CounterChange>>) {
        let writes = match self.entries {
            Entries::Small(sorted) => Arc::unwrap_or_clone(sorted),
            Entries::Large(maps) => {
                let mut writes = Vec::with_capacity(maps.iter().map(|map| map.size()).sum());
                for (space, map) in Space::ALL.into_iter().zip(maps.iter()) {
                    writes.extend(map.iter().map(|(key, value)| Write {
                        space,
                        key: key.clone(),
                        value: value.clone(),
                    }));
                }
                writes
            }
        };
        (writes, self.counters)
    }

    /// The first entry of a range, seen from the side the scan begins at.
    pub(crate) fn first_in(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Option<(&Bytes, &Option<Bytes>)> {
        if crate::backend::is_empty_range(lower, upper) {
            return None;
        }
        match &self.entries {
            Entries::Small(sorted) => {
                let from = match lower {
                    Bound::Unbounded => sorted.partition_point(|write| write.space < space),
                    Bound::Included(key) => {
                        sorted.partition_point(|write| (write.space, &*write.key) < (space, key))
                    }
                    Bound::Excluded(key) => {
                        sorted.partition_point(|write| (write.space, &*write.key) <= (space, key))
                    }
                };
                let to = match upper {
                    Bound::Unbounded => sorted.partition_point(|write| write.space <= space),
                    Bound::Included(key) => {
                        sorted.partition_point(|write| (write.space, &*write.key) <= (space, key))
                    }
                    Bound::Excluded(key) => {
                        sorted.partition_point(|write| (write.space, &*write.key) < (space, key))
                    }
                };
                let within = sorted.get(from..to)?;
                let write = match direction {
                    Direction::Forward => within.first()?,
                    Direction::Backward => within.last()?,
                };
                Some((&write.key, &write.value))
            }
            Entries::Large(maps) => {
                let mut range = maps[space.at()].range::<[u8], _>((lower, upper));
                match direction {
                    Direction::Forward => range.next(),
                    Direction::Backward => range.next_back(),
                }
            }
        }
    }
}

fn find(sorted: &[Write], space: Space, key: &[u8]) -> Result<usize, usize> {
    sorted.binary_search_by(|write| (write.space, &*write.key).cmp(&(space, key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: u32, value: &str) -> Write {
        Write { space: Space::Index, key: key.to_be_bytes().into(), value: Some(value.into()) }
    }

    #[test]
    fn a_view_stays_as_it_was_when_the_overlay_grows_past_small() {
        let mut overlay = Overlay::default();
        for key in 0..20 {
            overlay.set(put(key, "old"));
        }
        let view = overlay.clone();
        for key in 0..100 {
            overlay.set(put(key, "new"));
        }
        assert_eq!(view.get(Space::Index, &5u32.to_be_bytes()), Some(&Some("old".into())));
        assert_eq!(view.get(Space::Index, &50u32.to_be_bytes()), None);
        assert_eq!(overlay.get(Space::Index, &5u32.to_be_bytes()), Some(&Some("new".into())));
        assert_eq!(overlay.get(Space::Records, &5u32.to_be_bytes()), None);
        assert_eq!(overlay.into_parts().0.len(), 100);
        assert_eq!(view.into_parts().0.len(), 20);
    }

    #[test]
    fn both_forms_find_the_first_entry_of_a_range() {
        for entries in [10, 100] {
            let mut overlay = Overlay::default();
            overlay.set(Write { space: Space::Meta, key: [9].into(), value: None });
            for key in 0..entries {
                overlay.set(put(key * 2, "x"));
            }
            let first = |lower, upper, direction| {
                overlay.first_in(Space::Index, lower, upper, direction).map(|(key, _)| key.to_vec())
            };
            let key = |key: u32| key.to_be_bytes();
            let (three, four) = (key(3), key(4));
            use Bound::{Excluded, Included, Unbounded};
            assert_eq!(first(Unbounded, Unbounded, Direction::Forward), Some(key(0).to_vec()));
            assert_eq!(first(Included(&three), Unbounded, Direction::Forward), Some(key(4).to_vec()));
            assert_eq!(first(Excluded(&four), Unbounded, Direction::Forward), Some(key(6).to_vec()));
            assert_eq!(first(Unbounded, Excluded(&four), Direction::Backward), Some(key(2).to_vec()));
            assert_eq!(first(Unbounded, Unbounded, Direction::Backward), Some(key(entries * 2 - 2).to_vec()));
            assert_eq!(first(Included(&three), Included(&three), Direction::Forward), None);
        }
    }
}
