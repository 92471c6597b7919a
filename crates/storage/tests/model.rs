//! The store equals an ordered map: random transactions, snapshots and reopenings on both backends.

use kilim_storage::{Counter, Direction, Durability, Options, Snapshot, Space, Store, Transaction};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

const SPACES: [Space; 3] = [Space::Meta, Space::Records, Space::Index];
const COUNTER: &[u8] = b"counter";

#[derive(Debug, Clone)]
enum Step {
    Begin {
        slot: usize,
    },
    Put {
        slot: usize,
        space: usize,
        key: u8,
        value: u16,
    },
    Delete {
        slot: usize,
        space: usize,
        key: u8,
    },
    Commit {
        slot: usize,
        durable: bool,
    },
    /// Enters the queue and is not waited for.
    Enqueue {
        slot: usize,
    },
    Abort {
        slot: usize,
    },
    Look {
        slot: usize,
    },
    Snapshot,
    Ingest {
        first: u8,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..3usize;
    prop_oneof![
        3 => slot.clone().prop_map(|slot| Step::Begin { slot }),
        12 => (slot.clone(), 0..3usize, any::<u8>(), any::<u16>())
            .prop_map(|(slot, space, key, value)| Step::Put { slot, space, key: key % 48, value }),
        4 => (slot.clone(), 0..3usize, any::<u8>())
            .prop_map(|(slot, space, key)| Step::Delete { slot, space, key: key % 48 }),
        3 => (slot.clone(), any::<bool>()).prop_map(|(slot, durable)| Step::Commit { slot, durable }),
        1 => slot.clone().prop_map(|slot| Step::Enqueue { slot }),
        1 => slot.clone().prop_map(|slot| Step::Abort { slot }),
        3 => slot.prop_map(|slot| Step::Look { slot }),
        2 => Just(Step::Snapshot),
        1 => any::<u8>().prop_map(|first| Step::Ingest { first }),
        1 => Just(Step::Reopen),
    ]
}

/// A transaction beside what it should see and do.
struct Open {
    transaction: Transaction,
    base: Map,
    base_counter: Counter,
    writes: BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>,
    added: Counter,
}

impl Open {
    fn begin(store: &Store, state: &Map, counter: Counter) -> Open {
        Open {
            transaction: store.begin(),
            base: state.clone(),
            base_counter: counter,
            writes: BTreeMap::new(),
            added: Counter::default(),
        }
    }

