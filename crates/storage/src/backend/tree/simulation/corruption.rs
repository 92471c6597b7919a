//! Damage to every file of a store, after a close and after a crash.
//!
//! A store is built by dice; copies of all its files are kept from several moments of its life. Then one file is
//! damaged: a bit flips, a range becomes zeros, the file is cut, removed, replaced by an older copy of itself or
//! doubled under another name. A start must refuse, and leave the disk as it found it, or every row that can be read
//! must be right: a damaged page is an error and never another row. Records and the change log share documents, which the
//! journal has once, so damage there concerns both.
//!
//! After a close nothing may be missing. After a crash a damaged end of the journal looks like one that was torn, so
//! the store may be in the exact state after an earlier batch.

use super::super::TreeBackend;
use super::super::open::{LOCK, Memory, TREES};
use super::model::{Rows, Tree, events_of, tree_of};
use super::structure;
use crate::backend::{Backend, View};
use crate::disk::Disk;
use crate::disk::memory::{Dice, MemoryDisk};
use crate::small::{self, Small};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use crate::tree::TreeName;
use kilim_error::{Error, StorageError};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Files = BTreeMap<String, Vec<u8>>;

const MEMORY: Memory = Memory { cache_bytes: 1 << 20, tables_bytes_max: 64 << 10 };

const TREES_WRITTEN: [Tree; 4] = [
    (Space::Records, [0, 0, 0, 1]),
    (Space::Records, [0, 0, 0, 2]),
    (Space::Index, [0, 0, 0, 3]),
    (Space::Meta, *b"meta"),
];
const DROPPED: Tree = (Space::Index, [0, 0, 0, 9]);

/// Segments of the change log.
const SEGMENT_DROPPED: u32 = 20;
const SEGMENT: u32 = 21;

/// What became of the cases.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) cases: u64,
    /// By the start.
    pub(super) refused: u64,
    /// By a read of the damaged page, or by the full check.
    pub(super) found_later: u64,
    pub(super) harmless: u64,
    /// The exact state after an earlier batch.
    pub(super) earlier: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.refused += other.refused;
        self.found_later += other.found_later;
        self.harmless += other.harmless;
        self.earlier += other.earlier;
    }
}

/// A store at its end, and what it should hold.
pub(super) struct Subject {
    files: Files,
    /// The same files at earlier moments.
    older: Vec<Files>,
    /// By commit time, without loads.
    states: BTreeMap<u64, Rows>,
    loaded: Rows,
    closed: bool,
}

/// Damages a store of this seed some times.
pub(super) fn check(seed: u64, damages: u64) -> Tally {
    let mut dice = Dice(seed ^ 0x00C0_FFEE);
    small::set(Some(Small {
        leaf_bytes: [300, 1000][dice.roll(2) as usize],
        inner_bytes: [200, 500][dice.roll(2) as usize],
        overflow_bytes_min: 200,
        portion_bytes_min: 4096,
        slack_bytes: 64 << 10,
        journal_first: 8192,
        journal_largest: 65536,
    }));
    let subject = Subject::make(&mut dice);
    let mut tally = Tally::default();
    for case in 0..damages {
        let (files, what) = subject.damaged(&mut dice);
        let what = format!("seed {seed}, case {case}, closed {}: {what}", subject.closed);
        tally.cases += 1;
        subject.judge(files, &what, &mut dice, &mut tally);
    }
    small::set(None);
    tally
}

impl Subject {
    /// A store that ended in an unusual way, and all states that it has had.
    pub(super) fn left(files: Files, states: BTreeMap<u64, Rows>) -> Subject {
        Subject { files, older: Vec::new(), states, loaded: Rows::new(), closed: false }
    }

