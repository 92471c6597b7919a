//! Recovery, for a fuzzer: bytes say what a store lives through, and what is then damaged in its files.
//!
//! A life is a list of steps over a disk in memory: batches of puts, overwrites and deletes in several trees of all
//! spaces, syncs, checkpoints, bulk loads, a dropped tree, deaths of the process and losses of power. Then some bytes of
//! some files change, or files end early. A start must refuse and leave the files as they are, or give the exact rows
//! after some batch, except rows that it reports as damaged.
//!
//! Without damage the start must succeed, with every batch that was synced.

use crate::backend::tree::TreeBackend;
use crate::backend::tree::open::{LOCK, Memory};
use crate::backend::{Backend, View};
use crate::disk::Disk;
use crate::disk::memory::{Dice, MemoryDisk};
use crate::small::{self, Small};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// More steps make no other states, only slower ones.
const STEPS_MAX: usize = 48;
const DAMAGES_MAX: usize = 16;

/// Small, so that some dozens of rows make several levels, portions and segments.
const SIZES: Small = Small {
    leaf_bytes: 300,
    inner_bytes: 200,
    overflow_bytes_min: 200,
    portion_bytes_min: 4096,
    slack_bytes: 64 << 10,
    journal_first: 8192,
    journal_largest: 32768,
};
const MEMORY: Memory = Memory { cache_bytes: 64 << 10, tables_bytes_max: 4 << 10 };

const TREES: [(Space, [u8; 4]); 5] = [
    (Space::Records, [0, 0, 0, 1]),
    (Space::Records, [0, 0, 0, 2]),
    (Space::Index, [0, 0, 0, 3]),
    (Space::Index, [0, 0, 0, 4]),
    (Space::Meta, *b"meta"),
];
/// Written until it is dropped.
const DROPPED: (Space, [u8; 4]) = (Space::Index, [0, 0, 0, 9]);
/// Each bulk load has a tree of its own behind this.
const LOADED: u32 = 500;

type Rows = BTreeMap<(Space, Vec<u8>), Bytes>;

/// One life and the damage after it.
///
/// # Panics
///
/// If a promise is broken.
pub fn check(input: &[u8]) {
    small::set(Some(SIZES));
    let mut input = Input(input.iter());
    let life = Life::live(&mut input);
    let mut files = life.disk.contents();
    let damaged = damage(&mut files, &mut input);
    let disk = MemoryDisk::holding(&files);
    match open(&disk) {
        Ok(store) => life.judge(&store, damaged),
        Err(error) => {
            assert!(damaged, "a store is refused although nothing is damaged: {error}");
            assert!(disk.contents() == files, "a refusal has changed the disk: {error}");
        }
    }
}

/// The fuzzer's bytes; zeros behind their end.
struct Input<'a>(std::slice::Iter<'a, u8>);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.0.len() == 0
    }
}

struct Life {
    disk: MemoryDisk,
    /// Rows after each batch that may be the newest one after a start, by commit time, without loads.
    states: BTreeMap<u64, Rows>,
    /// On disk since their load returned.
    loaded: Rows,
    /// Rows of the dropped tree: there until the drop, and perhaps until the next start.
    dropped: bool,
}

impl Life {
    /// A zero ends it, so that the rest of the input is damage.
    fn live(input: &mut Input) -> Life {
        let disk = MemoryDisk::default();
        disk.create(LOCK).expect("a disk in memory has room");
        let mut store = open(&disk).expect("a new store opens");
        let mut life =
            Life { disk, states: BTreeMap::from([(0, Rows::new())]), loaded: Rows::new(), dropped: false };
        let mut time = 0;
        for step in 0..STEPS_MAX {
            let rows = life.states.get(&time).expect("the newest state is kept").clone();
            match input.byte() {
                0 => break,
                1..=9 => {
                    store.checkpoint(&mut |step| step()).expect("a checkpoint succeeds");
                    life.keep_only(time);
                }
                10..=16 => {
                    store.sync().expect("a sync succeeds");
                    life.keep_only(time);
                }
                17..=20 => store.maintain(&mut |step| step()).expect("upkeep succeeds"),
                21..=24 => {
                    let prefix = (LOADED + step as u32).to_be_bytes();
                    let new: Rows = (0..1 + input.byte() % 40)
                        .map(|number| ((Space::Index, key_of(prefix, number)), value(input)))
                        .collect();
                    let mut feed =
                        new.iter().map(|((_, key), value)| Ok((key.as_slice().into(), value.clone())));
                    store.ingest(Space::Index, &mut feed, &mut |step| step()).expect("a load succeeds");
                    life.loaded.extend(new);
                    life.keep_only(time);
                }
                25..=27 if !life.dropped => {
                    store.drop_trees(&[DROPPED], &mut |step| step()).expect("a drop succeeds");
                    life.dropped = true;
                    let mut rows = rows;
                    rows.retain(|(space, key), _| (*space, &key[..4]) != (DROPPED.0, &DROPPED.1[..]));
                    life.states = BTreeMap::from([(time, rows)]);
                }
                28..=36 => {
                    drop(store);
                    store = open(&life.disk).expect("a store opens after a death");
                    assert_eq!(store.commit_time(), time, "a death loses no batch");
                    life.judge(&store, false);
                }
                37..=45 => {
                    drop(store);
                    let mut dice = Dice(u64::from(input.byte()) << 8 | step as u64);
                    life.disk = life.disk.image().power_cut(&mut dice);
                    store = open(&life.disk).expect("a store opens after a loss of power");
                    life.judge(&store, false);
                    time = store.commit_time();
                    life.keep_only(time);
                }
                46..=49 => {
                    store.close(&mut |step| step()).expect("a close succeeds");
                    drop(store);
                    life.keep_only(time);
                    store = open(&life.disk).expect("a closed store opens");
                }
                what => {
                    time += 1;
                    let batch = life.batch(input);
                    let sync = what % 2 == 0;
                    store.apply(&mut batch.iter(), time, sync).expect("a batch succeeds");
                    let mut rows = rows;
                    apply(&mut rows, &batch);
                    life.states.insert(time, rows);
                    if sync {
                        life.keep_only(time);
                    }
                }
            }
        }
        life
    }

