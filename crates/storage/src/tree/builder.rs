//! From rows in key order, and subtrees that stay as they are, to the pages of a tree.
//!
//! An [`Edit`] is everything that is written and given up for one epoch. A [`Builder`] makes one tree in it: it
//! keeps the unfinished page of every level, writes a page when it has enough for two, and hands its place to the
//! level above. So ascending rows make full pages. What is left when a subtree follows that stays as it is, is
//! written as one page or as two halves. A remainder too small for a page of its own is not: the builder then does
//! not accept the subtree, and its caller hands over the subtree's content instead, so that pages stay well filled
//! after deletions.
//!
//! Invariant: every page but those at the right edge of the tree holds at least a quarter of a full page, and a
//! child's key in its parent is greater than every key before the child and not greater than any key in it.

use super::blocks::Blocks;
use super::file::{Encoder, HEADER_BYTES, Kind, OVERFLOW_LEVEL, PageFile};
use super::page::PageRows;
use super::{BLOCK_BYTES, PagePtr, Root, TreeName};
use crate::environment::Environment;
use crate::extents::{Extent, FreeMap};
use crate::space::{Bytes, Space};
use kilim_error::{Result, StorageError};
use parking_lot::Mutex;
use std::time::Instant;

/// A leaf of documents before compression. Large leaves compress well and scan fast; a cold lookup reads the
/// whole of one.
const RECORD_LEAF_BYTES: usize = 32 << 10;

/// A leaf of the log, which is not compressed: whole blocks.
const LOG_LEAF_BYTES: usize = (32 << 10) - HEADER_BYTES;

/// Other leaves are touched at random by writes, so they are smaller.
const LEAF_BYTES: usize = 16 << 10;

const INNER_BYTES: usize = 16 << 10;

/// An inner page is full with at least this many children, however long their keys are. With one child a page, a level
/// would be as long as the one below, and the tree would grow without end.
const CHILDREN_MIN: usize = 4;

/// Longer values get pages of their own, so that a leaf's neighbours can change without rewriting them.
pub(crate) const OVERFLOW_BYTES_MIN: usize = 16 << 10;

/// What one epoch writes and gives up.
pub(crate) struct Edit<'e> {
    pub(crate) file: &'e PageFile,
    blocks: &'e Mutex<Blocks>,
    pub(crate) epoch: u64,
    encoder: Encoder,
    pub(crate) written: Vec<Extent>,
    pub(crate) given_up: Vec<PagePtr>,
    pub(crate) written_bytes: u64,
    /// Past this the edit fails, because the store is being closed.
    pub(crate) deadline: Option<(Instant, Environment)>,
    /// Pages of this epoch become part of the state as well.
    pub(crate) adopts: Option<u64>,
    /// Blocks written less blocks given up, since a tree's merge last asked.
    grown: i64,
    /// A page could not be written: an error is not one of the tree that is being read.
    pub(crate) write_failed: bool,
    /// Leaves are put into the cache. Whoever wrote these rows is likely to read them, unless it is a whole tree at once.
    pub(crate) caches_leaves: bool,
}

impl<'e> Edit<'e> {
    pub(crate) fn new(file: &'e PageFile, blocks: &'e Mutex<Blocks>, epoch: u64) -> Edit<'e> {
        let encoder = Encoder::default();
        let (written, given_up) = (Vec::new(), Vec::new());
        Edit {
            file,
            blocks,
            epoch,
            encoder,
            written,
            given_up,
            written_bytes: 0,
            deadline: None,
            adopts: None,
            grown: 0,
            write_failed: false,
            caches_leaves: true,
        }
    }

    pub(crate) fn write(&mut self, kind: Kind, raw: &[u8]) -> Result<PagePtr> {
        self.write_parts(kind, [raw, &[]])
    }

    /// A page whose content lies in two places.
    fn write_parts(&mut self, kind: Kind, raw: [&[u8]; 2]) -> Result<PagePtr> {
        if self.deadline.as_ref().is_some_and(|(deadline, environment)| environment.now() > *deadline) {
            self.write_failed = true;
            return Err(StorageError::Io("the store is being closed".into()).into());
        }
        let encoded = self.encoder.encode(kind, raw, self.epoch);
        let extent = self.blocks.lock().allocate(encoded.blocks(), self.epoch);
        self.written.push(extent);
        let (bytes, at) = encoded.place(extent.first);
        self.written_bytes += bytes.len() as u64;
        self.grown += i64::from(extent.blocks);
        let written = self.file.file.write_at(bytes, extent.first * BLOCK_BYTES);
        self.write_failed |= written.is_err();
        written.map_err(from_write)?;
        Ok(at)
    }

    /// Blocks for a page whose length is known before its content.
    pub(crate) fn allocate(&mut self, blocks: u32) -> Extent {
        let extent = self.blocks.lock().allocate(blocks, self.epoch);
        self.written.push(extent);
        extent
    }

    pub(crate) fn write_at(&mut self, kind: Kind, raw: &[u8], extent: Extent) -> Result<PagePtr> {
        let encoded = self.encoder.encode(kind, [raw, &[]], self.epoch);
        debug_assert_eq!(encoded.blocks(), extent.blocks);
        let (bytes, at) = encoded.place(extent.first);
        self.file.file.write_at(bytes, extent.first * BLOCK_BYTES).map_err(from_write)?;
        Ok(at)
    }

    /// The map of blocks that the next start finds free.
    pub(crate) fn free_on_disk(&self) -> Result<FreeMap> {
        let epochs = [self.epoch, self.adopts.unwrap_or(self.epoch)];
        self.blocks.lock().free_on_disk(&self.given_up, &epochs)
    }

    pub(crate) fn give_up(&mut self, page: PagePtr) {
        self.grown -= i64::from(page.extent().blocks);
        self.given_up.push(page);
    }

    /// By how many blocks a tree grew since this was last asked.
    pub(crate) fn take_grown(&mut self) -> i64 {
        std::mem::take(&mut self.grown)
    }

    /// Nothing of it becomes part of a state.
    pub(crate) fn discard(self) -> Result<()> {
        self.blocks.lock().discard(&self.written)
    }

    /// What was done so far, to come back to if a tree cannot be merged.
    pub(crate) fn savepoint(&self) -> (usize, usize) {
        (self.written.len(), self.given_up.len())
    }

    pub(crate) fn undo_to(&mut self, (written, given_up): (usize, usize)) -> Result<()> {
        let undone = self.written.split_off(written);
        self.given_up.truncate(given_up);
        self.take_grown();
        undone.iter().for_each(|extent| self.file.forget(extent.first, self.epoch));
        self.blocks.lock().discard(&undone)
    }
}