    fn make(dice: &mut Dice) -> Subject {
        let disk = MemoryDisk::default();
        disk.create(LOCK).unwrap();
        let mut store = open(&disk).unwrap();
        let (mut rows, mut loaded) = (Rows::new(), Rows::new());
        let (mut states, mut older) = (BTreeMap::from([(0, Rows::new())]), Vec::new());
        let mut time = 0;
        let mut dropped = false;
        for step in 0..12 + dice.roll(30) {
            match dice.roll(12) {
                0 | 1 => {
                    store.checkpoint(&mut |step| step()).unwrap();
                    // An earlier state cannot come back any more.
                    states = BTreeMap::from([(time, rows.clone())]);
                }
                2 => {
                    let prefix = (500 + step as u32).to_be_bytes();
                    let new: Rows = (0..1 + dice.roll(60))
                        .map(|number| ((Space::Index, key_of(prefix, number)), value(dice)))
                        .collect();
                    let mut feed =
                        new.iter().map(|((_, key), value)| Ok((key.as_slice().into(), value.clone())));
                    store.ingest(Space::Index, &mut feed, &mut |step| step()).unwrap();
                    loaded.extend(new);
                }
                3 if !dropped => {
                    dropped = true;
                    let trees = [DROPPED, (Space::Log, SEGMENT_DROPPED.to_be_bytes())];
                    rows.retain(|key, _| !tree_of(key).is_some_and(|tree| trees.contains(&tree)));
                    store.drop_trees(&trees, &mut |step| step()).unwrap();
                    states = BTreeMap::from([(time, rows.clone())]);
                }
                4 if dice.roll(3) == 0 => store = open(&disk).unwrap(),
                5 => store.sync().unwrap(),
                6 => store.maintain(&mut |step| step()).unwrap(),
                _ => {
                    time += 1;
                    let segment = if dropped { SEGMENT } else { SEGMENT_DROPPED };
                    let mut batch = batch(dice, segment, time);
                    if !dropped && dice.roll(3) == 0 {
                        let key = Bytes::from(key_of(DROPPED.1, dice.roll(20)));
                        batch.push(Write { space: DROPPED.0, key, value: Some(value(dice)) });
                    }
                    store.apply(&mut batch.iter(), time, dice.roll(2) == 0).unwrap();
                    apply(&mut rows, &batch);
                    states.insert(time, rows.clone());
                }
            }
            if dice.roll(4) == 0 {
                older.push(disk.contents());
            }
        }
        let closed = dice.roll(2) == 0;
        if closed {
            older.push(disk.contents());
            store.close(&mut |step| step()).unwrap();
            states = BTreeMap::from([(time, rows)]);
        }
        Subject { files: disk.contents(), older, states, loaded, closed }
    }

    fn damaged(&self, dice: &mut Dice) -> (Files, String) {
        let mut files = self.files.clone();
        let names: Vec<&String> = self.files.keys().collect();
        let name = match dice.roll(3) {
            0 => TREES,
            _ => names[dice.roll(names.len() as u64) as usize].as_str(),
        };
        let bytes = files.get_mut(name).expect("the name is one of the files");
        let len = bytes.len() as u64;
        // Half of the damage is done near the front, where headers and superblocks are.
        let place = |dice: &mut Dice| match dice.roll(2) {
            0 => dice.roll(len.clamp(1, 9000)),
            _ => dice.roll(len.max(1)),
        };
        let what = match dice.roll(6) {
            0 if len > 0 => {
                let at = place(dice);
                bytes[at as usize] ^= 1 << dice.roll(8);
                format!("a bit flips at {at}")
            }
            1 => {
                let to = place(dice);
                bytes.truncate(to as usize);
                format!("it is cut from {len} to {to} bytes")
            }
            2 if len > 0 => {
                let from = place(dice) as usize;
                let to = (from + 1 + [8, 512, 5000, 100_000][dice.roll(4) as usize]).min(len as usize);
                bytes[from..to].fill(0);
                format!("{from}..{to} becomes zeros")
            }
            3 => {
                files.remove(name);
                "it is removed".to_owned()
            }
            4 if !self.older.is_empty() => {
                let at = dice.roll(self.older.len() as u64) as usize;
                match self.older[at].get(name) {
                    Some(older) => files.insert(name.to_owned(), older.clone()),
                    None => files.remove(name),
                };
                format!("it is replaced by older copy {at} of {}", self.older.len())
            }
            _ => {
                let copy = bytes.clone();
                let free =
                    (0..).map(|index| format!("journal.{index}")).find(|name| !files.contains_key(name));
                let other = match dice.roll(4) {
                    0 => "creating".to_owned(),
                    1 => format!("{name}.old"),
                    _ => free.expect("there are many numbers"),
                };
                files.insert(other.clone(), copy);
                format!("it is doubled as {other}")
            }
        };
        (files, format!("{name}: {what}"))
    }

