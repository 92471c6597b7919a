//! A disk that lies: a write that lands elsewhere, or a sync that was not done.
//!
//! A store lives on an honest disk for a while, with deaths in the middle of checkpoints and losses of power. Then the disk
//! lies for some steps: one write goes to another place of its file or to another file, or syncs are reported as done, and
//! what they were to write is lost at the next loss of power. What is left is judged as damage is: the start must refuse,
//! or the store holds exactly what it held after some commit, and a page that cannot be read is an error.
//!
//! No acknowledged batch is promised to survive here: who says that something is on disk cannot be checked.

use super::corruption::{Subject, Tally, apply, batch, open};
use super::model::Rows;
use crate::backend::Backend;
use crate::backend::tree::TreeBackend;
use crate::backend::tree::open::LOCK;
use crate::disk::Disk;
use crate::disk::memory::{Dice, MemoryDisk};
use crate::small::{self, Small};
use std::collections::BTreeMap;

const SEGMENT: u32 = 21;

struct Life {
    dice: Dice,
    disk: MemoryDisk,
    store: Option<TreeBackend>,
    rows: Rows,
    /// By commit time.
    states: BTreeMap<u64, Rows>,
    time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    Misdirected,
    NotSynced,
}

/// Lives one life that ends with a lie, and judges what is left.
pub(super) fn check(seed: u64, lie: Lie) -> Tally {
    let mut dice = Dice(seed ^ 0x11E5);
    small::set(Some(Small {
        leaf_bytes: [300, 1000][dice.roll(2) as usize],
        inner_bytes: [200, 500][dice.roll(2) as usize],
        overflow_bytes_min: 200,
        portion_bytes_min: 4096,
        slack_bytes: 64 << 10,
        journal_first: 8192,
        journal_largest: 65536,
    }));
    let disk = MemoryDisk::default();
    disk.create(LOCK).unwrap();
    let store = Some(open(&disk).unwrap());
    let states = BTreeMap::from([(0, Rows::new())]);
    let mut life = Life { dice, disk, store, rows: Rows::new(), states, time: 0 };
    for _ in 0..5 + life.dice.roll(25) {
        life.step().unwrap_or_else(|error| panic!("seed {seed}: an honest disk fails: {error}"));
    }
    let what = life.lie(lie);
    for _ in 0..1 + life.dice.roll(8) {
        // What fails now has a reason; a row that is read is judged in the end.
        if life.step().is_err() {
            break;
        }
    }
    let Life { mut dice, disk, store, states, .. } = life;
    drop(store);
    disk.heal();
    let left = match lie == Lie::NotSynced || dice.roll(2) == 0 {
        true => disk.image().power_cut(&mut dice),
        false => disk,
    };
    let subject = Subject::left(left.contents(), states);
    let mut tally = Tally { cases: 1, ..Tally::default() };
    subject.judge(left.contents(), &format!("seed {seed}: {what}"), &mut dice, &mut tally);
    small::set(None);
    tally
}

impl Life {
    fn step(&mut self) -> kilim_error::Result<()> {
        let Life { dice, store, .. } = self;
        let open = store.as_ref().expect("a store is open between steps");
        match dice.roll(12) {
            0 | 1 => open.checkpoint(&mut |step| step()),
            2 => open.sync(),
            3 => open.maintain(&mut |step| step()),
            4 => self.die(),
            _ => {
                self.time += 1;
                let batch = batch(dice, SEGMENT, self.time);
                // One that fails may be there afterwards.
                let mut rows = self.rows.clone();
                apply(&mut rows, &batch);
                self.states.insert(self.time, rows.clone());
                open.apply(&mut batch.iter(), self.time, dice.roll(2) == 0)?;
                self.rows = rows;
                Ok(())
            }
        }
    }

    /// The process dies in a checkpoint, or the power goes, and the store is opened again.
    fn die(&mut self) -> kilim_error::Result<()> {
        let (changes, tear) = (1 + self.dice.roll(30), self.dice.roll(u64::MAX));
        self.disk.die_after(changes, tear);
        if let Some(store) = self.store.take() {
            let _ = store.checkpoint(&mut |step| step());
        }
        let cut = self.dice.roll(2) == 0;
        self.disk = if cut { self.disk.image().power_cut(&mut self.dice) } else { self.disk.copy() };
        let store = open(&self.disk)?;
        self.time = store.commit_time();
        self.states.split_off(&(self.time + 1));
        self.rows = self.states[&self.time].clone();
        self.store = Some(store);
        Ok(())
    }

    fn lie(&mut self, lie: Lie) -> String {
        let (disk, mut dice) = (self.disk.clone(), Dice(self.dice.roll(u64::MAX)));
        let mut left = 1 + self.dice.roll(10);
        match lie {
            Lie::Misdirected => {
                let what = format!("write number {left} goes elsewhere");
                self.disk.misdirect(move |name, _| {
                    left = left.saturating_sub(1);
                    if left != 0 {
                        return None;
                    }
                    left = u64::MAX;
                    let files: Vec<(String, Vec<u8>)> = disk.contents().into_iter().collect();
                    let elsewhere = dice.roll(4) == 0;
                    let (name, bytes) = match files.iter().find(|(each, _)| each == name) {
                        Some(same) if !elsewhere => same,
                        _ => &files[dice.roll(files.len() as u64) as usize],
                    };
                    let unit = [512, 4096][dice.roll(2) as usize];
                    Some((name.clone(), unit * dice.roll(bytes.len() as u64 / unit + 1)))
                });
                what
            }
            Lie::NotSynced => {
                let one_in = 1 + self.dice.roll(3);
                self.disk.clone().fail(move |operation, name, _| {
                    if operation == "sync" && dice.roll(one_in) == 0 {
                        disk.lose_unsynced(name, &mut dice);
                    }
                    Ok(())
                });
                format!("one in {one_in} syncs is not done")
            }
        }
    }
}
