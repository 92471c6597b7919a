//! Bulk loads: a tree is built beside all others and put in place at once.
//!
//! The rows go into pages that belong to no state while they are written. The last step adds the finished trees
//! to the directory by a commit of its own, which merges nothing and so takes no longer than a few syncs.

use super::TreeBackend;
use super::checkpoint::Commit;
use crate::backend::{Exclusively, Sorted};
use crate::space::{Space, Write};
use crate::tree::builder::{self, Edit};
use crate::tree::{Root, TreeName};
use kilim_error::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Bound;

impl TreeBackend {
    pub(super) fn ingest_rows(
        &self,
        space: Space,
        rows: &mut Sorted,
        exclusively: &mut Exclusively,
    ) -> Result<()> {
        let mut rows = rows.peekable();
        let mut trees = BTreeMap::new();
        let mut edit = Edit::new(&self.file, &self.blocks, self.next_epoch());
        edit.caches_leaves = false;
        let mut late: Vec<Write> = Vec::new();
        let built = loop {
            let name = match rows.peek() {
                Some(Ok((key, _))) => TreeName::of(space, key),
                Some(Err(_)) => break rows.next().map_or(Ok(()), |row| row.map(drop)),
                None => break Ok(()),
            };
            let mut of_tree = std::iter::from_fn(|| {
                rows.next_if(|row| row.as_ref().map_or(true, |(key, _)| TreeName::of(space, key) == name))
            });
            if space == Space::Meta || self.has_rows(space, name) {
                // Trees that exist take rows as any batch brings them.
                let taken = of_tree.try_for_each(|row| {
                    let (key, value) = row?;
                    late.push(Write { space, key, value: Some(value) });
                    Ok(())
                });
                match taken {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                }
            }
            match builder::build(&mut edit, name, &mut of_tree) {
                Ok(Some(root)) => trees.insert(name, root),
                Ok(None) => continue,
                Err(error) => break Err(error),
            };
        };
        if let Err(error) = built.and_then(|()| self.file.sync()) {
            edit.discard()?;
            return Err(error);
        }
        self.put_in_place(space, edit, trees, late, exclusively)
    }

    fn put_in_place(
        &self,
        space: Space,
        edit: Edit,
        trees: BTreeMap<TreeName, Root>,
        late: Vec<Write>,
        exclusively: &mut Exclusively,
    ) -> Result<()> {
        let mut turn = self.turn.lock();
        let mut edit = Some(edit);
        exclusively(&mut || {
            if !late.is_empty() {
                let commit_time = self.state.read().commit_time;
                crate::backend::Backend::apply(self, &mut late.iter(), commit_time, true)?;
            }
            let Some(loaded) = edit.take() else { return Ok(()) };
            if trees.is_empty() {
                return loaded.discard();
            }
            if trees.keys().any(|name| self.has_rows(space, *name)) {
                loaded.discard()?;
                return Err(Error::bug("a tree was written to while it was loaded"));
            }
            let mut commit = Commit::of(self, &turn.durable);
            commit.roots.extend(trees.iter().map(|(name, root)| (*name, Some(*root))));
            self.commit(&mut turn, commit, Some(loaded))?;
            self.note_epoch(turn.durable.epoch)
        })
    }

    /// Whether a tree has rows, or had some that a state still knows.
    fn has_rows(&self, space: Space, name: TreeName) -> bool {
        let view = self.tree_view();
        if view.forest.roots.contains_key(&name) {
            return true;
        }
        let prefix = name.prefix.to_be_bytes();
        let tables = [Some(&view.active), view.frozen.as_ref().map(|frozen| &frozen.tables)];
        tables.into_iter().flatten().any(|tables| {
            let lower = Bound::Included(prefix.as_slice());
            tables.space(space).newest(lower).next().is_some_and(|(key, _)| TreeName::of(space, key) == name)
        })
    }
}
