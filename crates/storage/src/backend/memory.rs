//! The memory backend: immutable ordered maps, for `--ephemeral` and as the model of the other one.
//!
//! A view is a clone of four map roots. A scan owns its map and reads ahead a run of rows at a time, since an
//! iterator that borrowed the map could not live in a server cursor.

use super::{Backend, Exclusively, Sorted, View};
use crate::clock::CommitTime;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use kilim_error::Result;
use parking_lot::Mutex;
use rpds::RedBlackTreeMapSync;
use std::collections::VecDeque;
use std::ops::Bound;

type Map = RedBlackTreeMapSync<Bytes, Bytes>;

/// Rows read ahead per visit of the map: enough to pay for the descent to where the last run ended.
const RUN_ROWS: usize = 64;

#[derive(Default)]
pub(crate) struct MemoryBackend {
    state: Mutex<MemoryView>,
}

#[derive(Clone, Default)]
pub(crate) struct MemoryView {
    maps: [Map; Space::COUNT],
    /// Sum of key and value lengths.
    bytes: u64,
    commit_time: CommitTime,
}

impl MemoryBackend {
    pub(crate) fn of(state: MemoryView) -> MemoryBackend {
        MemoryBackend { state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MemoryView {
        self.state.lock().clone()
    }
}

impl MemoryView {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        self.maps[space.at()].get(key).cloned()
    }

    pub(crate) fn rows(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> MemoryRows {
        MemoryRows {
            map: self.maps[space.at()].clone(),
            lower: lower.map(Bytes::from),
            upper: upper.map(Bytes::from),
            direction,
            run: VecDeque::new(),
            ended: false,
        }
    }

    fn set(&mut self, write: &Write) {
        let map = &mut self.maps[write.space.at()];
        if let Some(old) = map.get(&*write.key) {
            self.bytes -= (write.key.len() + old.len()) as u64;
        }
        match &write.value {
            Some(value) => {
                self.bytes += (write.key.len() + value.len()) as u64;
                map.insert_mut(write.key.clone(), value.clone());
            }
            None => {
                map.remove_mut(&*write.key);
            }
        }
    }
}

pub(crate) struct MemoryRows {
    map: Map,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    run: VecDeque<(Bytes, Bytes)>,
    ended: bool,
}

impl Iterator for MemoryRows {
    type Item = (Bytes, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        if self.run.is_empty() && !self.ended {
            self.read_run();
        }
        self.run.pop_front()
    }
}

impl MemoryRows {
    fn read_run(&mut self) {
        let (lower, upper) = (as_slice(&self.lower), as_slice(&self.upper));
        if super::is_empty_range(lower, upper) {
            self.ended = true;
            return;
        }
        let range = self.map.range::<[u8], _>((lower, upper));
        let owned = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        match self.direction {
            Direction::Forward => self.run.extend(range.take(RUN_ROWS).map(owned)),
            Direction::Backward => self.run.extend(range.rev().take(RUN_ROWS).map(owned)),
        }
        self.ended = self.run.len() < RUN_ROWS;
        if let Some((last, _)) = self.run.back() {
            let past = Bound::Excluded(last.clone());
            match self.direction {
                Direction::Forward => self.lower = past,
                Direction::Backward => self.upper = past,
            }
        }
    }
}

pub(crate) fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Backend for MemoryBackend {
    fn view(&self) -> View {
        View::Memory(self.state.lock().clone())
    }

    fn commit_time(&self) -> CommitTime {
        self.state.lock().commit_time
    }

    fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        _sync: bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        batch.for_each(|write| state.set(write));
        state.commit_time = commit_time;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        let mut writes = Vec::new();
        for row in rows {
            let (key, value) = row?;
            // Copied, because rows of a load share memory, and some may stay when others are long gone.
            writes.push(Write { space, key: Bytes::new(&key), value: Some(Bytes::new(&value)) });
        }
        exclusively(&mut || {
            let mut state = self.state.lock();
            writes.iter().for_each(|write| state.set(write));
            Ok(())
        })
    }

    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()> {
        exclusively(&mut || {
            let mut state = self.state.lock();
            for (space, prefix) in prefixes {
                let end = super::prefix_end(prefix);
                let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let rows = state.rows(*space, Bound::Included(prefix), upper, Direction::Forward);
                for (key, _) in rows {
                    state.set(&Write { space: *space, key, value: None });
                }
            }
            Ok(())
        })
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn disk_bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}
