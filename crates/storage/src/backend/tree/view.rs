//! An immutable state of the tree backend: memory over trees.
//!
//! What was written since the last checkpoint lies in the active tables; while a checkpoint runs, what it writes
//! lies in the frozen ones; everything else is in the forest. A lookup asks them in this order. A scan merges
//! them: where several have a key, the newest wins.

use super::{Frozen, Tables};
use crate::memtable::Cursor as TableCursor;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space};
use crate::tree::cursor::{self, Cursor as TreeCursor};
use crate::tree::file::PageFile;
use crate::tree::forest::Forest;
use crate::tree::{Root, TreeName};
use kilim_error::{Error, Result};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic;

#[derive(Clone)]
pub(crate) struct TreeView {
    pub(super) active: Arc<Tables>,
    /// The newest batch of `active` that belongs to the state.
    pub(super) sequence: u64,
    pub(super) frozen: Option<Arc<Frozen>>,
    pub(super) forest: Arc<Forest>,
    pub(super) file: Arc<PageFile>,
}

impl TreeView {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.active.space(space).get(key, self.sequence) {
            return Ok(value.clone());
        }
        if let Some(frozen) = &self.frozen
            && let Some(value) = frozen.tables.space(space).get(key, u64::MAX)
        {
            return Ok(value.clone());
        }
        let name = TreeName::of(space, key);
        match self.forest.roots.get(&name) {
            Some(root) => cursor::get(&self.file, name, root, key),
            None => Ok(None),
        }
    }

    pub(crate) fn rows(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> TreeRows {
        let active = TableCursor::new(self.active.space(space), self.sequence, lower, upper, direction);
        let frozen = self
            .frozen
            .as_ref()
            .map(|frozen| TableCursor::new(frozen.tables.space(space), u64::MAX, lower, upper, direction));
        // A table without rows in the range costs nothing any more.
        let frozen = frozen.filter(|cursor| cursor.peek().is_some());
        let mut rows = TreeRows {
            direction,
            tables: [active.peek().is_some().then_some(active), frozen],
            trees: Trees::new(self, space, lower, upper, direction),
            failed: None,
            skipped: 0,
            active: self.active.clone(),
        };
        rows.failed = rows.trees.next_tree().err();
        rows
    }
}

/// The rows of a range of a view.
pub(crate) struct TreeRows {
    direction: Direction,
    /// The active table and the frozen one, for as long as they have rows ahead.
    tables: [Option<TableCursor>; 2],
    trees: Trees,
    failed: Option<Error>,
    /// Deletions that were passed.
    skipped: u64,
    active: Arc<Tables>,
}

impl Iterator for TreeRows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.failed.take() {
                self.tables = [None, None];
                self.trees.end();
                return Some(Err(error));
            }
            if let [None, None] = self.tables {
                return self.trees.take();
            }
            if let Some(row) = self.merge() {
                return Some(Ok(row));
            }
            if self.failed.is_none() && self.tables.iter().all(Option::is_none) && self.trees.key().is_none()
            {
                return None;
            }
        }
    }
}

impl TreeRows {
    /// The next row, or `None` after a step that gave none.
    fn merge(&mut self) -> Option<(Bytes, Bytes)> {
        let direction = self.direction;
        let before = |a: &[u8], b: &[u8]| match direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        };
        // The table whose key comes first; the active one if both have it.
        let mut chosen: Option<(usize, &Bytes)> = None;
        let mut twice = false;
        for (at, table) in self.tables.iter().enumerate() {
            let Some((key, _)) = table.as_ref().and_then(TableCursor::peek) else { continue };
            match chosen.map(|(_, first)| before(key, first)) {
                Some(Ordering::Greater) => {}
                Some(Ordering::Equal) => twice = true,
                Some(Ordering::Less) | None => chosen = Some((at, key)),
            }
        }
        let (at, key) = chosen?;
        let tree = self.trees.key().map(|tree| before(tree, key));
        if tree == Some(Ordering::Less) {
            return match self.trees.take()? {
                Ok(row) => Some(row),
                Err(error) => {
                    self.failed = Some(error);
                    None
                }
            };
        }
        if tree == Some(Ordering::Equal)
            && let Err(error) = self.trees.skip()
        {
            self.failed = Some(error);
            return None;
        }
        if twice {
            self.advance(1);
        }
        let row = self.tables[at]
            .as_ref()
            .and_then(TableCursor::peek)
            .and_then(|(key, value)| Some((key.clone(), value?.clone())));
        self.skipped += u64::from(row.is_none());
        self.advance(at);
        row
    }

    fn advance(&mut self, at: usize) {
        if let Some(table) = &mut self.tables[at] {
            table.advance();
            if table.peek().is_none() {
                self.tables[at] = None;
            }
        }
    }
}

impl Drop for TreeRows {
    fn drop(&mut self) {
        if self.skipped > 0 {
            self.active.skipped.fetch_add(self.skipped, atomic::Ordering::Relaxed);
        }
    }
}

/// The rows of all trees that a range touches, nearly always one.
struct Trees {
    file: Arc<PageFile>,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    /// The trees that are left, the next one last.
    left: Vec<(TreeName, Root)>,
    current: Option<TreeCursor>,
    /// Pages of a state that nobody holds may be written over.
    _forest: Arc<Forest>,
}

impl Trees {
    fn new(
        view: &TreeView,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Trees {
        let first = match lower {
            Bound::Included(key) | Bound::Excluded(key) => TreeName::of(space, key),
            Bound::Unbounded => TreeName { space: space as u8, prefix: 0 },
        };
        let last = match upper {
            Bound::Included(key) | Bound::Excluded(key) => TreeName::of(space, key),
            Bound::Unbounded => TreeName { space: space as u8, prefix: u32::MAX },
        };
        let mut left: Vec<_> = match first <= last {
            true => view.forest.roots.range(first..=last).map(|(name, root)| (*name, *root)).collect(),
            false => Vec::new(),
        };
        if direction == Direction::Forward {
            left.reverse();
        }
        Trees {
            file: view.file.clone(),
            lower: lower.map(Bytes::from),
            upper: upper.map(Bytes::from),
            direction,
            left,
            current: None,
            _forest: view.forest.clone(),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        self.current.as_ref()?.key()
    }

    fn take(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        let row = self.current.as_mut()?.take()?;
        if self.key().is_none()
            && let Err(error) = self.next_tree()
        {
            self.end();
            return Some(Err(error));
        }
        if row.is_err() {
            self.end();
        }
        Some(row)
    }

    fn skip(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.current {
            cursor.skip()?;
        }
        match self.key() {
            Some(_) => Ok(()),
            None => self.next_tree(),
        }
    }

    /// Goes on to the next tree that has a row in the range.
    fn next_tree(&mut self) -> Result<()> {
        while self.key().is_none() {
            let Some((name, root)) = self.left.pop() else {
                self.current = None;
                return Ok(());
            };
            let (lower, upper) = (as_slice(&self.lower), as_slice(&self.upper));
            self.current = Some(TreeCursor::new(&self.file, name, &root, lower, upper, self.direction)?);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.left.clear();
        self.current = None;
    }
}

fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
