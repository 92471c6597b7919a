//! Compaction of some trees: portion by portion, each a commit of its own.
//!
//! A portion holds the turn, so no checkpoint runs beside it; writers go on, because their rows are in the tables in
//! memory. Between two portions the turn is free, so a checkpoint that is due comes through, and the next portion
//! goes on from the trees that it left.

use super::TreeBackend;
use super::checkpoint::Commit;
use crate::backend::{Exclusively, Pace};
use crate::space::Space;
use crate::tree::builder::Edit;
use crate::tree::rewrite::rewrite;
use crate::tree::{BLOCK_BYTES, TreeName};
use kilim_error::{Error, Result, StorageError};
use std::time::Duration;

/// What a portion writes. A writer that has filled the tables waits for so much at most, and a tree that was dense
/// leaves a hole of this size at most.
const PORTION_BYTES: u64 = 16 << 20;

/// For a checkpoint that waits for its turn.
const PAUSE: Duration = Duration::from_millis(1);

impl TreeBackend {
    pub(super) fn compact_trees(
        &self,
        prefixes: &[(Space, [u8; 4])],
        exclusively: &mut Exclusively,
        pace: &mut Pace,
    ) -> Result<()> {
        let names: Vec<TreeName> =
            prefixes.iter().map(|(space, prefix)| TreeName::of(*space, prefix)).collect();
        let blocks_of =
            |name: &TreeName| self.state.read().forest.roots.get(name).map_or(0, |root| root.blocks);
        let total: u64 = names.iter().map(blocks_of).sum();
        let mut done_blocks = 0;
        for name in names {
            let mut from = Some(Vec::new());
            while let Some(key) = from {
                pace(done_blocks.min(total), total)?;
                let (written_bytes, next) = self.compact_portion(name, &key, exclusively)?;
                done_blocks += written_bytes.div_ceil(BLOCK_BYTES);
                from = next;
                self.disk.environment().sleep(PAUSE);
            }
        }
        pace(total, total)?;
        self.give_all_back(exclusively)
    }

    /// Rewrites a part of a tree from a key on; says how much was written and where the next portion begins.
    fn compact_portion(
        &self,
        name: TreeName,
        from: &[u8],
        exclusively: &mut Exclusively,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let mut turn = self.turn.lock();
        if turn.broken {
            return Err(StorageError::Poisoned("a superblock could not be written".into()).into());
        }
        let Some(root) = self.state.read().forest.roots.get(&name).copied() else { return Ok((0, None)) };
        let mut commit = Commit::of(self, &turn.durable);
        let mut edit = Edit::new(&self.file, &self.blocks, commit.epoch());
        edit.deadline = self.deadline.lock().map(|at| (at, self.disk.environment().clone()));
        let rewritten = match rewrite(&mut edit, name, &root, from, PORTION_BYTES) {
            Ok(rewritten) => rewritten,
            Err(error) => {
                edit.discard()?;
                return Err(error);
            }
        };
        let written_bytes = edit.written_bytes;
        commit.roots.insert(name, rewritten.root);
        self.commit(&mut turn, commit, Some(edit))?;
        exclusively(&mut || self.note_epoch(turn.durable.epoch))?;
        self.settle(&turn)?;
        Ok((written_bytes, rewritten.stopped_at))
    }

    /// Cuts the file behind its last page and gives every free block before it back to the file system.
    fn give_all_back(&self, exclusively: &mut Exclusively) -> Result<()> {
        // The states between the portions are nobody's any more.
        exclusively(&mut || Ok(()))?;
        let mut turn = self.turn.lock();
        // The map on disk says how long the file must be, so it is written once more, into a low place.
        let commit = Commit::of(self, &turn.durable);
        self.commit(&mut turn, commit, None)?;
        exclusively(&mut || self.note_epoch(turn.durable.epoch))?;
        self.settle(&turn)?;
        let blocks = self.blocks.lock();
        for (first, blocks) in blocks.free().iter() {
            self.file
                .file
                .punch(first * BLOCK_BYTES, blocks * BLOCK_BYTES)
                .map_err(|error| Error::from(StorageError::Io(format!("{}: {error}", self.disk.name()))))?;
        }
        Ok(())
    }
}
