use super::*;
use parking_lot::RwLock;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Limit = Bound<Vec<u8>>;
type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// All versions of each key, oldest first.
#[derive(Debug, Default)]
struct Model(BTreeMap<Vec<u8>, Versions>);

impl Model {
    fn get(&self, key: &[u8], at: u64) -> Option<Option<Vec<u8>>> {
        self.0.get(key)?.iter().rfind(|(sequence, _)| *sequence <= at).map(|(_, value)| value.clone())
    }

    fn range(&self, at: u64, lower: &Limit, upper: &Limit, direction: Direction) -> Entries {
        let after = |key: &[u8]| match lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
        };
        let before = |key: &[u8]| match upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
        };
        let keys = self.0.keys().filter(|key| after(key) && before(key));
        let mut entries: Entries = keys.filter_map(|key| Some((key.clone(), self.get(key, at)?))).collect();
        if direction == Direction::Backward {
            entries.reverse();
        }
        entries
    }
}

fn as_bound(limit: &Limit) -> Bound<&[u8]> {
    match limit {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

fn owned((key, value): (&Bytes, Option<&Bytes>)) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.to_vec(), value.map(|value| value.to_vec()))
}

fn rest(mut cursor: Cursor) -> Entries {
    let mut entries = Entries::new();
    while let Some(entry) = cursor.peek() {
        entries.push(owned(entry));
        cursor.advance();
    }
    cursor.advance();
    assert!(cursor.peek().is_none(), "the end is the end");
    entries
}

fn everything(table: &Arc<Memtable>, at: u64, direction: Direction) -> Entries {
    rest(Cursor::new(table, at, Bound::Unbounded, Bound::Unbounded, direction))
}

fn key(number: u64) -> Bytes {
    let mut key = *b"kkkk\0\0\0\0\0\0\0\0";
    key[4..].copy_from_slice(&number.to_be_bytes());
    Bytes::new(&key)
}

/// Keys that are inline and keys that are not, some the beginning of others, some that differ only behind the bytes that nodes
/// have of them, or by zeros at their ends.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let alike = prop_oneof![6 => Just(0usize), 1 => Just(3), 1 => Just(11), 1 => Just(18), 1 => Just(30)];
    let own = prop::collection::vec(0u8..4, 0..4);
    (alike, own, prop::bool::weighted(0.2)).prop_map(|(alike, own, long)| {
        let mut key = vec![2; alike];
        key.extend(own);
        if long {
            key.extend([7; 30]);
        }
        key
    })
}

fn any_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        Just(Bound::Unbounded),
        any_key().prop_map(Bound::Included),
        any_key().prop_map(Bound::Excluded)
    ]
}

fn any_direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Backward)]
}

type Scan = (u64, Limit, Limit, Direction, Vec<(usize, Vec<u8>)>);

/// A sequence to look from, a range, and seeks each after some steps.
fn any_scan() -> impl Strategy<Value = Scan> {
    let seeks = prop::collection::vec((0usize..4, any_key()), 0..5);
    (0u64..160, any_limit(), any_limit(), any_direction(), seeks)
}