    pub(super) fn judge(&self, files: Files, what: &str, dice: &mut Dice, tally: &mut Tally) {
        let disk = MemoryDisk::holding(&files);
        let store = match open(&disk) {
            Ok(store) => store,
            Err(error) => {
                let said = error.to_string();
                assert!(matches!(error, Error::Storage(StorageError::Corrupt(_))), "{what}: {said}");
                let names_it = [TREES, "journal", LOCK].iter().any(|name| said.contains(name));
                assert!(names_it, "{what}: {said}");
                assert!(disk.contents() == files, "{what}: the refusal has changed the disk: {said}");
                tally.refused += 1;
                return;
            }
        };
        let time = store.commit_time();
        let Some(state) = self.states.get(&time) else {
            panic!("{what}: the store is in a state that never was, after batch {time}");
        };
        let mut expected = state.clone();
        expected.extend(self.loaded.clone());
        let mut is_whole = read(&store.view(), &expected, what);
        is_whole &= structure::check(&disk).is_ok();
        match Some(&time) == self.states.keys().next_back() {
            true if is_whole => tally.harmless += 1,
            true => tally.found_later += 1,
            false => tally.earlier += 1,
        }
        // The store goes on, and what is damaged spreads to nothing else.
        let batch = batch(dice, SEGMENT, time + 1);
        store.apply(&mut batch.iter(), time + 1, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        apply(&mut expected, &batch);
        read(&store.view(), &expected, what);
        let merged = store.checkpoint(&mut |step| step());
        assert!(merged.is_ok() || !is_whole, "{what}: {merged:?}");
        read(&store.view(), &expected, what);
        drop(store);
        match open(&disk) {
            Ok(store) => _ = read(&store.view(), &expected, what),
            Err(error) => panic!("{what}: it was opened once and then refused: {error}"),
        }
    }
}

pub(super) fn open(disk: &MemoryDisk) -> kilim_error::Result<TreeBackend> {
    TreeBackend::open(Arc::new(disk.clone()), MEMORY, false, None)
}

/// Whether all rows can be read; panics if one of them is wrong.
fn read(view: &View, expected: &Rows, what: &str) -> bool {
    let mut is_whole = true;
    for ((space, key), value) in expected {
        match view.get(*space, key) {
            Ok(found) => assert!(found.as_ref() == Some(value), "{what}: {space:?} {key:?} is wrong"),
            Err(_) => is_whole = false,
        }
    }
    for space in Space::ALL {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut wanted: Vec<_> = expected.iter().filter(|((of, _), _)| *of == space).collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            let mut wanted = wanted.into_iter();
            let mut failed = false;
            for row in view.rows(space, Bound::Unbounded, Bound::Unbounded, direction) {
                let Ok((key, value)) = row else {
                    failed = true;
                    break;
                };
                let next = wanted.next().map(|((_, key), value)| (&key[..], value));
                assert!(next == Some((&key[..], &value)), "{what}: a scan of {space:?} is wrong at {key:?}");
            }
            assert!(failed || wanted.next().is_none(), "{what}: a scan of {space:?} ends early");
            is_whole &= !failed;
        }
    }
    is_whole
}

