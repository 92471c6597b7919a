//! One life of a store under a seed: what it is asked to do, what happens to its disk, and what must hold.
//!
//! Everything is decided by dice from one number and happens on one thread, so a seed replays its run. A world has
//! a store, a disk in memory and a model. Its steps are batches, syncs, checkpoints, loads, drops, reads and views
//! that are held, and between them mishaps: the process dies in the middle of a change, the power goes, the disk is
//! full for a while, a sync or a write fails, reads fail.
//!
//! Invariant: after each mishap the store is what the model says after some batch, not before the last one that was
//! promised to survive; and a store that was only short of space goes on working once there is room.

use super::super::TreeBackend;
use super::super::open::Memory;
use super::model::{self, Key, Model, Rows, Tree};
use super::structure;
use crate::backend::{Backend, View};
use crate::disk::memory::{Dice, MemoryDisk};
use crate::small::{self, Small};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use kilim_error::{Error, Result, StorageError};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// How many of the last steps a failure tells of.
const TRAIL: usize = 40;

pub(super) struct World {
    seed: u64,
    dice: Dice,
    disk: MemoryDisk,
    memory: Memory,
    store: Option<Arc<TreeBackend>>,
    model: Model,
    /// States that readers hold, and what they must see for ever.
    held: Vec<(View, Rows)>,
    trees: Vec<Tree>,
    next_tree: u32,
    /// The segment of the change log that takes events.
    segment: u32,
    /// What is wrong with the disk at the moment.
    mishap: Mishap,
    steps: u64,
    trail: Vec<String>,
    pub(super) checkpoints: u64,
    pub(super) opened: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    None,
    /// The disk is full, or nearly.
    Full,
    /// A sync or a write will fail.
    Failing,
    /// Some reads fail.
    Unreadable,
    /// The process is about to die.
    Dying,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed after {} steps; its last ones:", self.seed, self.steps);
            self.trail.iter().for_each(|step| eprintln!("  {step}"));
        }
        self.disk.heal();
        small::set(None);
    }
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let mut one_of = |choice: &[u64]| choice[dice.roll(choice.len() as u64) as usize];
        let sizes = Small {
            leaf_bytes: one_of(&[200, 400, 1000, 4000]) as usize,
            inner_bytes: one_of(&[150, 300, 1000]) as usize,
            overflow_bytes_min: one_of(&[100, 500, 3000]) as usize,
            portion_bytes_min: one_of(&[1, 4096, 40_000]),
            slack_bytes: one_of(&[0, 64 << 10, 16 << 20]),
            journal_first: one_of(&[8192, 16384, 65536]),
            journal_largest: one_of(&[65536, 262_144]),
        };
        let memory = Memory {
            cache_bytes: one_of(&[0, 20_000, 1 << 20]),
            tables_bytes_max: one_of(&[4 << 10, 16 << 10, 64 << 10]) as usize,
        };
        // Now and then as in a program, where a checkpoint makes one leaf.
        small::set((!seed.is_multiple_of(16)).then_some(sizes));
        let trees = vec![
            (Space::Records, [0, 0, 0, 1]),
            (Space::Records, [0, 0, 0, 2]),
            (Space::Index, [0, 0, 0, 3]),
            (Space::Index, [0, 0, 1, 0]),
            (Space::Meta, *b"meta"),
        ];
        let mut world = World {
            seed,
            dice,
            disk: MemoryDisk::default(),
            memory,
            store: None,
            model: Model::default(),
            held: Vec::new(),
            trees,
            next_tree: 1000,
            segment: 77,
            mishap: Mishap::None,
            steps: 0,
            trail: Vec::new(),
            checkpoints: 0,
            opened: 0,
        };
        world.restart();
        world
    }

    pub(super) fn run(mut self) -> (u64, u64) {
        let steps = 30 + self.dice.roll(90);
        for _ in 0..steps {
            self.step();
            if self.disk.is_dead() || self.is_poisoned() {
                self.restart();
            }
        }
        self.heal();
        if !self.is_poisoned() && !self.disk.is_dead() {
            self.checkpoint();
            self.compare();
        }
        self.restart();
        (self.checkpoints, self.opened)
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice.roll(below)
    }

    fn note(&mut self, what: String) {
        if self.trail.len() == TRAIL {
            self.trail.remove(0);
        }
        self.trail.push(what);
    }

    fn store(&self) -> Arc<TreeBackend> {
        self.store.clone().expect("a store is open between steps")
    }

    fn is_poisoned(&self) -> bool {
        let store = self.store();
        store.journal.is_poisoned() || store.turn.lock().broken || store.file.has_failed()
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.roll(100) {
            0..45 => self.batch(),
            45..50 => self.sync(),
            50..60 => self.checkpoint(),
            60..63 => self.maintain(),
            63..64 => self.shrink_journal(),
            64..68 => self.load(),
            68..71 => self.drop_trees(),
            71..75 => self.hold(),
            75..82 => self.read_held(),
            82..86 => self.compare(),
            86..88 => self.restart(),
            _ if self.mishap == Mishap::None => self.begin_mishap(),
            _ if self.roll(3) == 0 => self.heal(),
            _ => self.batch(),
        }
    }

    /// Panics unless an error can be explained by what is wrong with the disk.
    fn explain(&mut self, what: &str, error: &Error) {
        self.note(format!("{what} failed: {error}"));
        let explained = match error {
            // Whatever keeps the journal from growing is told as a lack of space, for nothing was written.
            Error::Storage(StorageError::Corrupt(_)) => false,
            Error::Storage(_) => self.mishap != Mishap::None,
            _ => false,
        };
        assert!(explained, "seed {}: {what} failed without a reason: {error}", self.seed);
        if self.mishap == Mishap::Full {
            assert!(!self.is_poisoned(), "seed {}: a full disk has poisoned the store: {error}", self.seed);
        }
    }

    fn key(&mut self) -> Key {
        let (space, prefix) = self.trees[self.dice.roll(self.trees.len() as u64) as usize];
        let number = match self.roll(3) {
            0 => self.roll(2000),
            _ => self.roll(60),
        };
        (space, key_of(prefix, number))
    }

    fn value(&mut self) -> Bytes {
        let len = match self.roll(20) {
            0 => self.roll(9000),
            1..4 => self.roll(1200),
            _ => self.roll(60),
        } as usize;
        let mut value = vec![self.roll(256) as u8; len];
        if self.roll(2) == 0 {
            // Such a value does not compress.
            for chunk in value.chunks_mut(8) {
                let random = self.roll(u64::MAX).to_le_bytes();
                chunk.copy_from_slice(&random[..chunk.len()]);
            }
        }
        Bytes::from(value)
    }

    fn batch(&mut self) {
        let writes = match self.roll(10) {
            0 => 60,
            _ => 1 + self.roll(8),
        };
        let deletes = [0, 2, 5, 9][self.roll(4) as usize];
        let mut batch = BTreeMap::new();
        for _ in 0..writes {
            let key = self.key();
            let value = if self.roll(10) < deletes { None } else { Some(self.value()) };
            batch.insert(key, value);
        }
        let mut batch: Vec<Write> = batch
            .into_iter()
            .map(|((space, key), value)| Write { space, key: Bytes::from(key), value })
            .collect();
        let time = self.model.next_time();
        if self.roll(4) == 0 {
            batch.extend(model::events_of(&batch, self.segment, time));
        }
        let sync = self.roll(3) == 0;
        self.note(format!("batch {time} of {} writes, sync {sync}", batch.len()));
        match self.store().apply(&mut batch.iter(), time, sync) {
            Ok(()) => self.model.succeeded(batch, sync),
            Err(error) => {
                self.explain("a batch", &error);
                if !matches!(error, Error::Storage(StorageError::OutOfSpace { .. })) {
                    self.model.doubtful(batch);
                    assert!(
                        self.disk.is_dead() || self.is_poisoned(),
                        "a batch is in doubt, yet more may come"
                    );
                }
            }
        }
    }

    fn sync(&mut self) {
        self.note("sync".into());
        match self.store().sync() {
            Ok(()) => self.model.durable = self.model.applied,
            Err(error) => self.explain("a sync", &error),
        }
    }

    fn checkpoint(&mut self) {
        self.note("checkpoint".into());
        match self.store().checkpoint(&mut |step| step()) {
            Ok(()) => self.checkpointed(),
            Err(error) => self.explain("a checkpoint", &error),
        }
    }

    fn checkpointed(&mut self) {
        self.checkpoints += 1;
        self.model.durable = self.model.applied;
        self.check_structure();
    }

    fn check_structure(&mut self) {
        if matches!(self.mishap, Mishap::Unreadable) || self.disk.is_dead() {
            return;
        }
        let free = match structure::check(&self.disk) {
            Ok(free) => free,
            Err(problems) => panic!("seed {}: {}", self.seed, problems.join("\n")),
        };
        let store = self.store();
        let mut blocks = store.blocks.lock();
        if self.held.is_empty() && blocks.waiting_blocks() == 0 {
            blocks.shrink();
            let found: Vec<_> = blocks.free().iter().collect();
            let on_disk: Vec<_> = free.iter().collect();
            assert_eq!(found, on_disk, "seed {}: memory and disk differ in what is free", self.seed);
        }
    }

    fn maintain(&mut self) {
        self.note("upkeep".into());
        if let Err(error) = self.store().maintain(&mut |step| step()) {
            self.explain("upkeep", &error);
        }
    }

    /// As after a long quiet.
    fn shrink_journal(&mut self) {
        self.note("a smaller journal".into());
        if let Err(error) = self.store().shrink_journal(&mut |step| step()) {
            self.explain("a smaller journal", &error);
        }
    }

    /// A load of a new tree, or of new rows into one that exists.
    fn load(&mut self) {
        let is_new = self.roll(3) > 0;
        let (space, prefix) = match is_new {
            true => {
                self.next_tree += 1;
                let space = if self.roll(2) == 0 { Space::Records } else { Space::Index };
                (space, self.next_tree.to_be_bytes())
            }
            false => self.trees[self.dice.roll(self.trees.len() as u64) as usize],
        };
        // Keys that no batch has.
        let first = 10_000 + 1000 * self.steps;
        let count = 1 + self.roll(150);
        let rows: Rows =
            (first..first + count).map(|number| ((space, key_of(prefix, number)), self.value())).collect();
        let interrupted = if self.roll(3) == 0 { self.roll(count) } else { u64::MAX };
        let broken = if self.roll(8) == 0 { self.roll(count) } else { u64::MAX };
        self.note(format!("load of {count} rows into {space:?} {prefix:?}, checkpoint at {interrupted}"));
        let store = self.store();
        let checkpointed = Cell::new(false);
        let mut feed = rows.iter().enumerate().map(|(at, ((_, key), value))| {
            if at as u64 == interrupted {
                checkpointed.set(store.checkpoint(&mut |step| step()).is_ok());
            }
            if at as u64 == broken {
                return Err(Error::bug("the rows end here"));
            }
            Ok((key.as_slice().into(), value.clone()))
        });
        let loaded = store.ingest(space, &mut feed, &mut |step| step());
        if checkpointed.get() {
            self.model.durable = self.model.applied;
        }
        match loaded {
            Ok(()) => {
                self.model.loaded(rows);
                if is_new {
                    self.trees.push((space, prefix));
                } else {
                    // It came as a batch that was synced.
                    self.model.durable = self.model.applied;
                }
            }
            Err(Error::Bug(message)) if message == "the rows end here" => {}
            Err(error) => {
                self.explain("a load", &error);
                if self.disk.is_dead() || self.is_poisoned() {
                    self.model.load_doubtful(rows);
                    if is_new {
                        self.trees.push((space, prefix));
                    }
                }
            }
        }
        if self.mishap == Mishap::None {
            self.check_structure();
        }
    }

    fn drop_trees(&mut self) {
        if self.roll(4) == 0 {
            self.segment += 1;
            return self.drop_tree((Space::Log, (self.segment - 1).to_be_bytes()));
        }
        let droppable: Vec<usize> =
            (0..self.trees.len()).filter(|at| self.trees[*at].0 != Space::Meta).collect();
        if droppable.len() < 4 {
            return;
        }
        let at = droppable[self.dice.roll(droppable.len() as u64) as usize];
        let tree = self.trees.remove(at);
        self.drop_tree(tree);
    }

    fn drop_tree(&mut self, tree: Tree) {
        self.note(format!("drop of {tree:?}"));
        self.model.drop_begins(tree);
        match self.store().drop_trees(&[tree], &mut |step| step()) {
            Ok(()) => {
                self.model.drop_succeeded(tree);
                self.checkpointed();
                self.compare();
            }
            Err(error) => self.explain("a drop", &error),
        }
    }

    fn hold(&mut self) {
        if self.held.len() < 3 && self.model.dropping.is_empty() {
            self.note("a reader holds this state".into());
            self.held.push((self.store().view(), self.model.rows.clone()));
        }
    }

    /// Reads a held state again, or lets it go.
    fn read_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.dice.roll(self.held.len() as u64) as usize;
        let (view, rows) = self.held.swap_remove(at);
        self.note("a reader reads again".into());
        self.read(&view, &rows);
        if self.roll(3) > 0 {
            self.held.push((view, rows));
        }
    }

    /// Compares the newest state with the model.
    fn compare(&mut self) {
        let view = self.store().view();
        if self.model.dropping.is_empty() {
            let rows = std::mem::take(&mut self.model.rows);
            self.read(&view, &rows);
            self.model.rows = rows;
            return;
        }
        match model::contents(&view) {
            Ok(found) => self.model.compare(&found).unwrap_or_else(|how| panic!("seed {}: {how}", self.seed)),
            Err(error) => self.explain("a read", &error),
        }
    }

    /// Scans both ways, ranges and lookups.
    fn read(&mut self, view: &View, rows: &Rows) {
        if let Err(error) = self.try_read(view, rows) {
            self.explain("a read", &error);
        }
    }

    fn try_read(&mut self, view: &View, rows: &Rows) -> Result<()> {
        let all = model::contents(view)?;
        assert!(
            all == *rows,
            "seed {}: a state differs: {} rows, expected {}",
            self.seed,
            all.len(),
            rows.len()
        );
        for _ in 0..4 {
            let (space, one) = self.key();
            let (_, two) = self.key();
            let bound = |kind: u64, key| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Excluded(key),
                _ => Bound::Included(key),
            };
            let (low, high) = if one <= two { (&one[..], &two[..]) } else { (&two[..], &one[..]) };
            let (lower, upper) = (bound(self.roll(4), low), bound(self.roll(4), high));
            let within = |key: &[u8]| {
                let above = match lower {
                    Bound::Unbounded => true,
                    Bound::Included(low) => key >= low,
                    Bound::Excluded(low) => key > low,
                };
                above
                    && match upper {
                        Bound::Unbounded => true,
                        Bound::Included(high) => key <= high,
                        Bound::Excluded(high) => key < high,
                    }
            };
            let mut expected: Vec<(&Key, &Bytes)> =
                rows.iter().filter(|((of, key), _)| *of == space && within(key)).collect();
            let backward = self.roll(2) == 0;
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            if backward {
                expected.reverse();
            }
            let mut expected = expected.into_iter();
            for row in view.rows(space, lower, upper, direction) {
                let (key, value) = row?;
                let wanted = expected.next().map(|((_, key), value)| (&key[..], value));
                assert!(wanted == Some((&key[..], &value)), "seed {}: a range differs", self.seed);
            }
            assert!(expected.next().is_none(), "seed {}: a range ends early", self.seed);
            let found = view.get(space, &one)?;
            assert!(found.as_ref() == rows.get(&(space, one)), "seed {}: a lookup differs", self.seed);
        }
        Ok(())
    }

    fn begin_mishap(&mut self) {
        let (disk, seed) = (self.disk.clone(), self.roll(u64::MAX));
        self.mishap = match self.roll(5) {
            0 => {
                let room = [0, 4096, 40_000, 200_000][self.roll(4) as usize];
                self.note(format!("the disk has room for {room} bytes"));
                self.disk.set_room(Some(room));
                Mishap::Full
            }
            1 => {
                let (operation, only) = (["sync", "write"][self.roll(2) as usize], self.roll(3));
                let mut left = 1 + self.roll(6);
                self.note(format!("{operation} number {left} will fail"));
                let mut dice = Dice(seed);
                self.disk.clone().fail(move |each, name, _| {
                    let file_matters = match only {
                        0 => true,
                        1 => name == super::super::open::TREES,
                        _ => name != super::super::open::TREES,
                    };
                    if each != operation || !file_matters {
                        return Ok(());
                    }
                    left = left.saturating_sub(1);
                    if left != 0 {
                        return Ok(());
                    }
                    left = u64::MAX;
                    if operation == "sync" {
                        disk.lose_unsynced(name, &mut dice);
                    }
                    Err(io::Error::other("a bad disk"))
                });
                Mishap::Failing
            }
            2 => {
                let mut dice = Dice(seed);
                let one_in = 1 + self.roll(30);
                self.note(format!("one in {one_in} reads fails"));
                self.disk.fail_reads(move |_, _| match dice.roll(one_in) {
                    0 => Err(io::Error::other("a bad sector")),
                    _ => Ok(()),
                });
                Mishap::Unreadable
            }
            _ => {
                let changes = 1 + self.roll(60);
                self.note(format!("the process dies after {changes} changes"));
                let tear = self.roll(u64::MAX);
                self.disk.die_after(changes, tear);
                Mishap::Dying
            }
        };
    }

    /// Puts the disk in order; what failed for want of that must work now.
    fn heal(&mut self) {
        if self.mishap == Mishap::Dying || self.disk.is_dead() {
            return;
        }
        let before = std::mem::replace(&mut self.mishap, Mishap::None);
        self.disk.heal();
        self.disk.set_room(None);
        if before == Mishap::None || self.is_poisoned() {
            return;
        }
        self.note(format!("{before:?} is over"));
        self.checkpoint();
        self.batch();
    }

    /// Ends the process, if there is one, by a close, a death or a power cut; and starts it again, in the beginning
    /// on an empty disk.
    fn restart(&mut self) {
        let mut cut = self.roll(2) == 0;
        let closes = self.store.is_some() && self.roll(2) == 0;
        if closes && self.mishap == Mishap::None && !self.disk.is_dead() && !self.is_poisoned() {
            // Now and then there is no time for a checkpoint, and the journal is closed instead.
            let in_haste = self.roll(3) == 0;
            if in_haste {
                self.store().end_by(std::time::Instant::now());
            }
            self.note(format!("close, in haste {in_haste}"));
            self.store().close(&mut |step| step()).unwrap_or_else(|error| panic!("a close failed: {error}"));
            self.model.durable = self.model.applied;
        }
        self.held.clear();
        self.store = None;
        let mut least = self.model.applied;
        loop {
            // A fault may hold the disk that holds it.
            self.disk.heal();
            self.disk = if cut { self.disk.image().power_cut(&mut self.dice) } else { self.disk.copy() };
            if cut {
                least = self.model.durable;
            }
            self.note(format!("the end, by {}", if cut { "a power cut" } else { "death" }));
            self.mishap = Mishap::None;
            // Now and then something happens to the start as well.
            match self.roll(6) {
                0 => {
                    let (changes, tear) = (1 + self.roll(25), self.roll(u64::MAX));
                    self.disk.die_after(changes, tear);
                }
                1 => self.disk.set_room(Some(0)),
                2 => {
                    let mut left = 1 + self.roll(5);
                    let (disk, mut dice) = (self.disk.clone(), Dice(self.roll(u64::MAX)));
                    self.disk.clone().fail(move |each, name, _| {
                        left = left.saturating_sub(u64::from(each == "sync"));
                        if left == 0 && each == "sync" {
                            left = u64::MAX;
                            disk.lose_unsynced(name, &mut dice);
                            return Err(io::Error::other("a bad disk"));
                        }
                        Ok(())
                    });
                }
                _ => {}
            }
            match TreeBackend::open(Arc::new(self.disk.clone()), self.memory, false, None) {
                Ok(store) if !self.disk.is_dead() => {
                    self.store = Some(Arc::new(store));
                    self.disk.heal();
                    self.disk.set_room(None);
                    self.disk.forget_death();
                    break;
                }
                Ok(_) => {}
                Err(Error::Storage(StorageError::Corrupt(how))) => {
                    panic!("seed {}: the store is refused: {how}", self.seed)
                }
                Err(error) => self.note(format!("the start failed: {error}")),
            }
            cut = self.roll(2) == 0;
        }
        let view = self.store().view();
        let time = self.store().commit_time();
        self.opened += 1;
        self.note(format!("opened after batch {time}"));
        if let Err(how) = self.model.reopened(time, &view, least) {
            panic!("seed {}: {how}", self.seed);
        }
        self.check_structure();
    }
}

/// A key of some length that follows from its number.
fn key_of(prefix: [u8; 4], number: u64) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key.extend_from_slice(&(number as u32).to_be_bytes());
    let padding = match number % 7 {
        0 => number as usize * 13 % 250,
        1 => 20,
        _ => 0,
    };
    key.resize(key.len() + padding, number as u8);
    key
}
