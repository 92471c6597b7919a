//! The tree alone, beside a `BTreeMap`: histories of merges, in portions too; scans with every kind of bound in both
//! directions; what the builder promises of pages.

use super::blocks::Blocks;
use super::builder::{self, Edit};
use super::cursor::{self, Cursor};
use super::file::{Kind, PageFile};
use super::merge::{self, Merged};
use super::page::Page;
use super::{PagePtr, Root, TreeName, walk};
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::extents::FreeMap;
use crate::small::{self, Small};
use crate::snapshot::Direction;
use crate::space::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const TREE: TreeName = TreeName { space: 1, prefix: 7 };

/// A page so small that a few hundred rows make four levels.
const SMALL: Small = Small {
    leaf_bytes: 200,
    inner_bytes: 160,
    overflow_bytes_min: 120,
    portion_bytes_min: 1,
    slack_bytes: 0,
    journal_first: 8192,
    journal_largest: 8192,
};

type Map = BTreeMap<Bytes, Bytes>;
type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// A file with one tree in it. Pages that were given up are free at once, since nobody holds a state.
struct Alone {
    file: Arc<PageFile>,
    blocks: Mutex<Blocks>,
    epoch: u64,
    root: Option<Root>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        small::set(None);
    }
}

impl Alone {
    fn new(sizes: Option<Small>) -> Alone {
        small::set(sizes);
        let file = MemoryDisk::default().create("trees").unwrap();
        let file = Arc::new(PageFile::new(file, "trees".to_owned(), 50_000, None));
        Alone { file, blocks: Mutex::new(Blocks::new(FreeMap::new(0))), epoch: 0, root: None }
    }

    /// Merges all changes within a budget for each portion; says how many portions there were.
    fn merge(&mut self, changes: &Changes, budget: u64) -> usize {
        let mut from: Option<Bytes> = None;
        for portion in 1.. {
            self.epoch += 1;
            let mut edit = Edit::new(&self.file, &self.blocks, self.epoch);
            let left = match &from {
                Some(key) => changes.range(key.clone()..),
                None => changes.range::<Bytes, _>(..),
            };
            let left = left.map(|(key, value)| (key, value.as_ref()));
            let Merged { root, stopped_at } = merge::merge(&mut edit, TREE, self.root, left, budget).unwrap();
            assert!(stopped_at.is_none() || stopped_at > from, "a portion made no progress");
            self.root = root;
            self.commit(edit);
            from = stopped_at;
            if from.is_none() {
                return portion;
            }
        }
        unreachable!("the numbers do not end")
    }

    fn commit(&self, edit: Edit) {
        let mut blocks = self.blocks.lock();
        blocks.commit(&edit.written, &edit.given_up, self.epoch);
        blocks.settle(&[]).unwrap();
    }

    /// Compares rows, counts, blocks and bounds with what they should be.
    fn check(&self, expected: &Map) {
        let Some(root) = &self.root else {
            assert!(expected.is_empty(), "{} rows are gone", expected.len());
            return assert_eq!(self.used_blocks(), 0);
        };
        let checked = walk::check(&self.file, TREE, root);
        assert!(checked.problems.is_empty(), "{}", checked.problems.join("\n"));
        assert_eq!((root.rows, checked.rows), (expected.len() as u64, expected.len() as u64));
        let blocks: u64 = checked.places.iter().map(|page| u64::from(page.extent().blocks)).sum();
        assert_eq!((root.blocks, self.used_blocks()), (blocks, blocks));
        let long = expected.values().filter(|value| value.len() >= SMALL.overflow_bytes_min).count() as u64;
        if small::sizes().is_some() {
            assert_eq!(root.overflows, long);
        }
        let rows = self.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        assert!(rows.iter().map(|(key, value)| (key, value)).eq(expected), "rows differ");
    }

    fn used_blocks(&self) -> u64 {
        let blocks = self.blocks.lock();
        blocks.end() - blocks.free().free_blocks()
    }