    /// Earlier states than this cannot come back any more.
    fn keep_only(&mut self, time: u64) {
        self.states.retain(|kept, _| *kept >= time);
    }

    fn batch(&self, input: &mut Input) -> Vec<Write> {
        let mut batch = BTreeMap::new();
        for _ in 0..1 + input.byte() % 12 {
            let which = usize::from(input.byte());
            let (space, prefix) = match which % (TREES.len() + 1) {
                last if last == TREES.len() && !self.dropped => DROPPED,
                tree => TREES[tree % TREES.len()],
            };
            let key = key_of(prefix, input.byte() % 60);
            let value = (which < 200).then(|| value(input));
            batch.insert((space, key), value);
        }
        let write = |((space, key), value)| Write { space, key: Bytes::from(key), value };
        batch.into_iter().map(write).collect()
    }

    fn judge(&self, store: &TreeBackend, damaged: bool) {
        let time = store.commit_time();
        let newest = self.states.get(&time);
        assert!(
            newest.is_some() || damaged,
            "a start gives a state that was synced, not that after batch {time}"
        );
        // A damaged journal that looks like one whose end was torn leads to an earlier state: it is exact, but may be
        // one that is not kept here any more. Then nothing is known of its rows.
        let Some(state) = newest else { return };
        let mut expected = state.clone();
        expected.extend(self.loaded.clone());
        let is_whole = read(&store.view(), &expected);
        assert!(is_whole || damaged, "a page is reported as damaged although nothing is");
    }
}

/// Changes bytes of files; whether anything is other than before.
fn damage(files: &mut BTreeMap<String, Vec<u8>>, input: &mut Input) -> bool {
    let before = files.clone();
    for _ in 0..DAMAGES_MAX {
        if input.is_over() {
            break;
        }
        let at = usize::from(input.byte()) % files.len();
        let bytes = files.values_mut().nth(at).expect("it is below their number");
        let place = u32::from_le_bytes([input.byte(), input.byte(), input.byte(), 0]) as usize;
        let change = input.byte();
        if bytes.is_empty() {
            continue;
        }
        let place = place % bytes.len();
        match change {
            0 => bytes.truncate(place),
            1 => bytes[place..].iter_mut().take(512).for_each(|byte| *byte = 0),
            other => bytes[place] ^= other,
        }
    }
    *files != before
}

fn open(disk: &MemoryDisk) -> kilim_error::Result<TreeBackend> {
    TreeBackend::open(Arc::new(disk.clone()), MEMORY, false, None)
}

/// Whether all rows can be read; panics if one of them is wrong, missing or too many.
fn read(view: &View, expected: &Rows) -> bool {
    let mut is_whole = true;
    for ((space, key), value) in expected {
        match view.get(*space, key) {
            Ok(found) => assert!(found.as_ref() == Some(value), "{space:?} {key:?} is wrong"),
            Err(_) => is_whole = false,
        }
    }
    for space in Space::ALL {
        let mut wanted = expected.iter().filter(|((of, _), _)| *of == space);
        let mut failed = false;
        for row in view.rows(space, Bound::Unbounded, Bound::Unbounded, Direction::Forward) {
            let Ok((key, value)) = row else {
                failed = true;
                break;
            };
            let next = wanted.next().map(|((_, key), value)| (&key[..], value));
            assert!(next == Some((&key[..], &value)), "a scan of {space:?} is wrong at {key:?}");
        }
        assert!(failed || wanted.next().is_none(), "a scan of {space:?} ends early");
        is_whole &= !failed;
    }
    is_whole
}

fn apply(rows: &mut Rows, batch: &[Write]) {
    for write in batch {
        let key = (write.space, write.key.to_vec());
        match &write.value {
            Some(value) => rows.insert(key, value.clone()),
            None => rows.remove(&key),
        };
    }
}

/// Most are short; some go to pages of their own.
fn value(input: &mut Input) -> Bytes {
    let (len, fill) = (usize::from(input.byte()), input.byte());
    let len = if len > 240 { len * 8 } else { len % 50 };
    Bytes::from(vec![fill; len])
}

fn key_of(prefix: [u8; 4], number: u8) -> Vec<u8> {
    [&prefix[..], &[number]].concat()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::disk::memory::Dice;

    #[test]
    fn no_life_breaks_a_promise() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let len = dice.roll(400);
            let input: Vec<u8> = (0..len).map(|_| dice.roll(256) as u8).collect();
            check(&input);
        }
    }
}
