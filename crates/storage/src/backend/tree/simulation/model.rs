//! What a store should hold: maps in memory, and which of its batches were promised to whom.
//!
//! Batches are numbered; a batch's number is its commit time, so an opened store says itself after which batch it
//! is. A load is no batch: it is there as a whole or not at all, wherever the batches end. Trees that were dropped
//! may have any rows until the drop has succeeded, and none afterwards.

use crate::backend::View;
use crate::snapshot::Direction;
use crate::space::{Bytes, STAMP_BYTES, Space, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub(super) type Key = (Space, Vec<u8>);
pub(super) type Rows = BTreeMap<Key, Bytes>;
pub(super) type Tree = (Space, [u8; 4]);

#[derive(Default)]
pub(super) struct Model {
    /// After the batch `base_time`.
    base: Rows,
    base_time: u64,
    /// Those behind, in order.
    batches: Vec<Vec<Write>>,
    /// After the last batch that succeeded.
    pub(super) rows: Rows,
    /// The last batch that succeeded.
    pub(super) applied: u64,
    /// The last batch that is promised to survive a power cut.
    pub(super) durable: u64,
    /// Loads that failed in a way that leaves open whether they are on disk.
    uncertain: Vec<Rows>,
    /// Trees whose drop has begun.
    pub(super) dropping: BTreeSet<Tree>,
    /// Trees whose drop has succeeded.
    pub(super) gone: BTreeSet<Tree>,
}

pub(super) fn tree_of((space, key): &Key) -> Option<Tree> {
    Some((*space, *key.first_chunk::<4>()?))
}

/// What the change log holds of a batch: an event of each of its first records, and behind it the record's document, which
/// both share. Events of records that are too short or gone are all of one row.
pub(super) fn events_of(batch: &[Write], segment: u32, time: u64) -> Vec<Write> {
    let mut rows = Vec::new();
    for (index, record) in batch.iter().filter(|write| write.space == Space::Records).take(3).enumerate() {
        let key = [&segment.to_be_bytes()[..], &time.to_be_bytes(), &(index as u32).to_be_bytes()].concat();
        let head = vec![index as u8; 8 + (time * 31 % 300) as usize];
        let document = record.value.as_ref().filter(|value| value.len() >= STAMP_BYTES);
        let document = document.map(|value| Write {
            space: Space::Log,
            key: Bytes::fused(&key, &[1]),
            value: Some(value.slice(STAMP_BYTES..)),
        });
        rows.push(Write { space: Space::Log, key: Bytes::from(key), value: Some(Bytes::from(head)) });
        rows.extend(document);
    }
    rows
}

impl Model {
    pub(super) fn next_time(&self) -> u64 {
        self.applied + 1
    }

    pub(super) fn succeeded(&mut self, batch: Vec<Write>, synced: bool) {
        apply(&mut self.rows, &batch);
        self.batches.push(batch);
        self.applied += 1;
        if synced {
            self.durable = self.applied;
        }
    }

    /// The last batch before an end may be there or not.
    pub(super) fn doubtful(&mut self, batch: Vec<Write>) {
        self.batches.push(batch);
    }

    pub(super) fn loaded(&mut self, rows: Rows) {
        self.base.extend(rows.clone());
        self.rows.extend(rows);
    }

    pub(super) fn load_doubtful(&mut self, rows: Rows) {
        self.uncertain.push(rows);
    }

    pub(super) fn drop_begins(&mut self, tree: Tree) {
        self.dropping.insert(tree);
        self.base.retain(|key, _| tree_of(key) != Some(tree));
        self.rows.retain(|key, _| tree_of(key) != Some(tree));
        for batch in &mut self.batches {
            batch.retain(|write| tree_of(&(write.space, write.key.to_vec())) != Some(tree));
        }
    }

    pub(super) fn drop_succeeded(&mut self, tree: Tree) {
        self.dropping.remove(&tree);
        self.gone.insert(tree);
    }

    /// Compares a store that was just opened; `least` is the batch that must be there.
    pub(super) fn reopened(&mut self, time: u64, view: &View, least: u64) -> Result<(), String> {
        let attempted = self.base_time + self.batches.len() as u64;
        if !(least..=attempted).contains(&time) {
            return Err(format!("it came back after batch {time}, expected {least}..={attempted}"));
        }
        for batch in &self.batches[..(time - self.base_time) as usize] {
            apply(&mut self.base, batch);
        }
        let found = contents(view).map_err(|error| format!("it cannot be read: {error}"))?;
        for load in std::mem::take(&mut self.uncertain) {
            if load.keys().next().is_some_and(|first| found.contains_key(first)) {
                self.base.extend(load);
            }
        }
        self.batches.clear();
        self.base_time = time;
        (self.applied, self.durable) = (time, time);
        self.rows = self.base.clone();
        self.compare(&found)
    }

    pub(super) fn compare(&self, found: &Rows) -> Result<(), String> {
        let ignored = |key: &Key| tree_of(key).is_some_and(|tree| self.dropping.contains(&tree));
        let mut found = found.iter().filter(|(key, _)| !ignored(key));
        let mut expected = self.rows.iter();
        loop {
            match (found.next(), expected.next()) {
                (None, None) => return Ok(()),
                (found, expected) if found == expected => {}
                (found, expected) => {
                    let short = |row: Option<(&Key, &Bytes)>| match row {
                        Some((key, value)) => format!("{key:?} with {} bytes", value.len()),
                        None => "nothing".to_owned(),
                    };
                    return Err(format!("found {}, expected {}", short(found), short(expected)));
                }
            }
        }
    }
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

/// All rows of a view, read forward.
pub(super) fn contents(view: &View) -> kilim_error::Result<Rows> {
    let mut rows = Rows::new();
    for space in Space::ALL {
        for row in view.rows(space, Bound::Unbounded, Bound::Unbounded, Direction::Forward) {
            let (key, value) = row?;
            rows.insert((space, key.to_vec()), value);
        }
    }
    Ok(rows)
}
