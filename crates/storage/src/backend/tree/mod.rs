//! The disk backend: a journal, tables in memory, and trees in one file.
//!
//! A batch goes to the journal, then to the active tables. When these are large enough, or old enough, a
//! checkpoint (`checkpoint.rs`) freezes them, merges them into the trees, and lets the journal's part that they
//! came from go. So a deletion costs a row in memory until the next checkpoint, and nothing afterwards.
//!
//! ```text
//! lock        held while the store is open
//! kilim.db    the trees
//! journal.N   what the trees do not have yet
//! creating    only while the store is being made: it becomes kilim.db
//! ```
//! A directory that lacks something, or has something that is not listed here, is refused, and nothing in it is
//! changed.
//!
//! Invariant: the newest superblock's trees and the journal from the place that it names are the state after the
//! last batch that is on disk.

mod checkpoint;
mod compact;
mod copy;
mod damage;
mod ingest;
pub(crate) mod open;
mod pages;
mod payload;
#[cfg(test)]
mod simulation;
mod spans;
mod view;

use super::{Backend, Exclusively, Pace, Sorted, View};
use crate::backup::Held;
use crate::clock::CommitTime;
use crate::disk::Disk;
use crate::free_space::FreeSpace;
use crate::journal::{AppendError, Journal, Keep, Start};
use crate::memtable::Memtable;
use crate::space::{Bytes, Space, Write};
use crate::tree::blocks::Blocks;
use crate::tree::file::PageFile;
use crate::tree::forest::{Epochs, Forest};
use crate::tree::superblock::Superblock;
use crate::tree::{BLOCK_BYTES, TreeName};
use kilim_error::{Error, Result, StorageError};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use damage::Damage;
use payload::Payload;
use spans::Spans;

pub(crate) use open::Memory;
pub(crate) use payload::{decode, decode_epoch};
pub(crate) use view::{TreeRows, TreeView};

/// Scans that passed this many deletions in the active tables have a checkpoint made, which ends them.
const SKIPPED_MAX: u64 = 1_000_000;

/// Tables are frozen after this time, so that space comes back and little is left to replay; earlier if much is
/// in them.
const AGE_MAX: Duration = Duration::from_secs(60);
const AGE_MAX_LARGE: Duration = Duration::from_secs(15);
const LARGE_BYTES: usize = 1 << 20;
const AGE_MAX_SCARCE: Duration = Duration::from_millis(500);

/// Short of space, tables are merged when they hold this part of what they may otherwise, and writers wait for that: what is
/// still to be written when the reserve is reached must fit it with ease.
const SCARCE_PART: usize = 8;

/// The journal's spares are kept so long for writes that may follow.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// When nothing was written for so long, the journal goes on in a small segment. Whoever writes once in a few seconds keeps a
/// large one, because segments that grow again are written twice.
const SHRINK_AFTER: Duration = Duration::from_secs(20);

/// After a checkpoint that failed, until the next try.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct TreeBackend {
    disk: Arc<dyn Disk>,
    file: Arc<PageFile>,
    journal: Journal,
    blocks: Mutex<Blocks>,
    epochs: Arc<Epochs>,
    /// The newest epoch that was given to somebody who writes pages.
    last_epoch: AtomicU64,
    state: RwLock<State>,
    /// Held by whoever makes a new state of the file.
    turn: Mutex<Turn>,
    /// Trees that the next checkpoint gives up.
    dead: Mutex<BTreeSet<TreeName>>,
    /// Why the last checkpoint failed, until one succeeds.
    trouble: Mutex<Option<Trouble>>,
    /// Trees that the last checkpoint could not merge.
    damage: Mutex<Damage>,
    /// Tells a writer that waits for room in the tables.
    checkpointed: Condvar,
    waiting: Mutex<()>,
    /// Checkpoints give up past this time, because the store is being closed.
    deadline: Mutex<Option<Instant>>,
    payload: Mutex<Payload>,
    tables_bytes_max: usize,
    /// With less free than this, checkpoints do not wait: what was deleted must come back.
    scarce_bytes: u64,
    /// Whether there is more.
    plenty: FreeSpace,
    quiet: Mutex<Quiet>,
}

/// Since when nothing was written to the journal.
struct Quiet {
    /// The end of the journal then.
    appended: u64,
    since: Instant,
}

/// What a view is taken from.
struct State {
    active: Arc<Tables>,
    frozen: Option<Arc<Frozen>>,
    forest: Arc<Forest>,
    /// The newest batch.
    sequence: u64,
    commit_time: CommitTime,
}

/// Rows in memory, by space.
struct Tables {
    spaces: [Arc<Memtable>; Space::COUNT],
    made: Instant,
    spans: Spans,
    /// Deletions that scans had to pass.
    skipped: AtomicU64,
}

/// Tables that a checkpoint writes, and where the journal goes on behind them.
struct Frozen {
    tables: Arc<Tables>,
    journal: Start,
    commit_time: CommitTime,
}