/// Rows of all trees and, as a rule, the events of some.
pub(super) fn batch(dice: &mut Dice, segment: u32, time: u64) -> Vec<Write> {
    let mut batch = BTreeMap::new();
    for _ in 0..1 + dice.roll(40) {
        let (space, prefix) = TREES_WRITTEN[dice.roll(TREES_WRITTEN.len() as u64) as usize];
        let value = if dice.roll(5) == 0 { None } else { Some(value(dice)) };
        batch.insert((space, key_of(prefix, dice.roll(150))), value);
    }
    let write = |((space, key), value)| Write { space, key: Bytes::from(key), value };
    let mut batch: Vec<Write> = batch.into_iter().map(write).collect();
    if dice.roll(4) > 0 {
        batch.extend(events_of(&batch, segment, time));
    }
    batch
}

pub(super) fn apply(rows: &mut Rows, batch: &[Write]) {
    for write in batch {
        let key = (write.space, write.key.to_vec());
        match &write.value {
            Some(value) => rows.insert(key, value.clone()),
            None => rows.remove(&key),
        };
    }
}

fn value(dice: &mut Dice) -> Bytes {
    let len = if dice.roll(8) == 0 { dice.roll(3000) } else { dice.roll(50) };
    let mut value = vec![dice.roll(256) as u8; len as usize];
    value.iter_mut().step_by(3).for_each(|byte| *byte = dice.roll(256) as u8);
    Bytes::from(value)
}

fn key_of(prefix: [u8; 4], number: u64) -> Vec<u8> {
    [&prefix[..], &(number as u16).to_be_bytes()].concat()
}

#[test]
fn a_store_that_finds_a_damaged_tree_writes_the_others_right() {
    small::set(Some(Small {
        leaf_bytes: 300,
        inner_bytes: 500,
        overflow_bytes_min: 200,
        portion_bytes_min: 4096,
        slack_bytes: 1 << 20,
        journal_first: 65536,
        journal_largest: 65536,
    }));
    let put = |prefix: [u8; 4], number, byte: u8, len| Write {
        space: Space::Records,
        key: Bytes::from(key_of(prefix, number)),
        value: Some(Bytes::from(vec![byte; len])),
    };
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    let first: Vec<Write> = (0..60).map(|number| put([0, 0, 0, 1], number, 1, 30)).collect();
    store.apply(&mut first.iter(), 1, true).unwrap();
    store.checkpoint(&mut |step| step()).unwrap();
    drop(store);
    // The last leaf, so that a merge has written some before it comes there.
    let file = disk.bytes(TREES);
    let is_leaf = |block: &[u8]| {
        crate::tree::file::look(block, 0).is_none() && block[8..12] == *b"KPag" && block[12] == 0
    };
    let leaf =
        file.chunks(4096).rposition(|block| is_leaf(block) && block[14] == Space::Records as u8).unwrap();
    disk.damage(TREES, |bytes| bytes[leaf * 4096 + 100] ^= 1);

    let store = open(&disk).unwrap();
    let mut second: Vec<Write> = (0..60).map(|number| put([0, 0, 0, 1], number, 2, 30)).collect();
    second.extend((0..20).map(|number| put([0, 0, 0, 2], number, number as u8, 1000)));
    store.apply(&mut second.iter(), 2, true).unwrap();
    store.checkpoint(&mut |step| step()).unwrap();
    let forest = store.tree_view().forest;
    for number in 0..20 {
        let key = key_of([0, 0, 0, 2], number);
        let name = crate::tree::TreeName::of(Space::Records, &key);
        let found = crate::tree::cursor::get(&store.file, name, &forest.roots[&name], &key).unwrap();
        assert!(found == Some(Bytes::from(vec![number as u8; 1000])), "row {number}");
    }
    small::set(None);
}