    fn scan(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Vec<(Bytes, Bytes)> {
        let Some(root) = &self.root else { return Vec::new() };
        let mut cursor = Cursor::new(&self.file, TREE, root, lower, upper, direction).unwrap();
        let mut rows = Vec::new();
        while let Some(row) = cursor.take() {
            rows.push(row.unwrap());
        }
        assert!(cursor.take().is_none() && cursor.key().is_none());
        rows
    }

    /// Every page that is not at the right edge of the tree, with its level.
    fn inside(&self) -> Vec<(Page, u8)> {
        let mut found = Vec::new();
        let Some(root) = &self.root else { return found };
        let mut waiting = vec![(root.page, root.level, true)];
        while let Some((at, level, at_edge)) = waiting.pop() {
            let page = self.file.page(at, Kind { tree: TREE, level }).unwrap();
            if level > 0 {
                let child = |place: usize| -> PagePtr { page.child(place).unwrap() };
                let last = page.count() - 1;
                waiting.extend((0..=last).map(|place| (child(place), level - 1, at_edge && place == last)));
            }
            if !at_edge {
                found.push((page, level));
            }
        }
        found
    }
}

fn key(number: u16) -> Bytes {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(2 + usize::from(number % 5) * 9, number as u8);
    Bytes::from(key)
}

fn changes(values: std::ops::Range<usize>) -> impl Strategy<Value = Changes> {
    let value = prop_oneof![
        2 => Just(None),
        5 => (any::<u8>(), values).prop_map(|(byte, len)| Some(Bytes::from(vec![byte; len]))),
    ];
    // Many at random, or a run of neighbours, which empties or fills a part of the tree.
    prop_oneof![
        prop::collection::btree_map((0u16..600).prop_map(key), value.clone(), 1..80),
        (0u16..600, prop::collection::vec(value, 1..120)).prop_map(|(first, values)| {
            values.into_iter().enumerate().map(|(at, value)| (key(first + at as u16), value)).collect()
        }),
    ]
}

fn apply(map: &mut Map, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn bound(kind: u8, key: &Bytes) -> Bound<&[u8]> {
    match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn merges_do_what_a_map_does(
        history in prop::collection::vec((changes(0..300), prop_oneof![Just(u64::MAX), 1u64..20_000]), 1..12),
    ) {
        let mut tree = Alone::new(Some(SMALL));
        let mut map = Map::new();
        for (changes, budget) in &history {
            tree.merge(changes, *budget);
            apply(&mut map, changes);
            tree.check(&map);
        }
    }

    #[test]
    fn scans_do_what_a_map_does(
        history in prop::collection::vec(changes(0..150), 1..6),
        ranges in prop::collection::vec((0u16..720, 0u16..720, 0u8..3, 0u8..3), 30),
    ) {
        let mut tree = Alone::new(Some(SMALL));
        let mut map = Map::new();
        for changes in &history {
            tree.merge(changes, u64::MAX);
            apply(&mut map, changes);
        }
        for (one, two, lower, upper) in ranges {
            let (one, two) = (key(one.min(two)), key(one.max(two)));
            let (lower, upper) = (bound(lower, &one), bound(upper, &two));
            if crate::backend::is_empty_range(lower, upper) {
                continue;
            }
            let mut expected: Vec<_> =
                map.range::<[u8], _>((lower, upper)).map(|(key, value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(&tree.scan(lower, upper, Direction::Forward), &expected);
            expected.reverse();
            prop_assert_eq!(&tree.scan(lower, upper, Direction::Backward), &expected);
            let found = tree.root.and_then(|root| cursor::get(&tree.file, TREE, &root, &one).unwrap());
            prop_assert_eq!(found.as_ref(), map.get(&one));
        }
    }

    #[test]
    fn pages_inside_the_tree_stay_filled(
        history in prop::collection::vec(changes(0..20), 1..15),
    ) {
        let mut tree = Alone::new(Some(SMALL));
        for changes in &history {
            tree.merge(changes, u64::MAX);
            for (page, level) in tree.inside() {
                let full = if level == 0 { SMALL.leaf_bytes } else { SMALL.inner_bytes };
                // A row takes an offset, its key's length, key and value.
                let row = |at: usize| 6 + page.key(at).len() + page.raw_value(at).0.len();
                let bytes = 8 + (0..page.count()).map(row).sum::<usize>();
                prop_assert!(bytes >= full / 4, "{} bytes on level {}", bytes, level);
            }
        }
    }

    #[test]
    fn a_tree_built_at_once_is_the_tree_of_its_rows(changes in changes(0..300)) {
        let mut tree = Alone::new(Some(SMALL));
        let map: Map = changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let mut edit = Edit::new(&tree.file, &tree.blocks, 1);
        let mut rows = map.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
        tree.root = builder::build(&mut edit, TREE, &mut rows).unwrap();
        tree.commit(edit);
        tree.check(&map);
    }
}

#[test]
fn a_merge_in_small_portions_ends_and_is_the_same() {
    let mut tree = Alone::new(Some(SMALL));
    let all = |byte: u8| -> Changes {
        (0..500).map(|number| (key(number), Some(Bytes::from(vec![byte; 40])))).collect()
    };
    tree.merge(&all(1), u64::MAX);
    assert!(tree.merge(&all(2), 2000) > 5);
    tree.check(&all(2).into_iter().filter_map(|(key, value)| Some((key, value?))).collect());
    let none: Changes = (0..500).map(|number| (key(number), None)).collect();
    tree.merge(&none, 100);
    tree.check(&Map::new());
}

#[test]
fn a_change_behind_a_subtree_of_several_levels_keeps_that_subtree() {
    let mut tree = Alone::new(Some(SMALL));
    let rows: Changes = (0..600).map(|number| (key(number), Some(Bytes::from(vec![1; 20])))).collect();
    tree.merge(&rows, u64::MAX);
    assert!(tree.root.is_some_and(|root| root.level >= 3));
    let last = Changes::from([(key(599), Some(Bytes::from(vec![2; 20])))]);
    tree.merge(&last, u64::MAX);
    let mut map: Map = rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    apply(&mut map, &last);
    tree.check(&map);
}

/// With the sizes of a program: an index of equal long strings has keys that differ behind their first 8 KiB.
#[test]
fn long_keys_that_begin_alike_make_a_flat_tree() {
    let mut tree = Alone::new(None);
    let rows: Changes = (0..400u32)
        .map(|number| {
            let mut key = vec![7; 8300];
            key.extend_from_slice(&number.to_be_bytes());
            (Bytes::from(key), Some(Bytes::from(vec![])))
        })
        .collect();
    tree.merge(&rows, u64::MAX);
    let level = tree.root.map_or(0, |root| root.level);
    assert!(level <= 5, "{level} levels");
    tree.check(&rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect());
}