/// The state of the file on disk.
struct Turn {
    durable: Superblock,
    /// A superblock may or may not be on disk: nothing can be written any more.
    broken: bool,
}

struct Trouble {
    error: StorageError,
    at: Instant,
}

impl Tables {
    fn new(now: Instant) -> Arc<Tables> {
        let spaces = std::array::from_fn(|_| Arc::new(Memtable::new()));
        let (spans, skipped) = (Spans::default(), AtomicU64::new(0));
        Arc::new(Tables { spaces, made: now, spans, skipped })
    }

    fn space(&self, space: Space) -> &Arc<Memtable> {
        &self.spaces[space.at()]
    }

    /// The newest rows of a tree, deletions included. For tables that are no longer written.
    fn rows_of(&self, name: TreeName) -> impl Iterator<Item = (Space, &Bytes, Option<&Bytes>)> {
        let spaces = Space::ALL.into_iter().filter(move |space| *space as u8 == name.space);
        spaces.flat_map(move |space| {
            // The tree of `Meta` has all of its keys.
            let first = name.prefix.to_be_bytes();
            let from = if space == Space::Meta { Bound::Unbounded } else { Bound::Included(&first[..]) };
            let rows = self.space(space).newest(from);
            let of_tree = rows.take_while(move |(key, _)| TreeName::of(space, key) == name);
            of_tree.map(move |(key, value)| (space, key, value))
        })
    }

    fn bytes(&self) -> usize {
        self.spaces.iter().map(|table| table.bytes()).sum()
    }

    fn is_empty(&self) -> bool {
        self.spaces.iter().all(|table| table.is_empty())
    }

    fn insert<'w>(&self, batch: impl Iterator<Item = &'w Write> + Clone, sequence: u64) {
        {
            let mut writers = Space::ALL.map(|space| self.space(space).writer());
            for write in batch.clone() {
                writers[write.space.at()].set(&write.key, write.value.clone(), sequence);
            }
        }
        self.spans.cut(batch);
    }
}

impl TreeBackend {
    fn next_epoch(&self) -> u64 {
        self.last_epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn tree_view(&self) -> TreeView {
        let state = self.state.read();
        TreeView {
            active: state.active.clone(),
            sequence: state.sequence,
            frozen: state.frozen.clone(),
            forest: state.forest.clone(),
            file: self.file.clone(),
        }
    }

    /// Whether the tables are so far over their size that writers should wait for a checkpoint that can be
    /// expected to end.
    fn is_full(&self) -> bool {
        let bytes = self.bytes_to_merge();
        (bytes > 2 * self.tables_bytes_max || self.is_much_when_scarce(bytes))
            && self.trouble.lock().is_none()
            && self.deadline.lock().is_none()
    }

    /// What a checkpoint can make room of: the rows of damaged trees stay in memory.
    fn bytes_to_merge(&self) -> usize {
        self.state.read().active.bytes().saturating_sub(self.damage.lock().bytes())
    }

    /// Asked by every commit, so a reading of a moment ago does.
    fn is_much_when_scarce(&self, bytes: usize) -> bool {
        bytes > self.tables_bytes_max / SCARCE_PART && self.plenty.check().is_err()
    }

    fn is_scarce(&self) -> bool {
        self.disk.space().is_some_and(|space| space.free_bytes < self.scarce_bytes)
    }

    /// Gives back what the journal does not need when nothing was written for a while, or others need the space.
    fn shrink_idle_journal(&self, exclusively: &mut Exclusively) -> Result<()> {
        let quiet = self.quiet_for();
        if quiet >= IDLE_AFTER {
            self.journal.keep_spares(Keep::Small)?;
        } else if self.is_scarce() {
            self.journal.keep_spares(Keep::One)?;
        }
        let shrunk = if quiet >= SHRINK_AFTER { self.shrink_journal(exclusively) } else { Ok(()) };
        if shrunk.is_err() {
            // A disk without room for a small segment is asked again after as long.
            self.quiet.lock().since = self.disk.environment().now();
        }
        shrunk
    }

    /// For how long nothing was written to the journal.
    fn quiet_for(&self) -> Duration {
        let (appended, now) = (self.journal.appended(), self.disk.environment().now());
        let mut quiet = self.quiet.lock();
        if quiet.appended != appended {
            *quiet = Quiet { appended, since: now };
        }
        now.saturating_duration_since(quiet.since)
    }

    /// Whether a checkpoint is due.
    fn is_due(&self) -> bool {
        if let Some(trouble) = &*self.trouble.lock() {
            // Space may come back any time.
            let patience = match trouble.error {
                StorageError::OutOfSpace { .. } => RETRY_AFTER,
                _ => 30 * RETRY_AFTER,
            };
            return self.disk.environment().since(trouble.at) > patience;
        }
        let bytes = self.bytes_to_merge();
        let state = self.state.read();
        let age = self.disk.environment().since(state.active.made);
        state.frozen.is_some()
            || bytes >= self.tables_bytes_max
            || self.is_much_when_scarce(bytes)
            || state.active.skipped.load(Ordering::Relaxed) >= SKIPPED_MAX
            || (age >= AGE_MAX_LARGE && bytes >= LARGE_BYTES)
            || (age >= AGE_MAX && bytes > 0)
            || (age >= AGE_MAX_SCARCE && bytes > 0 && self.is_scarce())
            || self.damage.lock().is_due(self.disk.environment())
    }
}

impl Backend for TreeBackend {
    fn view(&self) -> View {
        View::Tree(self.tree_view())
    }