/// A full disk leaves the file as it was for every state: it is worth a try later.
fn from_write(error: std::io::Error) -> kilim_error::Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StorageError::OutOfSpace { free_bytes: 0, reserve_bytes: 0 }.into()
        }
        _ => StorageError::Io(format!("a page could not be written: {error}")).into(),
    }
}

pub(crate) struct Builder {
    tree: TreeName,
    leaf_bytes: usize,
    inner_bytes: usize,
    overflow_bytes_min: usize,
    /// The unfinished page of each level, leaves first.
    levels: Vec<PageRows>,
    /// The last key of the leaf that was written last, if the next row follows it directly.
    last: Option<Vec<u8>>,
    pub(crate) rows: u64,
    pub(crate) overflows: u64,
}

impl Builder {
    pub(crate) fn new(tree: TreeName) -> Builder {
        let leaf_bytes = match tree.space {
            space if space == Space::Records as u8 => RECORD_LEAF_BYTES,
            space if space == Space::Log as u8 => LOG_LEAF_BYTES,
            _ => LEAF_BYTES,
        };
        let (inner_bytes, overflow_bytes_min) = (INNER_BYTES, OVERFLOW_BYTES_MIN);
        #[cfg(any(test, feature = "fuzzing"))]
        let (leaf_bytes, inner_bytes, overflow_bytes_min) = match crate::small::sizes() {
            Some(small) => (small.leaf_bytes, small.inner_bytes, small.overflow_bytes_min),
            None => (leaf_bytes, inner_bytes, overflow_bytes_min),
        };
        let levels = vec![PageRows::default()];
        Builder {
            tree,
            leaf_bytes,
            inner_bytes,
            overflow_bytes_min,
            levels,
            last: None,
            rows: 0,
            overflows: 0,
        }
    }

    /// A row whose value is given.
    pub(crate) fn push(&mut self, edit: &mut Edit, key: &[u8], value: &[u8]) -> Result<()> {
        if value.len() >= self.overflow_bytes_min {
            let at = edit.write(Kind { tree: self.tree, level: OVERFLOW_LEVEL }, value)?;
            return self.push_as_is(edit, key, &at.encode(), true);
        }
        self.push_as_is(edit, key, value, false)
    }

    /// A row as it lay in a leaf.
    pub(crate) fn push_as_is(
        &mut self,
        edit: &mut Edit,
        key: &[u8],
        value: &[u8],
        overflow: bool,
    ) -> Result<()> {
        self.levels[0].push(key, value, overflow);
        self.rows += 1;
        self.overflows += u64::from(overflow);
        if self.levels[0].bytes() >= 2 * self.leaf_bytes {
            self.flush(edit, 0, self.leaf_bytes)?;
        }
        Ok(())
    }

    /// Whether a subtree of this level can follow as it is.
    pub(crate) fn accepts(&self, level: u8) -> bool {
        let below = self.levels.iter().take(usize::from(level) + 1).enumerate();
        below.into_iter().all(|(level, rows)| rows.count() == 0 || rows.bytes() >= self.page_bytes(level) / 4)
    }

    /// A subtree as it is. Every row so far is less than `key`, and no row in it is.
    pub(crate) fn keep(&mut self, edit: &mut Edit, level: u8, key: &[u8], page: PagePtr) -> Result<()> {
        for below in 0..=usize::from(level) {
            self.flush_all(edit, below)?;
        }
        self.last = None;
        self.push_child(edit, usize::from(level) + 1, key, page)
    }

