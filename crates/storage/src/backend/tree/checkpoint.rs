//! Checkpoints: what is in memory becomes part of the trees.
//!
//! 1. The journal begins a new segment and the active tables are frozen; both with no batch under way.
//! 2. The frozen rows are merged into their trees, tree by tree, and dead trees are given up.
//! 3. The directory of roots and the map of free blocks are written, everything is synced, and a superblock makes
//!    it the state of the file.
//! 4. Readers are shown the new trees, the frozen tables go, the journal's old segments are used again, and blocks
//!    that nobody can read any more are free.
//!
//! When space is short, steps 2 and 3 are done in portions: a portion's trees are right whatever follows, because
//! the frozen tables still lie over them and the journal still has everything. The first portion is there before step 1: it
//! gives dead trees up and writes nothing else, so that a drop makes room on a disk that has none for a journal segment.
//!
//! A tree with a page that cannot be read cannot be merged. The others are; the rows of the damaged one are written
//! once more, as a batch behind the frozen ones, so that they stay in memory and in the journal while the frozen tables
//! and the journal before them can go. From then on the store refuses writes to that tree, and to no other. Each later
//! checkpoint tries it again, until the tree is dropped.

use super::{Frozen, Tables, TreeBackend, Trouble, Turn};
use crate::backend::{Backend, Exclusively};
use crate::clock::CommitTime;
use crate::journal::{AppendError, Keep, Start};
use crate::space::{Bytes, Space, Write};
use crate::tree::builder::Edit;
use crate::tree::file::{FREE_MAP_LEVEL, HEADER_BYTES, Kind};
use crate::tree::forest::Forest;
use crate::tree::merge::{self, Merged};
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use crate::tree::{BLOCK_BYTES, DIRECTORY, PagePtr, Root, TreeName, blocks_of, walk};
use kilim_error::{Error, Result, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Below this much free space a checkpoint goes in portions.
const SCARCE_BYTES: u64 = 1 << 30;

/// The least that a portion writes.
const PORTION_BYTES_MIN: u64 = 1 << 20;

/// Free blocks inside the file are given back to the file system if they are more than this and more than half of
/// what is in use, until they are half as many.
const SLACK_BYTES: u64 = 8 << 20;

/// Shorter holes are not worth a call.
const HOLE_BLOCKS_MIN: u64 = 16;

/// What is written of a damaged tree's rows in one batch.
const AGAIN_BYTES: usize = 4 << 20;

/// What the next state of the file differs in.
pub(super) struct Commit {
    /// Trees with new roots, or without any.
    pub(super) roots: BTreeMap<TreeName, Option<Root>>,
    journal: Start,
    commit_time: CommitTime,
    epoch: u64,
}

impl Commit {
    /// One that changes nothing yet.
    pub(super) fn of(backend: &TreeBackend, durable: &Superblock) -> Commit {
        Commit {
            roots: BTreeMap::new(),
            journal: durable.journal,
            commit_time: durable.commit_time,
            epoch: backend.next_epoch(),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// What a superblock refers to.
struct Written {
    directory: Option<(PagePtr, u8)>,
    free_map: PagePtr,
    /// Blocks in the file.
    end: u64,
}

/// How far a checkpoint in portions has come.
#[derive(Clone, Default)]
struct Progress {
    /// Behind the spaces that are done.
    space: usize,
    /// The first key that is not merged.
    from: Option<Bytes>,
}

impl TreeBackend {
    pub(super) fn make_checkpoint(&self, exclusively: &mut Exclusively) -> Result<()> {
        self.checkpoint_in_turn(&mut self.turn.lock(), exclusively)
    }

    /// A checkpoint, unless somebody else has made it while this one waited for its turn.
    pub(super) fn make_due_checkpoint(&self, exclusively: &mut Exclusively) -> Result<()> {
        let mut turn = self.turn.lock();
        if self.is_due() { self.checkpoint_in_turn(&mut turn, exclusively) } else { Ok(()) }
    }

    fn checkpoint_in_turn(&self, turn: &mut Turn, exclusively: &mut Exclusively) -> Result<()> {
        if turn.broken {
            return Err(StorageError::Poisoned("a superblock could not be written".into()).into());
        }
        let result = self.merge_tables(turn, exclusively);
        let mut trouble = self.trouble.lock();
        match &result {
            Ok(()) => *trouble = None,
            Err(Error::Storage(error)) => {
                *trouble = Some(Trouble { error: error.clone(), at: self.disk.environment().now() })
            }
            Err(_) => {}
        }
        drop(trouble);
        self.checkpointed.notify_all();
        result
    }

    fn merge_tables(&self, turn: &mut Turn, exclusively: &mut Exclusively) -> Result<()> {
        let dead = self.dead.lock().clone();
        if !dead.is_empty() && self.is_scarce() {
            self.give_up_first(turn, &dead, exclusively)?;
        }
        loop {
            // Tables that an earlier try has frozen are not all: the active ones may have rows of dead trees too.
            let again = self.state.read().frozen.is_some();
            let Some(frozen) = self.freeze(&dead, exclusively)? else { break };
            self.merge_all(turn, &frozen, &dead, exclusively)?;
            if !again {
                break;
            }
        }
        self.dead.lock().retain(|name| !dead.contains(name));
        Ok(())
    }

    /// Has the journal go on in a small segment, if nothing in memory is yet to be merged: the file then needs nothing of the
    /// journal before it.
    pub(super) fn shrink_journal(&self, exclusively: &mut Exclusively) -> Result<()> {
        let Some(mut turn) = self.turn.try_lock().filter(|turn| !turn.broken) else { return Ok(()) };
        let mut commit = Commit::of(self, &turn.durable);
        let mut shrunk = None;
        exclusively(&mut || {
            let state = self.state.read();
            if state.active.is_empty() && state.frozen.is_none() {
                shrunk = self.journal.shrink().map_err(super::from_append)?;
                commit.commit_time = state.commit_time;
            }
            Ok(())
        })?;
        let Some(journal) = shrunk else { return Ok(()) };
        commit.journal = journal;
        self.commit(&mut turn, commit, None)?;
        exclusively(&mut || self.note_epoch(turn.durable.epoch))?;
        self.settle(&turn)?;
        self.journal.release_before(&journal, Keep::Small)
    }

    /// Makes a state of the file that lacks dead trees and differs in nothing else.
    fn give_up_first(
        &self,
        turn: &mut Turn,
        dead: &BTreeSet<TreeName>,
        exclusively: &mut Exclusively,
    ) -> Result<()> {
        let mut commit = Commit::of(self, &turn.durable);
        let mut edit = Edit::new(&self.file, &self.blocks, commit.epoch);
        if let Err(error) = self.give_up(&mut edit, &mut commit, dead) {
            edit.discard()?;
            return Err(error);
        }
        if commit.roots.is_empty() {
            return Ok(());
        }
        self.commit(turn, commit, Some(edit))?;
        exclusively(&mut || self.note_epoch(turn.durable.epoch))?;
        self.settle(turn)
    }

    /// Gives up the pages of trees that the file still has.
    fn give_up(&self, edit: &mut Edit, commit: &mut Commit, dead: &BTreeSet<TreeName>) -> Result<()> {
        let forest = self.state.read().forest.clone();
        for name in dead {
            let Some(root) = forest.roots.get(name) else { continue };
            commit.roots.insert(*name, None);
            walk::give_up(edit, *name, root)?;
        }
        Ok(())
    }

    /// Freezes the active tables, if there is something to write and no others are frozen.
    fn freeze(
        &self,
        dead: &BTreeSet<TreeName>,
        exclusively: &mut Exclusively,
    ) -> Result<Option<Arc<Frozen>>> {
        {
            let state = self.state.read();
            if let Some(frozen) = &state.frozen {
                return Ok(Some(frozen.clone()));
            }
            if state.active.is_empty() && dead.is_empty() {
                return Ok(None);
            }
        }
        exclusively(&mut || {
            let journal = self.journal.roll().map_err(super::from_append)?;
            let mut state = self.state.write();
            let tables = std::mem::replace(&mut state.active, Tables::new(self.disk.environment().now()));
            let commit_time = state.commit_time;
            state.frozen = Some(Arc::new(Frozen { tables, journal, commit_time }));
            Ok(())
        })?;
        Ok(self.state.read().frozen.clone())
    }

    fn merge_all(
        &self,
        turn: &mut Turn,
        frozen: &Frozen,
        dead: &BTreeSet<TreeName>,
        exclusively: &mut Exclusively,
    ) -> Result<()> {
        let mut progress = Some(Progress::default());
        let mut dead_left = dead.clone();
        let (mut damaged, mut again_bytes) = (BTreeMap::new(), 0);
        while let Some(from) = progress {
            let mut commit = Commit::of(self, &turn.durable);
            let mut edit = Edit::new(&self.file, &self.blocks, commit.epoch);
            edit.deadline = self.deadline.lock().map(|at| (at, self.disk.environment().clone()));
            let given_up = self.give_up(&mut edit, &mut commit, &std::mem::take(&mut dead_left));
            let portion = given_up
                .and_then(|()| self.portion(&mut edit, &mut commit, frozen, dead, from, &mut damaged));
            progress = match portion {
                Ok(progress) => progress,
                Err(error) => {
                    edit.discard()?;
                    return Err(error);
                }
            };
            let last = progress.is_none();
            if last {
                again_bytes = match self.write_again(frozen, &damaged, exclusively) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        edit.discard()?;
                        return Err(error);
                    }
                };
                commit.journal = frozen.journal;
                commit.commit_time = frozen.commit_time;
            }
            self.commit(turn, commit, Some(edit))?;
            if last {
                self.state.write().frozen = None;
            }
            exclusively(&mut || self.note_epoch(turn.durable.epoch))?;
            self.settle(turn)?;
        }
        self.damage.lock().note(damaged, again_bytes, frozen, dead, self.disk.environment().now());
        let keep = if self.is_scarce() { Keep::One } else { Keep::AsReleased };
        self.journal.release_before(&frozen.journal, keep)
    }

    /// Merges what fits a portion; says where the next one begins.
    fn portion(
        &self,
        edit: &mut Edit,
        commit: &mut Commit,
        frozen: &Frozen,
        dead: &BTreeSet<TreeName>,
        mut from: Progress,
        damaged: &mut BTreeMap<TreeName, StorageError>,
    ) -> Result<Option<Progress>> {
        let budget = self.portion_bytes();
        let forest = self.state.read().forest.clone();
        while let Some(space) = Space::ALL.get(from.space) {
            let lower = from.from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
            let mut changes = frozen.tables.space(*space).newest(lower).peekable();
            let Some(name) = changes.peek().map(|(key, _)| TreeName::of(*space, key)) else {
                from = Progress { space: from.space + 1, from: None };
                continue;
            };
            let next = name.prefix.checked_add(1).filter(|_| *space != Space::Meta);
            let behind = match next {
                Some(prefix) => Progress { space: from.space, from: Some(Bytes::from(prefix.to_be_bytes())) },
                None => Progress { space: from.space + 1, from: None },
            };
            if dead.contains(&name) {
                from = behind;
                continue;
            }
            let left = budget.saturating_sub(edit.written_bytes);
            if left == 0 {
                return Ok(Some(from));
            }
            let before = edit.savepoint();
            let of_tree = changes.take_while(|(key, _)| TreeName::of(*space, key) == name);
            match merge::merge(edit, name, forest.roots.get(&name).copied(), of_tree, left) {
                Ok(Merged { root, stopped_at }) => {
                    commit.roots.insert(name, root);
                    match stopped_at {
                        Some(key) => return Ok(Some(Progress { space: from.space, from: Some(key) })),
                        None => from = behind,
                    }
                }
                // A page that cannot be read.
                Err(Error::Storage(error @ (StorageError::Corrupt(_) | StorageError::Io(_))))
                    if !edit.write_failed =>
                {
                    edit.undo_to(before)?;
                    damaged.insert(name, error);
                    from = behind;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Writes the frozen rows of damaged trees to the journal and to the active tables, where those have none that are
    /// newer; says what that takes there. Then the frozen tables are needed no more.
    fn write_again(
        &self,
        frozen: &Frozen,
        damaged: &BTreeMap<TreeName, StorageError>,
        exclusively: &mut Exclusively,
    ) -> Result<usize> {
        let mut again_bytes = 0;
        if damaged.is_empty() {
            return Ok(again_bytes);
        }
        exclusively(&mut || {
            let (active, commit_time) = {
                let state = self.state.read();
                (state.active.clone(), state.commit_time)
            };
            let before = active.bytes();
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for name in damaged.keys() {
                for (space, key, value) in frozen.tables.rows_of(*name) {
                    if active.space(space).get(key, u64::MAX).is_some() {
                        continue;
                    }
                    let write = Write { space, key: key.clone(), value: value.cloned() };
                    bytes += write.bytes();
                    batch.push(write);
                    if bytes >= AGAIN_BYTES {
                        self.apply(&mut std::mem::take(&mut batch).iter(), commit_time, false)?;
                        bytes = 0;
                    }
                }
            }
            self.apply(&mut batch.iter(), commit_time, true)?;
            again_bytes = active.bytes() - before;
            Ok(())
        })?;
        Ok(again_bytes)
    }

    /// What a checkpoint may write before it has to give something back.
    fn portion_bytes(&self) -> u64 {
        #[cfg(any(test, feature = "fuzzing"))]
        if let (Some(space), Some(small)) = (self.disk.space(), crate::small::sizes()) {
            return (space.free_bytes / 4).max(small.portion_bytes_min);
        }
        match self.disk.space() {
            Some(space) if space.free_bytes < SCARCE_BYTES => (space.free_bytes / 4).max(PORTION_BYTES_MIN),
            _ => u64::MAX,
        }
    }

    /// Makes a new state of the file. `edit` holds what was written for it before.
    pub(super) fn commit(&self, turn: &mut Turn, commit: Commit, loaded: Option<Edit>) -> Result<()> {
        let mut edit = Edit::new(&self.file, &self.blocks, commit.epoch);
        let mut adopted = None;
        if let Some(loaded) = loaded {
            if loaded.epoch == commit.epoch {
                edit = loaded;
            } else {
                adopted = Some(loaded);
            }
        }
        edit.deadline = None;
        edit.adopts = adopted.as_ref().map(|loaded| loaded.epoch);
        let written = match turn.broken {
            true => Err(StorageError::Poisoned("a superblock could not be written".into()).into()),
            false => self.write_state(&mut edit, turn, &commit),
        };
        let Written { directory, free_map, end } =
            match written.and_then(|written| self.file.sync().map(|()| written)) {
                Ok(written) => written,
                Err(error) => {
                    edit.discard()?;
                    adopted.map_or(Ok(()), Edit::discard)?;
                    return Err(error);
                }
            };
        let superblock = Superblock {
            place: (turn.durable.place + 1) % SUPERBLOCKS,
            version: turn.durable.version,
            store: turn.durable.store,
            epoch: commit.epoch,
            directory,
            free_map,
            end,
            journal: commit.journal,
            commit_time: commit.commit_time,
        };
        if let Err(error) = superblock.write(&self.file) {
            // It may be on disk or not, so the pages of both states must stay as they are.
            turn.broken = true;
            return Err(error);
        }
        turn.durable = superblock;
        {
            let mut blocks = self.blocks.lock();
            if let Some(adopted) = &adopted {
                blocks.commit(&adopted.written, &adopted.given_up, commit.epoch);
            }
            blocks.commit(&edit.written, &edit.given_up, commit.epoch);
        }
        let mut state = self.state.write();
        let mut roots = state.forest.roots.clone();
        for (name, root) in commit.roots {
            match root {
                Some(root) => roots.insert(name, root),
                None => roots.remove(&name),
            };
        }
        state.forest = Arc::new(Forest::new(commit.epoch, roots, &self.epochs));
        Ok(())
    }

    /// Notes in the journal which state the file has reached. What a load or a drop changed is in the file only, so
    /// without the note a damaged superblock, or an older file put in place, would bring an earlier state back that
    /// fits the journal. Called with no batch under way.
    pub(super) fn note_epoch(&self, epoch: u64) -> Result<()> {
        let (sequence, commit_time) = {
            let state = self.state.read();
            (state.sequence + 1, state.commit_time)
        };
        match self.journal.append(sequence, commit_time, &[&super::payload::encode_epoch(epoch)], true) {
            Ok(_) => {
                self.state.write().sequence = sequence;
                Ok(())
            }
            Err(AppendError::Poisoning(error)) => Err(error),
            // The state itself is on disk; only the protection against later damage is missing.
            Err(AppendError::Unchanged(error)) => {
                tracing::warn!(%error, epoch, "the journal has no room to note the file's state");
                Ok(())
            }
        }
    }

    /// Writes the directory and the map of free blocks.
    fn write_state(&self, edit: &mut Edit, turn: &Turn, commit: &Commit) -> Result<Written> {
        let rows: Vec<(Bytes, Option<Bytes>)> = commit
            .roots
            .iter()
            .map(|(name, root)| (Bytes::from(name.encode()), root.map(|root| Bytes::from(root.encode()))))
            .collect();
        let directory = turn.durable.directory.map(|(page, level)| Root {
            page,
            level,
            rows: 0,
            blocks: 0,
            overflows: 0,
        });
        let changes = rows.iter().map(|(key, value)| (key, value.as_ref()));
        let directory = merge::merge(edit, DIRECTORY, directory, changes, u64::MAX)?.root;
        edit.give_up(turn.durable.free_map);
        let (free_map, end) = edit.write_free_map()?;
        // The last page need not fill its last block.
        let io =
            |error: std::io::Error| Error::from(StorageError::Io(format!("{}: {error}", self.disk.name())));
        if self.file.file.len().map_err(io)? < end * BLOCK_BYTES {
            // Not by `set_len`, which would cut what a load may write behind it at the same time.
            self.file.file.write_at(&[0], end * BLOCK_BYTES - 1).map_err(io)?;
        }
        Ok(Written { directory: directory.map(|root| (root.page, root.level)), free_map, end })
    }

    /// Frees what nobody can read any more, cuts the file and punches holes where much of it is free.
    pub(super) fn settle(&self, turn: &Turn) -> Result<()> {
        let mut held = self.epochs.held();
        if let Err(place) = held.binary_search(&turn.durable.epoch) {
            held.insert(place, turn.durable.epoch);
        }
        let mut blocks = self.blocks.lock();
        // Nobody reads them again, so they need not wait in the cache until others push them out.
        for page in blocks.settle(&held)? {
            self.file.forget(page.first, page.birth);
        }
        let end = blocks.shrink().max(turn.durable.end) * BLOCK_BYTES;
        let io =
            |error: std::io::Error| Error::from(StorageError::Io(format!("{}: {error}", self.disk.name())));
        if self.file.file.len().map_err(io)? > end {
            self.file.file.set_len(end).map_err(io)?;
        }
        let allocated = self.file.file.allocated_bytes().map_err(io)?;
        let used = (blocks.end() - blocks.free().free_blocks()) * BLOCK_BYTES;
        let slack_bytes = SLACK_BYTES;
        #[cfg(any(test, feature = "fuzzing"))]
        let slack_bytes = crate::small::sizes().map_or(slack_bytes, |small| small.slack_bytes);
        if allocated.saturating_sub(used) <= slack_bytes.max(used / 2) {
            return Ok(());
        }
        let mut excess = allocated.saturating_sub(used + (slack_bytes / 2).max(used / 4));
        let holes: Vec<_> = blocks.free().iter().filter(|(_, blocks)| *blocks >= HOLE_BLOCKS_MIN).collect();
        // From the end, because blocks at the front are used again first.
        for (first, blocks) in holes.into_iter().rev() {
            if excess == 0 {
                break;
            }
            self.file.file.punch(first * BLOCK_BYTES, blocks * BLOCK_BYTES).map_err(io)?;
            excess = excess.saturating_sub(blocks * BLOCK_BYTES);
        }
        Ok(())
    }

    /// Frees what a reader held that has ended since the last checkpoint.
    pub(super) fn give_space_back(&self) -> Result<()> {
        let Some(turn) = self.turn.try_lock() else { return Ok(()) };
        let waits = self.blocks.lock().waiting_blocks() > 0;
        if waits && !turn.broken { self.settle(&turn) } else { Ok(()) }
    }
}

impl Edit<'_> {
    /// Writes which blocks are free in the state that is being made; says how many blocks the file has there.
    pub(super) fn write_free_map(&mut self) -> Result<(PagePtr, u64)> {
        let encode = |edit: &Edit| -> Result<(Vec<u8>, u64)> {
            let map = edit.free_on_disk()?;
            // Its length first, because zeros follow.
            let mut raw = vec![0; 4];
            map.encode(&mut raw);
            let len = raw.len() as u32 - 4;
            raw[..4].copy_from_slice(&len.to_le_bytes());
            Ok((raw, map.end()))
        };
        // Room for the map as it is now, and for the one piece more that taking the room may make.
        let room = encode(self)?.0.len() + 64 + HEADER_BYTES;
        let extent = self.allocate(blocks_of(room as u64));
        let (mut raw, end) = encode(self)?;
        // Exactly what it was given, so that its length says which blocks it has.
        raw.resize(extent.blocks as usize * BLOCK_BYTES as usize - HEADER_BYTES, 0);
        let at = self.write_at(Kind { tree: DIRECTORY, level: FREE_MAP_LEVEL }, &raw, extent)?;
        Ok((at, end))
    }
}