    fn commit_time(&self) -> CommitTime {
        self.state.read().commit_time
    }

    fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        sync: bool,
    ) -> Result<()> {
        let batch: Vec<&Write> = batch.collect();
        let (active, sequence) = {
            let state = self.state.read();
            (state.active.clone(), state.sequence + 1)
        };
        {
            let mut payload = self.payload.lock();
            payload.encode(&batch);
            self.journal.append(sequence, commit_time, &payload.parts(&batch), sync).map_err(from_append)?;
            payload.shrink();
        }
        active.insert(batch.iter().copied(), sequence);
        let mut state = self.state.write();
        state.sequence = sequence;
        state.commit_time = commit_time;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.journal.sync()
    }

    fn await_room(&self, ask: &dyn Fn()) {
        let mut waiting = self.waiting.lock();
        while self.is_full() {
            ask();
            self.checkpointed.wait_for(&mut waiting, Duration::from_millis(50));
        }
    }

    fn check_writable(&self) -> Result<()> {
        match &*self.trouble.lock() {
            // Short of space, the tables still take what fits them.
            Some(Trouble { error: StorageError::OutOfSpace { .. }, .. })
                if self.bytes_to_merge() < self.tables_bytes_max / 2 =>
            {
                Ok(())
            }
            Some(trouble) => Err(trouble.error.clone().into()),
            None => Ok(()),
        }
    }

    fn check_trees(&self, writes: &[Write]) -> Result<()> {
        self.damage.lock().check(writes)
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        self.ingest_rows(space, rows, exclusively)
    }

    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()> {
        let names = prefixes.iter().map(|(space, prefix)| TreeName::of(*space, prefix));
        self.dead.lock().extend(names);
        self.checkpoint(exclusively)
    }

    fn maintain(&self, exclusively: &mut Exclusively) -> Result<()> {
        let prepared = self.journal.prepare_spare();
        // Also if the disk has no room for a spare: a checkpoint is what frees some.
        if self.is_due() {
            self.make_due_checkpoint(exclusively)?;
        } else {
            self.give_space_back()?;
            self.shrink_idle_journal(exclusively)?;
        }
        prepared
    }

    fn checkpoint(&self, exclusively: &mut Exclusively) -> Result<()> {
        self.make_checkpoint(exclusively)
    }

    fn stand_still(&self, meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _turn = self.turn.lock();
        meanwhile()
    }

    fn end_by(&self, deadline: Instant) {
        *self.deadline.lock() = Some(deadline);
        self.checkpointed.notify_all();
    }

    fn close(&self, exclusively: &mut Exclusively) -> Result<()> {
        if let Err(error) = self.checkpoint(exclusively) {
            tracing::warn!(%error, "the store is closed without a checkpoint; the journal is replayed at the next start");
            return self.journal.close();
        }
        match self.state.read().active.is_empty() {
            true => self.journal.keep_spares(Keep::Small),
            // Rows of a damaged tree.
            false => self.journal.close(),
        }
    }

    fn hold(&self) -> Result<Held> {
        self.hold_state()
    }

    fn compact(
        &self,
        prefixes: &[(Space, [u8; 4])],
        exclusively: &mut Exclusively,
        pace: &mut Pace,
    ) -> Result<()> {
        self.compact_trees(prefixes, exclusively, pace)
    }

    fn tree_bytes(&self, space: Space, prefix: [u8; 4]) -> u64 {
        let name = TreeName::of(space, &prefix);
        self.state.read().forest.roots.get(&name).map_or(0, |root| root.blocks * BLOCK_BYTES)
    }

    fn disk_bytes(&self) -> u64 {
        self.file.file.allocated_bytes().unwrap_or(0) + self.journal.bytes_on_disk()
    }
}

/// No room for a segment: nothing was written, and room may come back.
fn from_append(error: AppendError) -> Error {
    match error {
        AppendError::Unchanged(Error::Storage(error)) => {
            tracing::warn!(%error, "the journal cannot grow");
            StorageError::OutOfSpace { free_bytes: 0, reserve_bytes: 0 }.into()
        }
        AppendError::Unchanged(error) | AppendError::Poisoning(error) => error,
    }
}
