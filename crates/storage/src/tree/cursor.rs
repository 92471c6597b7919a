//! Lookups and scans in one tree.
//!
//! A cursor owns the pages on its way from the root to a leaf, so it can wait in a server cursor while the store
//! goes on. The bounds of a scan are looked at once a leaf and not once a row.

use super::file::{Kind, PageFile};
use super::page::{Page, Value};
use super::{Root, TreeName};
use crate::backend::memory::as_slice;
use crate::snapshot::Direction;
use crate::space::Bytes;
use kilim_error::Result;
use std::ops::Bound;
use std::sync::Arc;

/// The value of a key.
pub(crate) fn get(file: &PageFile, tree: TreeName, root: &Root, key: &[u8]) -> Result<Option<Bytes>> {
    let mut at = root.page;
    for level in (1..=root.level).rev() {
        let page = file.page(at, Kind { tree, level })?;
        at = page.child(page.child_of(key))?;
    }
    let leaf = file.page(at, Kind { tree, level: 0 })?;
    let Some(place) = leaf.find(key) else { return Ok(None) };
    match leaf.value(place)? {
        Value::Here(value) => Ok(Some(value)),
        Value::Overflow(at) => file.overflow(at, tree).map(Some),
    }
}

/// The rows of a range of one tree.
pub(crate) struct Cursor {
    file: Arc<PageFile>,
    tree: TreeName,
    direction: Direction,
    /// The bound that the scan runs towards.
    far: Bound<Bytes>,
    /// Inner pages from the root down, each with the child that the scan is in.
    path: Vec<(Page, usize)>,
    leaf: Option<Page>,
    /// Rows of the leaf that are left: `next..end`.
    next: usize,
    end: usize,
    /// The range ends in this leaf.
    last: bool,
}

impl Cursor {
    pub(crate) fn new(
        file: &Arc<PageFile>,
        tree: TreeName,
        root: &Root,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        let (near, far) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Backward => (upper, lower),
        };
        let mut cursor = Cursor {
            file: file.clone(),
            tree,
            direction,
            far: far.map(Bytes::from),
            path: Vec::with_capacity(usize::from(root.level)),
            leaf: None,
            next: 0,
            end: 0,
            last: false,
        };
        let mut at = root.page;
        for level in (1..=root.level).rev() {
            let page = file.page(at, Kind { tree, level })?;
            let place = match near {
                Bound::Included(key) | Bound::Excluded(key) => page.child_of(key),
                Bound::Unbounded if direction == Direction::Forward => 0,
                Bound::Unbounded => page.count().saturating_sub(1),
            };
            at = page.child(place)?;
            cursor.path.push((page, place));
        }
        cursor.enter(file.page(at, Kind { tree, level: 0 })?, near);
        cursor.settle()?;
        Ok(cursor)
    }

    /// The key that it stands on.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let leaf = self.leaf.as_ref()?;
        (self.next < self.end).then(|| leaf.key(self.place()))
    }

    /// The row that it stands on; goes on to the next.
    pub(crate) fn take(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        let leaf = self.leaf.as_ref().filter(|_| self.next < self.end)?;
        let place = self.place();
        let row = leaf.row(place).and_then(|(key, value)| match value {
            Value::Here(value) => Ok((key, value)),
            Value::Overflow(at) => Ok((key, self.file.overflow(at, self.tree)?)),
        });
        match self.skip() {
            Ok(()) => Some(row),
            Err(error) => Some(row.and(Err(error))),
        }
    }

    /// Goes on to the next row.
    pub(crate) fn skip(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.next += 1,
            Direction::Backward => self.end -= 1,
        }
        if self.next < self.end { Ok(()) } else { self.settle() }
    }

    /// Passes over rows of the current leaf that come before a key, so many at most. Gives how many; of a scan backward none.
    pub(crate) fn pass_over(&mut self, before: Option<&[u8]>, max: usize) -> Result<usize> {
        let Some(leaf) = self.leaf.as_ref().filter(|_| self.direction == Direction::Forward) else {
            return Ok(0);
        };
        let end = before.map_or(self.end, |key| leaf.rank(key, false).min(self.end));
        let passed = end.saturating_sub(self.next).min(max);
        self.next += passed;
        self.settle()?;
        Ok(passed)
    }

    /// How many rows of the current leaf come before a key, in the direction of the scan.
    pub(crate) fn rows_before(&self, key: &[u8]) -> usize {
        let Some(leaf) = &self.leaf else { return 0 };
        match self.direction {
            Direction::Forward => leaf.rank(key, false).min(self.end).saturating_sub(self.next),
            Direction::Backward => self.end.saturating_sub(leaf.rank(key, true).max(self.next)),
        }
    }

    fn place(&self) -> usize {
        match self.direction {
            Direction::Forward => self.next,
            Direction::Backward => self.end - 1,
        }
    }

    /// Stands at the near end of a leaf, or at `near` within it.
    fn enter(&mut self, leaf: Page, near: Bound<&[u8]>) {
        let far = as_slice(&self.far);
        let (lower, upper) = match self.direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        self.next = match lower {
            Bound::Included(key) => leaf.rank(key, false),
            Bound::Excluded(key) => leaf.rank(key, true),
            Bound::Unbounded => 0,
        };
        self.end = match upper {
            Bound::Included(key) => leaf.rank(key, true),
            Bound::Excluded(key) => leaf.rank(key, false),
            Bound::Unbounded => leaf.count(),
        };
        self.last = match self.direction {
            Direction::Forward => self.end < leaf.count(),
            Direction::Backward => self.next > 0,
        };
        self.leaf = Some(leaf);
    }

    /// Goes on to the next leaf for as long as there is no row.
    fn settle(&mut self) -> Result<()> {
        while self.next >= self.end && self.leaf.is_some() {
            if self.last || !self.next_leaf()? {
                self.leaf = None;
                self.path.clear();
            }
        }
        Ok(())
    }

    fn next_leaf(&mut self) -> Result<bool> {
        let height = self.path.len();
        loop {
            let Some((page, place)) = self.path.last_mut() else { return Ok(false) };
            let following = match self.direction {
                Direction::Forward => *place + 1,
                Direction::Backward => place.wrapping_sub(1),
            };
            if following < page.count() {
                *place = following;
                break;
            }
            self.path.pop();
        }
        loop {
            let level = (height - self.path.len()) as u8;
            let Some((page, place)) = self.path.last() else { return Ok(false) };
            let page = self.file.page(page.child(*place)?, Kind { tree: self.tree, level })?;
            if level == 0 {
                self.enter(page, Bound::Unbounded);
                return Ok(true);
            }
            let place = match self.direction {
                Direction::Forward => 0,
                Direction::Backward => page.count().saturating_sub(1),
            };
            self.path.push((page, place));
        }
    }
}