proptest! {
    #[test]
    fn a_table_does_what_a_map_of_versions_does(
        writes in prop::collection::vec((any_key(), prop::option::weighted(0.8, any_key())), 0..150),
        scans in prop::collection::vec(any_scan(), 1..12),
    ) {
        let table = Arc::new(Memtable::new());
        let mut model = Model::default();
        let mut earlier = Vec::new();
        prop_assert!(table.is_empty());
        for (index, (key, value)) in writes.iter().enumerate() {
            let sequence = index as u64 + 1;
            let bytes = table.bytes();
            table.writer().set(&Bytes::new(key), value.as_ref().map(|it| Bytes::new(it)), sequence);
            prop_assert!(table.bytes() > bytes && !table.is_empty());
            model.0.entry(key.clone()).or_default().push((sequence, value.clone()));
            if index % 16 == 0 {
                // These stay open while more is written.
                for direction in [Direction::Forward, Direction::Backward] {
                    let cursor =
                        Cursor::new(&table, sequence, Bound::Unbounded, Bound::Unbounded, direction);
                    let expected = model.range(sequence, &Bound::Unbounded, &Bound::Unbounded, direction);
                    earlier.push((cursor, expected));
                }
            }
        }
        for (cursor, expected) in earlier {
            prop_assert_eq!(rest(cursor), expected);
        }
        for (at, lower, upper, direction, seeks) in scans {
            let open = || Cursor::new(&table, at, as_bound(&lower), as_bound(&upper), direction);
            let mut expected = model.range(at, &lower, &upper, direction);
            prop_assert_eq!(rest(open()), expected.clone());
            let mut cursor = open();
            for (steps, to) in seeks {
                for _ in 0..steps {
                    cursor.advance();
                }
                expected.drain(..steps.min(expected.len()));
                cursor.seek(&to);
                expected.retain(|(key, _)| match direction {
                    Direction::Forward => *key >= to,
                    Direction::Backward => *key <= to,
                });
                prop_assert_eq!(cursor.peek().map(owned), expected.first().cloned());
                prop_assert_eq!(
                    table.get(&to, at).map(|value| value.as_ref().map(|value| value.to_vec())),
                    model.get(&to, at)
                );
            }
            prop_assert_eq!(rest(cursor), expected);
            let newest: Entries = table.newest(as_bound(&lower)).map(owned).collect();
            let expected = model.range(u64::MAX, &lower, &Bound::Unbounded, Direction::Forward);
            prop_assert_eq!(newest, expected);
        }
    }

    #[test]
    fn any_order_of_writing_leaves_each_level_in_order(numbers in prop::collection::vec(0u64..3000, 0..600)) {
        let table = Memtable::new();
        for (sequence, number) in numbers.iter().enumerate() {
            // Clusters, so that the fingers serve near and far, ahead and behind.
            for near in [0, 5, 1, 3] {
                table.writer().set(&key(number + near), None, sequence as u64);
            }
        }
        let mut below: Vec<Bytes> = Vec::new();
        for level in 0..MAX_LEVELS {
            let nodes = std::iter::successors(table.head().next(level), |node| node.next(level));
            let keys: Vec<Bytes> = nodes.map(|node| node.key().clone()).collect();
            prop_assert!(keys.is_sorted_by(|a, b| a < b));
            prop_assert!(level == 0 || keys.iter().all(|key| below.binary_search(key).is_ok()));
            below = keys;
        }
    }
}

#[test]
fn far_seeks_land_where_near_ones_do() {
    let table = Arc::new(Memtable::new());
    for number in 0..20_000 {
        table.writer().set(&key(number * 2), None, 1);
    }
    for distance in [1, 2, 3, 15, 16, 17, 18, 100, 5_000, 30_000] {
        let open = |direction| Cursor::new(&table, 1, Bound::Unbounded, Bound::Unbounded, direction);
        let mut cursor = open(Direction::Forward);
        cursor.seek(&key(distance));
        assert_eq!(cursor.peek().unwrap().0, &key(distance.next_multiple_of(2)));
        let mut cursor = open(Direction::Backward);
        cursor.seek(&key(39_998 - distance));
        assert_eq!(cursor.peek().unwrap().0, &key((39_998 - distance) / 2 * 2));
    }
}

#[test]
fn a_range_that_is_empty_or_inverted_has_no_entries() {
    let table = Arc::new(Memtable::new());
    for number in 0..10 {
        table.writer().set(&key(number), None, 1);
    }
    let (three, five) = (key(3), key(5));
    for direction in [Direction::Forward, Direction::Backward] {
        for (lower, upper) in [
            (Bound::Included(&five), Bound::Included(&three)),
            (Bound::Excluded(&three), Bound::Excluded(&three)),
            (Bound::Included(&three), Bound::Excluded(&three)),
            (Bound::Excluded(&five), Bound::Included(&three)),
        ] {
            let bound = |bound: Bound<&Bytes>| bound.map(|key| key.to_vec());
            let (lower, upper) = (bound(lower), bound(upper));
            let mut cursor = Cursor::new(&table, 1, as_bound(&lower), as_bound(&upper), direction);
            assert!(cursor.peek().is_none());
            cursor.seek(&three);
            cursor.advance();
            assert!(cursor.peek().is_none());
        }
    }
}

