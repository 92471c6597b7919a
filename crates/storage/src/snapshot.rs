//! Immutable views: a published state, and over it, inside a transaction, the transaction's own writes.
//!
//! A published state is made by the commit queue's leader once a batch is as durable as its members asked for;
//! snapshots share it by reference count. Scans own what they read, so they can wait in a server cursor while
//! the store goes on.
//!
//! Invariant: whatever a snapshot answered once, it answers again.

use crate::backend::memory::as_slice;
use crate::backend::{Rows, View};
use crate::clock::CommitTime;
use crate::counter::Counter;
use crate::format;
use crate::overlay::Overlay;
use crate::points::Points;
use crate::runs::{self, Known, RunRows, Runs};
use crate::space::{Bytes, Space, Write};
use kilim_error::Result;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// The state after some commit.
pub(crate) struct Published {
    pub(crate) view: View,
    pub(crate) commit_time: CommitTime,
    /// What was read before, where the backend's own lookups cost more.
    pub(crate) kept: Option<Kept>,
}

/// What earlier reads leave to later ones.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) runs: Arc<Runs>,
    pub(crate) points: Arc<Points>,
}

impl Kept {
    pub(crate) fn new(bytes_max: u64) -> Kept {
        // An index entry takes little beside the record that it leads to.
        let points = bytes_max / 16;
        Kept { runs: Arc::new(Runs::new(bytes_max - points)), points: Arc::new(Points::new(points)) }
    }

    /// Drops what is written. Called before a state with these writes is published.
    pub(crate) fn end<'w>(&self, writes: impl Iterator<Item = &'w Write> + Clone, time: CommitTime) {
        self.runs.end(writes.clone(), time);
        self.points.end(writes, time);
    }

    /// Forgets a space, after a load that went past the commit queue.
    pub(crate) fn clear(&self, space: Space, time: CommitTime) {
        match space {
            Space::Records => self.runs.clear(time),
            Space::Index => self.points.clear(time),
            Space::Meta | Space::Log => {}
        }
    }
}

impl Published {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match (space, &self.kept) {
            (Space::Records, Some(Kept { runs, .. })) => match runs.get(key, self.commit_time) {
                Known::Row(row) => return Ok(row),
                Known::Hot => runs::load(self, runs, key)?,
                Known::Nothing => {}
            },
            (Space::Index, Some(Kept { points, .. })) => {
                if let Some(value) = points.get(key, self.commit_time) {
                    return Ok(Some(value));
                }
                let found = self.view.get(space, key)?;
                if let Some(value) = &found {
                    points.offer(key, value, self.commit_time);
                }
                return Ok(found);
            }
            _ => {}
        }
        self.view.get(space, key)
    }

    /// [`Published::get`] for a writer, who is about to end the run that many of his kind would otherwise make.
    pub(crate) fn get_to_write(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.kept {
            Some(Kept { runs, .. }) if space == Space::Records => match runs.peek(key, self.commit_time) {
                Some(row) => Ok(row),
                None => self.view.get(space, key),
            },
            _ => self.view.get(space, key),
        }
    }

    fn rows(
        self: &Arc<Self>,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Rows {
        if space == Space::Records
            && direction == Direction::Forward
            && let Some(Kept { runs, .. }) = &self.kept
            && let Some(rows) = RunRows::new(self, runs, lower, upper)
        {
            return Rows::Runs(Box::new(rows));
        }
        self.view.rows(space, lower, upper, direction)
    }
}

/// An immutable view of the store.
#[derive(Clone)]
pub struct Snapshot {
    published: Arc<Published>,
    /// A transaction's writes as they were when the snapshot was made.
    overlay: Option<Overlay>,
}

/// Which end of a range a scan begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

