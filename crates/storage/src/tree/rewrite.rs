//! A tree's pages again, densely, at low addresses.
//!
//! The rewrite goes through a tree in key order and hands every row to a builder, whose pages are full and lie in the
//! lowest free blocks. It works in portions: what lies before `from` was done by an earlier portion and is kept as it
//! is, and once a portion has written enough, the rest is kept too. After each portion the tree is whole, its old
//! pages can be freed, and the next portion can use their blocks. So a rewrite needs little room, and a tree that
//! was dense already moves by no more than a portion.

use super::builder::{Builder, Edit};
use super::file::{Kind, OVERFLOW_LEVEL};
use super::page::{Page, Value};
use super::{PagePtr, Root, TreeName};
use kilim_error::Result;

/// What became of a tree.
pub(crate) struct Rewritten {
    pub(crate) root: Option<Root>,
    /// Where the next portion begins.
    pub(crate) stopped_at: Option<Vec<u8>>,
}

pub(crate) fn rewrite(
    edit: &mut Edit,
    tree: TreeName,
    root: &Root,
    from: &[u8],
    budget_bytes: u64,
) -> Result<Rewritten> {
    let mut rewrite = Rewrite {
        builder: Builder::new(tree),
        tree,
        from,
        stop_at_bytes: edit.written_bytes.saturating_add(budget_bytes),
        stopped_at: None,
    };
    edit.take_grown();
    rewrite.node(edit, root.page, root.level, &[], None)?;
    let page = rewrite.builder.finish(edit)?;
    let blocks = (root.blocks as i64 + edit.take_grown()).max(0) as u64;
    Ok(Rewritten {
        root: page.map(|(page, level)| Root { page, level, blocks, ..*root }),
        stopped_at: rewrite.stopped_at,
    })
}

struct Rewrite<'f> {
    builder: Builder,
    tree: TreeName,
    from: &'f [u8],
    stop_at_bytes: u64,
    stopped_at: Option<Vec<u8>>,
}

impl Rewrite<'_> {
    /// Hands over a subtree whose keys lie in `lower..upper`.
    fn node(
        &mut self,
        edit: &mut Edit,
        at: PagePtr,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let is_done = upper.is_some_and(|upper| upper <= self.from);
        if !is_done && self.stopped_at.is_none() && edit.written_bytes >= self.stop_at_bytes {
            self.stopped_at = Some(lower.to_vec());
        }
        let stays = is_done || self.stopped_at.is_some();
        if stays && self.builder.accepts(level) {
            return self.builder.keep(edit, level, lower, at);
        }
        let page = edit.file.page(at, Kind { tree: self.tree, level })?;
        edit.give_up(at);
        if level == 0 {
            return self.leaf(edit, &page, stays);
        }
        for place in 0..page.count() {
            // The first child takes what is below its key too.
            let lower = if place == 0 { lower } else { page.key(place) };
            let upper = if place + 1 < page.count() { Some(page.key(place + 1)) } else { upper };
            self.node(edit, page.child(place)?, level - 1, lower, upper)?;
        }
        Ok(())
    }

    fn leaf(&mut self, edit: &mut Edit, page: &Page, stays: bool) -> Result<()> {
        for place in 0..page.count() {
            let (value, overflow) = page.raw_value(place);
            match page.value(place)? {
                // A long value moves with its leaf.
                Value::Overflow(at) if !stays => {
                    let value = edit.file.read(at, Kind { tree: self.tree, level: OVERFLOW_LEVEL })?;
                    edit.give_up(at);
                    self.builder.push(edit, page.key(place), &value)?;
                }
                _ => self.builder.push_as_is(edit, page.key(place), value, overflow)?,
            }
        }
        Ok(())
    }
}