#[test]
fn a_cursor_goes_to_another_thread_and_outlives_the_last_handle() {
    let table = Arc::new(Memtable::new());
    table.writer().set(&key(1), Some(Bytes::new(&[1; 100])), 1);
    let cursor = Cursor::new(&table, 1, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    drop(table);
    let entries = std::thread::spawn(move || rest(cursor)).join().unwrap();
    assert_eq!(entries, [(key(1).to_vec(), Some(vec![1; 100]))]);
}

#[test]
fn a_long_chain_of_versions_is_dropped_without_a_deep_stack() {
    let versions = if cfg!(miri) { 1_000 } else { 1_000_000 };
    let table = Memtable::new();
    let mut writer = table.writer();
    for sequence in 0..versions {
        writer.set(&key(1), Some(key(sequence)), sequence);
    }
    drop(writer);
    assert_eq!(table.get(&key(1), 0), Some(&Some(key(0))));
    assert_eq!(table.get(&key(1), u64::MAX), Some(&Some(key(versions - 1))));
    drop(table);
}

/// Every value tells its key and sequence. Each batch writes a pair of keys, so that half a batch would
/// show.
#[test]
fn a_snapshot_never_changes_while_the_writer_goes_on() {
    let time = Duration::from_millis(if cfg!(miri) { 300 } else { 1500 });
    let published = RwLock::new((Arc::new(Memtable::new()), 0u64));
    let done = AtomicBool::new(false);
    const PAIR: u64 = 1 << 20;
    let read = |seed: u64| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rounds = 0;
        while !done.load(Relaxed) {
            let (table, at) = published.read().clone();
            let forward = everything(&table, at, Direction::Forward);
            let mut backward = everything(&table, at, Direction::Backward);
            backward.reverse();
            assert_eq!(forward, backward);
            assert_eq!(forward, everything(&table, at, Direction::Forward));
            assert!(forward.is_sorted_by(|a, b| a.0 < b.0));
            assert_eq!(forward.len() % 2, 0);
            let (low, high) = forward.split_at(forward.len() / 2);
            assert!(low.iter().zip(high).all(|(low, high)| low.1 == high.1), "half a batch is seen");
            for _ in 0..50 {
                let number = random.random_range(0..600);
                let found = forward.binary_search_by(|(it, _)| it[..].cmp(&key(number)));
                let value = table.get(&key(number), at);
                assert_eq!(value.is_some(), found.is_ok());
                if let (Some(value), Ok(index)) = (value, found) {
                    assert_eq!(value.as_ref().map(|value| value.to_vec()), forward[index].1);
                }
                // What is seeked to is what the scan saw, in both directions.
                let all = (Bound::Unbounded, Bound::Unbounded);
                let mut cursor = Cursor::new(&table, at, all.0, all.1, Direction::Forward);
                cursor.seek(&key(number));
                let from = forward.partition_point(|(it, _)| it[..] < key(number)[..]);
                assert_eq!(cursor.peek().map(owned), forward.get(from).cloned());
                let mut cursor = Cursor::new(&table, at, all.0, all.1, Direction::Backward);
                cursor.seek(&key(number));
                let until = forward.partition_point(|(it, _)| it[..] <= key(number)[..]);
                assert_eq!(
                    cursor.peek().map(owned),
                    until.checked_sub(1).map(|index| forward[index].clone())
                );
            }
            rounds += 1;
        }
        rounds
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|seed| scope.spawn(move || read(seed))).collect();
        let mut random = SmallRng::seed_from_u64(99);
        let start = Instant::now();
        let mut sequence = 0;
        while start.elapsed() < time {
            let table = published.read().0.clone();
            for _ in 0..3_000 {
                sequence += 1;
                let number = random.random_range(0..600);
                let value = random.random_ratio(4, 5).then(|| Bytes::new(&[sequence as u8; 30]));
                let mut writer = table.writer();
                writer.set(&key(number), value.clone(), sequence);
                writer.set(&key(number + PAIR), value, sequence);
                drop(writer);
                published.write().1 = sequence;
            }
            // A new table now and then: new nodes are where the links move.
            published.write().0 = Arc::new(Memtable::new());
        }
        done.store(true, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}