impl Snapshot {
    pub(crate) fn new(published: Arc<Published>, overlay: Option<Overlay>) -> Snapshot {
        Snapshot { published, overlay: overlay.filter(|overlay| !overlay.is_empty()) }
    }

    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(overlay) = &self.overlay
            && let Some(value) = overlay.get(space, key)
        {
            return Ok(value.clone());
        }
        self.published.get(space, key)
    }

    /// The keys of a range with their values, in order.
    pub fn scan(&self, space: Space, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Scan {
        // The storage crate's own keys come first in `Meta` and are nobody else's business.
        let lower = match lower {
            Bound::Included(key) | Bound::Excluded(key) if key.first() > Some(&format::OWN) => lower,
            _ if space == Space::Meta => Bound::Included([format::OWN + 1].as_slice()),
            given => given,
        };
        let rows = self.published.rows(space, lower, upper, direction);
        match &self.overlay {
            Some(overlay) if overlay.has_entries() => Scan(Source::Merged(Box::new(Merged {
                overlay: overlay.clone(),
                space,
                lower: lower.map(Bytes::from),
                upper: upper.map(Bytes::from),
                direction,
                rows,
                row: None,
            }))),
            _ => Scan(Source::Plain(rows)),
        }
    }

    /// The newest commit that this view includes.
    pub fn commit_time(&self) -> CommitTime {
        self.published.commit_time
    }

    /// A counter as of this view; one that was never added to is zero.
    pub fn counter(&self, key: &[u8]) -> Result<Counter> {
        let key = format::counter_key(key);
        let stored = self.published.view.get(Space::Meta, &key)?;
        let counter = stored.map_or(Ok(Counter::default()), |stored| Counter::decode(&stored))?;
        Ok(self.overlay.as_ref().map_or(counter, |overlay| overlay.counter(&key, counter)))
    }
}

/// The rows of a range. Owns its view, so it may outlive the snapshot and move between threads.
pub struct Scan(Source);

enum Source {
    Plain(Rows),
    Merged(Box<Merged>),
}

impl Scan {
    /// Passes over rows ahead that come before a key, if one is given, and so many at most; as far as that can be told without a
    /// look at each. Gives how many: none does not mean that there are none.
    pub fn pass_over(&mut self, before: Option<&[u8]>, max: usize) -> Result<usize> {
        match &mut self.0 {
            Source::Plain(rows) => rows.pass_over(before, max),
            Source::Merged(_) => Ok(0),
        }
    }
}

impl Iterator for Scan {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Plain(rows) => rows.next(),
            Source::Merged(merged) => merged.next(),
        }
    }
}

/// An overlay over rows: the overlay wins where both have a key.
struct Merged {
    overlay: Overlay,
    space: Space,
    /// What the overlay has yet to give; shrinks from the side the scan begins at.
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    rows: Rows,
    /// A row that was read and not yet given.
    row: Option<(Bytes, Bytes)>,
}

impl Merged {
    fn next(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        loop {
            if self.row.is_none() {
                self.row = match self.rows.next() {
                    Some(Ok(row)) => Some(row),
                    Some(Err(error)) => return Some(Err(error)),
                    None => None,
                };
            }
            let own = self.overlay.first_in(
                self.space,
                as_slice(&self.lower),
                as_slice(&self.upper),
                self.direction,
            );
            let Some((own_key, own_value)) = own else { return self.row.take().map(Ok) };
            if let Some((key, _)) = &self.row {
                let order = match self.direction {
                    Direction::Forward => key[..].cmp(own_key),
                    Direction::Backward => own_key[..].cmp(key),
                };
                match order {
                    Ordering::Less => return self.row.take().map(Ok),
                    Ordering::Equal => self.row = None,
                    Ordering::Greater => {}
                }
            }
            let given = own_value.clone().map(|value| (own_key.clone(), value));
            let past = Bound::Excluded(own_key.clone());
            match self.direction {
                Direction::Forward => self.lower = past,
                Direction::Backward => self.upper = past,
            }
            if let Some(row) = given {
                return Some(Ok(row));
            }
        }
    }
}