#[test]
fn a_damaged_tree_stops_writes_to_itself_and_to_no_other() {
    let put = |prefix: u8, number, byte: u8| Write {
        space: Space::Records,
        key: Bytes::from(key_of([0, 0, 0, prefix], number)),
        value: Some(Bytes::from(vec![byte; 30])),
    };
    let rows = |prefix: u8, byte: u8| (0..60).map(|number| put(prefix, number, byte)).collect::<Vec<_>>();
    let checkpoint = |store: &TreeBackend| store.checkpoint(&mut |step| step());
    let first = |store: &TreeBackend, prefix| {
        store
            .view()
            .get(Space::Records, &key_of([0, 0, 0, prefix], 0))
            .map(|value| value.map(|value| value[0]))
    };
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    store.apply(&mut rows(1, 1).iter().chain(&rows(2, 1)), 1, true).unwrap();
    checkpoint(&store).unwrap();
    let page = store.tree_view().forest.roots[&TreeName::of(Space::Records, &[0, 0, 0, 1])].page;
    drop(store);
    disk.damage(TREES, |bytes| bytes[(page.first * 4096) as usize + 100] ^= 1);

    let mut store = open(&disk).unwrap();
    store.apply(&mut rows(1, 2).iter().chain(&rows(2, 2)), 2, true).unwrap();
    for (time, byte) in (3..9).zip(3..9) {
        checkpoint(&store).unwrap();
        assert!(
            store.check_trees(&[put(1, 0, 0)]).is_err_and(|error| error.to_string().contains("records 1"))
        );
        store.check_trees(&[put(2, 0, 0), put(3, 0, 0)]).unwrap();
        store.check_writable().unwrap();
        // What was accepted before the damage was known is still there, after a start too.
        store.apply(&mut rows(2, byte).iter(), time, true).unwrap();
        assert_eq!((first(&store, 1).unwrap(), first(&store, 2).unwrap()), (Some(2), Some(byte)));
        assert!(store.hold().is_err(), "a copy of the file would lack rows");
        if byte % 2 == 0 {
            match byte % 4 {
                0 => store.close(&mut |step| step()).unwrap(),
                _ => store.sync().unwrap(),
            }
            drop(store);
            store = open(&disk).unwrap();
        }
    }
    // The journal keeps what is needed and no more.
    let journals = disk.list().unwrap().into_iter().filter(|name| name.starts_with("journal.")).count();
    assert!(journals <= 3, "{journals} journal files");
    store.drop_trees(&[(Space::Records, [0, 0, 0, 1])], &mut |step| step()).unwrap();
    store.check_trees(&[put(1, 0, 0)]).unwrap();
    assert_eq!((first(&store, 1).unwrap(), first(&store, 2).unwrap()), (None, Some(8)));
    store.hold().unwrap();
}

#[test]
fn a_tree_that_could_be_read_again_takes_writes_again() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    let put = |byte: u8| Write {
        space: Space::Index,
        key: Bytes::from(key_of([0, 0, 0, 1], 1)),
        value: Some(Bytes::from(vec![byte; 30])),
    };
    store.apply(&mut [put(1)].iter(), 1, true).unwrap();
    store.checkpoint(&mut |step| step()).unwrap();
    store.close(&mut |step| step()).unwrap();
    drop(store);
    let store = open(&disk).unwrap();
    store.apply(&mut [put(2)].iter(), 2, true).unwrap();
    let page = store.tree_view().forest.roots[&TreeName::of(Space::Index, &[0, 0, 0, 1])].page;
    disk.fail_reads(move |name, offset| match name == TREES && offset == page.first * 4096 {
        true => Err(std::io::Error::other("a bad block")),
        false => Ok(()),
    });
    store.checkpoint(&mut |step| step()).unwrap();
    assert!(store.check_trees(&[put(3)]).is_err());
    disk.heal();
    store.checkpoint(&mut |step| step()).unwrap();
    store.check_trees(&[put(3)]).unwrap();
    assert!(store.tree_view().active.is_empty());
}

#[test]
fn an_older_copy_of_the_file_from_before_a_load_is_refused() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    let older = disk.bytes(TREES);
    let mut rows = (0..100).map(|number| Ok((key_of([0, 0, 0, 1], number).into(), vec![7; 40].into())));
    store.ingest(Space::Index, &mut rows, &mut |step| step()).unwrap();
    store.close(&mut |step| step()).unwrap();
    drop(store);
    disk.damage(TREES, |bytes| *bytes = older);
    let error = open(&disk).err().expect("a store without its load is opened");
    assert!(error.to_string().contains("kilim.db is in state "), "{error}");
}
