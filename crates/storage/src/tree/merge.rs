//! Changes in key order into a tree.
//!
//! The merge goes down only where something changes. There it gives the old pages up and hands the builder the
//! rows that stay and the rows that are new; subtrees without changes are handed over as they are, unread.
//!
//! Within a budget of bytes the merge stops between two leaves. What it has done by then is a whole tree with all
//! changes before some key, and the rest can follow in another epoch, when the pages given up are free. So a full
//! disk can be emptied with little room.

use super::builder::{Builder, Edit};
use super::file::Kind;
use super::page::Page;
use super::{PagePtr, Root, TreeName};
use crate::space::Bytes;
use kilim_error::Result;
use std::iter::Peekable;

/// A key's new value, or its end.
pub(crate) type Change<'c> = (&'c Bytes, Option<&'c Bytes>);

/// What became of a tree.
pub(crate) struct Merged {
    pub(crate) root: Option<Root>,
    /// The first key whose change was left out, for lack of budget.
    pub(crate) stopped_at: Option<Bytes>,
}

pub(crate) fn merge<'c>(
    edit: &mut Edit,
    tree: TreeName,
    root: Option<Root>,
    changes: impl Iterator<Item = Change<'c>>,
    budget_bytes: u64,
) -> Result<Merged> {
    let mut merge = Merge {
        builder: Builder::new(tree),
        tree,
        changes: changes.peekable(),
        stop_at_bytes: edit.written_bytes.saturating_add(budget_bytes),
        stopped_at: None,
        rows: root.map_or(0, |root| root.rows as i64),
        overflows: root.map_or(0, |root| root.overflows as i64),
    };
    let before_blocks = root.map_or(0, |root| root.blocks as i64);
    edit.take_grown();
    match root {
        Some(root) => merge.node(edit, root.page, root.level, &[], None)?,
        None => merge.rows_before(edit, None)?,
    }
    let page = merge.builder.finish(edit)?;
    let blocks = (before_blocks + edit.take_grown()).max(0) as u64;
    let (rows, overflows) = (merge.rows.max(0) as u64, merge.overflows.max(0) as u64);
    Ok(Merged {
        root: page.map(|(page, level)| Root { page, level, rows, blocks, overflows }),
        stopped_at: merge.stopped_at,
    })
}

struct Merge<'c, I: Iterator<Item = Change<'c>>> {
    builder: Builder,
    tree: TreeName,
    changes: Peekable<I>,
    stop_at_bytes: u64,
    stopped_at: Option<Bytes>,
    rows: i64,
    overflows: i64,
}

impl<'c, I: Iterator<Item = Change<'c>>> Merge<'c, I> {
    /// Hands over a subtree whose keys lie in `lower..upper`, with its changes.
    fn node(
        &mut self,
        edit: &mut Edit,
        at: PagePtr,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        if !self.changes_before(edit, upper) && self.builder.accepts(level) {
            return self.builder.keep(edit, level, lower, at);
        }
        let page = edit.file.page(at, Kind { tree: self.tree, level })?;
        edit.give_up(at);
        if level == 0 {
            return self.leaf(edit, &page, upper);
        }
        for place in 0..page.count() {
            // The first child takes what is below its key too.
            let lower = if place == 0 { lower } else { page.key(place) };
            let upper = if place + 1 < page.count() { Some(page.key(place + 1)) } else { upper };
            self.node(edit, page.child(place)?, level - 1, lower, upper)?;
        }
        Ok(())
    }

    fn leaf(&mut self, edit: &mut Edit, page: &Page, upper: Option<&[u8]>) -> Result<()> {
        for place in 0..page.count() {
            let key = page.key(place);
            self.rows_before(edit, Some(key))?;
            let (value, overflow) = page.raw_value(place);
            let replaced = self.stopped_at.is_none()
                && self.changes.peek().is_some_and(|(changed, _)| changed[..] == *key);
            if !replaced {
                self.builder.push_as_is(edit, key, value, overflow)?;
                continue;
            }
            if overflow {
                edit.give_up(page.child(place)?);
                self.overflows -= 1;
            }
            if let Some((key, value)) = self.changes.next() {
                match value {
                    Some(value) => self.put(edit, key, value)?,
                    None => self.rows -= 1,
                }
            }
        }
        self.rows_before(edit, upper)
    }

    /// New rows with keys less than `upper`.
    fn rows_before(&mut self, edit: &mut Edit, upper: Option<&[u8]>) -> Result<()> {
        while self.stopped_at.is_none() {
            let next = self.changes.next_if(|(key, _)| upper.is_none_or(|upper| key[..] < *upper));
            let Some((key, value)) = next else { return Ok(()) };
            if let Some(value) = value {
                self.put(edit, key, value)?;
                self.rows += 1;
            }
        }
        Ok(())
    }

    fn put(&mut self, edit: &mut Edit, key: &[u8], value: &[u8]) -> Result<()> {
        let before = self.builder.overflows;
        self.builder.push(edit, key, value)?;
        self.overflows += (self.builder.overflows - before) as i64;
        Ok(())
    }

    /// Whether a change lies before `upper`, and there is budget for it.
    fn changes_before(&mut self, edit: &Edit, upper: Option<&[u8]>) -> bool {
        if self.stopped_at.is_some() {
            return false;
        }
        let Some((key, _)) = self.changes.peek() else { return false };
        if upper.is_some_and(|upper| key[..] >= *upper) {
            return false;
        }
        if edit.written_bytes >= self.stop_at_bytes {
            self.stopped_at = Some((*key).clone());
            return false;
        }
        true
    }
}