    fn expected(&self) -> (Map, Counter) {
        let mut map = self.base.clone();
        apply(&mut map, &self.writes);
        (map, sum(self.base_counter, self.added))
    }
}

fn apply(map: &mut Map, writes: &BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>) {
    for (key, value) in writes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn sum(left: Counter, right: Counter) -> Counter {
    Counter { count: left.count + right.count, bytes: left.bytes + right.bytes }
}

fn key(space: Space, key: u8) -> Vec<u8> {
    vec![b'k', space as u8, key]
}

fn value(space: Space, value: u16) -> Vec<u8> {
    let mut bytes = if space == Space::Records { vec![0; 8] } else { Vec::new() };
    bytes.resize(bytes.len() + usize::from(value % 90), value as u8);
    bytes.extend(value.to_le_bytes());
    bytes
}

/// A record without its commit time.
fn unstamped(space: Space, value: &[u8]) -> Vec<u8> {
    if space == Space::Records { [&[0; 8], &value[8..]].concat() } else { value.to_vec() }
}

fn check(snapshot: &Snapshot, expected: &Map, counter: Counter) {
    assert_eq!(snapshot.counter(COUNTER).unwrap(), counter);
    for space in SPACES {
        let rows: Vec<_> = expected
            .iter()
            .filter(|((of, _), _)| *of == space)
            .map(|((_, key), value)| (key, value))
            .collect();
        let scanned = |lower, upper, direction| -> Vec<(Vec<u8>, Vec<u8>)> {
            snapshot
                .scan(space, lower, upper, direction)
                .map(|row| row.map(|(key, value)| (key.to_vec(), unstamped(space, &value))).unwrap())
                .collect()
        };
        let owned = |rows: Vec<&(&Vec<u8>, &Vec<u8>)>| -> Vec<(Vec<u8>, Vec<u8>)> {
            rows.into_iter().map(|(key, value)| ((*key).clone(), (*value).clone())).collect()
        };
        assert_eq!(
            scanned(Bound::Unbounded, Bound::Unbounded, Direction::Forward),
            owned(rows.iter().collect())
        );
        let (from, to) = (key(space, 10), key(space, 30));
        let within = |row: &&(&Vec<u8>, &Vec<u8>)| *row.0 > from && *row.0 <= to;
        assert_eq!(
            scanned(Bound::Excluded(&from), Bound::Included(&to), Direction::Backward),
            owned(rows.iter().rev().filter(within).collect())
        );
        for at in [0, 10, 47] {
            let found = snapshot.get(space, &key(space, at)).unwrap().map(|value| unstamped(space, &value));
            assert_eq!(found.as_ref(), expected.get(&(space, key(space, at))));
        }
    }
}

fn run(steps: Vec<Step>, mut store: Store, reopen: impl Fn() -> Option<Store>) {
    let mut state = Map::new();
    let mut counter = Counter::default();
    let mut open: [Option<Open>; 3] = [None, None, None];
    let mut snapshots: Vec<(Snapshot, Map, Counter)> = Vec::new();
    let mut ingested = 0u8;
    let mut last_time = 0;
    for step in steps {
        match step {
            Step::Begin { slot } => open[slot] = Some(Open::begin(&store, &state, counter)),
            Step::Put { slot, space, key: at, value: number } => {
                let space = SPACES[space];
                let open = open[slot].get_or_insert_with(|| Open::begin(&store, &state, counter));
                open.transaction.put(space, key(space, at), value(space, number));
                open.transaction.add(COUNTER, 1, i64::from(number));
                open.added = sum(open.added, Counter { count: 1, bytes: i64::from(number) });
                open.writes.insert((space, key(space, at)), Some(value(space, number)));
            }
            Step::Delete { slot, space, key: at } => {
                let space = SPACES[space];
                let open = open[slot].get_or_insert_with(|| Open::begin(&store, &state, counter));
                open.transaction.delete(space, &key(space, at));
                open.writes.insert((space, key(space, at)), None);
            }
            Step::Commit { slot, durable } => {
                if let Some(open) = open[slot].take() {
                    let durability = if durable { Durability::Durable } else { Durability::Relaxed };
                    let empty = open.transaction.is_empty();
                    let time = open.transaction.commit(durability).unwrap();
                    assert!(if empty { time >= last_time } else { time > last_time });
                    last_time = time;
                    assert_eq!(store.snapshot().commit_time(), time);
                    apply(&mut state, &open.writes);
                    counter = sum(counter, open.added);
                }
            }
            Step::Enqueue { slot } => {
                if let Some(open) = open[slot].take() {
                    let ticket = open.transaction.enqueue(Durability::Relaxed).unwrap();
                    last_time = ticket.commit_time;
                    drop(ticket);
                    apply(&mut state, &open.writes);
                    counter = sum(counter, open.added);
                    for ((space, key), value) in &open.writes {
                        let latest = store.latest(*space, key).unwrap();
                        assert_eq!(latest.map(|value| unstamped(*space, &value)), *value);
                    }
                    store.sync().unwrap();
                }
            }
            Step::Abort { slot } => open[slot] = None,
            Step::Look { slot } => {
                if let Some(open) = &open[slot] {
                    let (map, counter) = open.expected();
                    check(&open.transaction.snapshot(), &map, counter);
                }
            }
            Step::Snapshot => snapshots.push((store.snapshot(), state.clone(), counter)),
            Step::Ingest { first } => {
                ingested = ingested.wrapping_add(1);
                let rows: Vec<_> =
                    (0..20u8).map(|at| (vec![b'l', ingested, first, at], vec![at; 30])).collect();
                store.ingest(Space::Index, rows.clone().into_iter()).unwrap();
                state.extend(rows.into_iter().map(|(key, value)| ((Space::Index, key), value)));
            }
            Step::Reopen => {
                open = [None, None, None];
                for (snapshot, map, counter) in snapshots.drain(..) {
                    check(&snapshot, &map, counter);
                }
                drop(store);
                match reopen() {
                    Some(again) => store = again,
                    None => return,
                }
                assert!(store.last_commit_time() >= last_time);
            }
        }
        check(&store.snapshot(), &state, counter);
    }
    for (snapshot, map, counter) in snapshots {
        check(&snapshot, &map, counter);
    }
}

fn small() -> Options {
    Options { cache_bytes: 8 << 20, free_space_reserve_bytes: Some(0), ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn the_memory_store_equals_an_ordered_map(steps in prop::collection::vec(step(), 1..120)) {
        run(steps, Store::in_memory(small()), || None);
    }
}

proptest! {
    // Each case opens files and syncs them.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn the_disk_store_equals_an_ordered_map(steps in prop::collection::vec(step(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), small()).unwrap();
        run(steps, open(), || Some(open()));
    }
}