    /// Writes what is left and gives the root's place and level, if there is any row.
    pub(crate) fn finish(&mut self, edit: &mut Edit) -> Result<Option<(PagePtr, u8)>> {
        let mut level = 0;
        loop {
            let above = self.levels[level + 1..].iter().any(|rows| rows.count() > 0);
            let rows = &self.levels[level];
            if !above {
                if rows.count() == 0 {
                    return Ok(None);
                }
                if level > 0 && rows.count() == 1 {
                    let (offsets, row) = rows.encode(1);
                    let only = super::page::Page::decode(Bytes::fused(&offsets, row))?.child(0)?;
                    return Ok(Some((only, level as u8 - 1)));
                }
                if !self.is_for_two(level) {
                    let page = self.write(edit, level, rows.count())?;
                    return Ok(Some((page, level as u8)));
                }
            }
            self.flush_all(edit, level)?;
            level += 1;
        }
    }

    fn page_bytes(&self, level: usize) -> usize {
        if level == 0 { self.leaf_bytes } else { self.inner_bytes }
    }

    /// Whether what is unfinished of a level is more than one page should hold.
    fn is_for_two(&self, level: usize) -> bool {
        let count = if level == 0 { 2 } else { 2 * CHILDREN_MIN };
        let rows = &self.levels[level];
        rows.bytes() > self.page_bytes(level) * 5 / 4 && rows.count() >= count
    }

    /// Writes what is unfinished of a level as one page or two halves.
    fn flush_all(&mut self, edit: &mut Edit, level: usize) -> Result<()> {
        let Some(rows) = self.levels.get(level) else { return Ok(()) };
        let bytes = rows.bytes();
        if self.is_for_two(level) {
            self.flush(edit, level, bytes / 2)?;
        }
        match self.levels[level].count() {
            0 => Ok(()),
            _ => self.flush(edit, level, usize::MAX),
        }
    }

    /// Writes one page of about `bytes` and tells the level above.
    fn flush(&mut self, edit: &mut Edit, level: usize, bytes: usize) -> Result<()> {
        let rows = &self.levels[level];
        let least = if level == 0 { 1 } else { CHILDREN_MIN.min(rows.count()) };
        let count = rows.fitting(bytes).max(least);
        let key = match &self.last {
            Some(last) if level == 0 => separator(last, rows.key(0)).to_vec(),
            _ => rows.key(0).to_vec(),
        };
        if level == 0 {
            self.last = Some(rows.key(count - 1).to_vec());
        }
        let page = self.write(edit, level, count)?;
        self.levels[level].remove(count);
        self.push_child(edit, level + 1, &key, page)
    }

    fn write(&self, edit: &mut Edit, level: usize, count: usize) -> Result<PagePtr> {
        let (offsets, rows) = self.levels[level].encode(count);
        let kind = Kind { tree: self.tree, level: level as u8 };
        // Of the log only streams read that fell far behind.
        if level == 0 && (!edit.caches_leaves || self.tree.space == Space::Log as u8) {
            return edit.write_parts(kind, [&offsets, rows]);
        }
        let raw = Bytes::fused(&offsets, rows);
        let page = edit.write(kind, &raw)?;
        edit.file.keep(page, raw);
        Ok(page)
    }

    fn push_child(&mut self, edit: &mut Edit, level: usize, key: &[u8], page: PagePtr) -> Result<()> {
        // A kept subtree may be the first thing in its level and in those below.
        while self.levels.len() <= level {
            self.levels.push(PageRows::default());
        }
        let rows = &mut self.levels[level];
        rows.push(key, &page.encode(), false);
        match rows.bytes() >= 2 * self.inner_bytes && rows.count() >= 2 * CHILDREN_MIN {
            true => self.flush(edit, level, self.inner_bytes),
            false => Ok(()),
        }
    }
}

/// A tree made of rows that ascend.
pub(crate) fn build(
    edit: &mut Edit,
    tree: TreeName,
    rows: &mut dyn Iterator<Item = Result<(Bytes, Bytes)>>,
) -> Result<Option<Root>> {
    let mut builder = Builder::new(tree);
    for row in rows {
        let (key, value) = row?;
        builder.push(edit, &key, &value)?;
    }
    let root = builder.finish(edit)?;
    let blocks = edit.take_grown() as u64;
    Ok(root.map(|(page, level)| Root {
        page,
        level,
        rows: builder.rows,
        blocks,
        overflows: builder.overflows,
    }))
}

/// The shortest beginning of `key` that is greater than `before`.
fn separator<'k>(before: &[u8], key: &'k [u8]) -> &'k [u8] {
    let common = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    &key[..key.len().min(common + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_short_and_between() {
        for (before, key, expected) in [("abc", "abd", "abd"), ("abc", "b", "b"), ("a", "abcdef", "ab")] {
            let found = separator(before.as_bytes(), key.as_bytes());
            assert_eq!(found, expected.as_bytes());
            assert!(found > before.as_bytes() && found <= key.as_bytes());
        }
    }
}
