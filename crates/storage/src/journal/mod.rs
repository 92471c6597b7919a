//! The journal: every batch of changes in the order of its commit, on disk before anybody is told of it.
//!
//! It lies in slots, files `journal.0`, `journal.1` and so on. Each slot holds one segment: a header block
//! ([`slot`]) and batches back to back ([`batch`]). A position counts the bytes of all batches in the life of
//! the store; a segment's header says at which position it begins. When the rest of the store needs a segment no
//! more its slot becomes a spare, and its next header makes a later segment of it ([`spares`]).
//!
//! How a segment ends: what is in it is synced; then the next segment's header is written and synced, at the
//! position where this one ends; then a record that names the next segment is put behind the last batch and
//! synced; only then the next segment takes batches. So a reader that finds the next segment knows that this
//! one must be whole, and one that finds the record knows that the next one must be there.
//!
//! Each batch says up to where the journal was on disk when it was written. A reader ([`recovery`]) that finds
//! a break therefore can tell what power loss may leave, an end that nobody was promised, from damage.
//!
//! Three locks, taken in this order: `state`, by who appends; `syncing`, by who waits for the disk; `tail`, for
//! a moment, to tell the second what the first has written. A sync holds up no append.
//!
//! Invariant: after a write or a sync of the journal failed, nothing is written to it any more ([`Journal`] is
//! poisoned), because nobody knows what the disk holds; and nothing is ever written behind bytes that a
//! recovery has cut off.

mod appender;
mod batch;
mod blocks;
mod recovery;
mod salvage;
mod scan;
mod slot;
mod spares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kilim_error::{Error, Result, StorageError};
use parking_lot::Mutex;

use crate::disk::{Disk, File};
use blocks::Blocks;
use slot::Slot;

pub(crate) use spares::Keep;

pub(crate) type StoreId = [u8; 16];

/// Where a replay begins: at the beginning of this segment, whose first batch has this position and sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) segment: u64,
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

/// Why a batch was not appended.
#[derive(Debug, Clone)]
pub(crate) enum AppendError {
    /// The journal is as before, and a later append may succeed.
    Unchanged(Error),
    /// What the disk holds is unknown; the journal refuses everything from now on.
    Poisoning(Error),
}

impl AppendError {
    #[cfg(test)]
    pub(crate) fn is_poisoning(&self) -> bool {
        matches!(self, AppendError::Poisoning(_))
    }
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Error {
        match error {
            AppendError::Unchanged(error) | AppendError::Poisoning(error) => error,
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Unchanged(error) | AppendError::Poisoning(error) => error.fmt(f),
        }
    }
}

/// What a recovery found.
pub(crate) struct Recovered {
    pub(crate) journal: Journal,
    #[cfg(test)]
    pub(crate) next_sequence: u64,
    /// That of the last batch.
    pub(crate) commit_time: Option<u64>,
    /// What was read of the journal, with the headers of batches.
    pub(crate) replayed_bytes: u64,
    pub(crate) cut: Option<Cut>,
    /// Whether the journal was closed, so that nothing can be missing.
    #[cfg(test)]
    pub(crate) closed: bool,
}

/// Bytes behind the end of the journal which nobody was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) file: String,
    /// Where the journal ends.
    pub(crate) position: u64,
    /// From there to the end of the last batch, whole or torn, that was seen behind.
    pub(crate) bytes: u64,
    /// How many of those are whole.
    pub(crate) batches: u64,
}

/// How large segments are made, with their headers. Tests use smaller ones.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    first: u64,
    largest: u64,
}

const SIZES: Sizes = Sizes { first: 1 << 20, largest: 16 << 20 };

fn sizes() -> Sizes {
    #[cfg(any(test, feature = "fuzzing"))]
    if let Some(small) = crate::small::sizes() {
        return Sizes { first: small.journal_first, largest: small.journal_largest };
    }
    SIZES
}

pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    store: StoreId,
    sizes: Sizes,
    state: Mutex<State>,
    /// Held through each sync of the active segment. The operating system tells of a failed write to one of two
    /// syncs at a time only, so there must not be two.
    syncing: Mutex<()>,
    tail: Mutex<Tail>,
    /// Everything before this position is on disk.
    synced: AtomicU64,
    /// Why nothing is written any more.
    poison: OnceLock<String>,
    /// Held by who prepares a spare, so that there is one at a time.
    preparing: Mutex<()>,
}

/// What the appender works on.
struct State {
    phase: Phase,
    /// Those needed, oldest first; the last one is active.
    segments: VecDeque<Segment>,
    spares: Vec<Slot>,
    /// The indexes of all slots, also of those that are being made or removed.
    taken: BTreeSet<u64>,
    /// The indexes of slots that a recovery found unusable; they are removed when the journal is resumed.
    unusable: Vec<u64>,
    end: End,
    /// Of the next batch.
    position: u64,
    sequence: u64,
    /// Of the last batch, for control records.
    commit_time: u64,
    /// Where a batch is put together. Kept, so that an append allocates nothing.
    buffer: Vec<u8>,
    /// The last block of the active segment that has batches in it.
    blocks: Blocks,
}

/// What a recovery found behind the last batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing of this segment.
    Clean,
    /// A `Closed` record and nothing else.
    Closed,
    /// Bytes of batches that are not part of the journal.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Read, and not to be appended to before `resume`.
    Recovered,
    Open,
    Closed,
}

#[derive(Clone)]
struct Segment {
    number: u64,
    base: u64,
    /// Of the first batch.
    sequence: u64,
    slot: Slot,
    seed: u64,
}

impl Segment {
    fn start(&self) -> Start {
        Start { segment: self.number, position: self.base, sequence: self.sequence }
    }
}

/// Where a sync finds what was appended.
struct Tail {
    file: Arc<dyn File>,
    name: String,
    position: u64,
}

impl Journal {
    /// Whether a directory entry has the name of a slot: `journal.` and a decimal without leading zeros.
    pub(crate) fn is_slot(name: &str) -> bool {
        slot::slot_index(name).is_some()
    }

    /// The end of what was appended.
    pub(crate) fn appended(&self) -> u64 {
        self.tail.lock().position
    }

    /// Up to where it is on disk.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The size of all slots, spares among them.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let state = self.state.lock();
        state.segments.iter().map(|segment| &segment.slot).chain(&state.spares).map(|slot| slot.size).sum()
    }

    /// Whether a write or a sync has failed, so that everything is refused.
    #[cfg(test)]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    fn check_not_poisoned(&self) -> Result<(), AppendError> {
        match self.poison.get() {
            None => Ok(()),
            Some(why) => Err(AppendError::Poisoning(StorageError::Poisoned(why.clone()).into())),
        }
    }

    /// Refuses everything from now on, and says why.
    fn poisoned(&self, error: Error) -> AppendError {
        // The first reason stays; later failures follow from it.
        let _ = self.poison.set(error.to_string());
        AppendError::Poisoning(error)
    }

    /// Makes no segments larger than this, where one batch need not be. On a small disk they would fill it.
    pub(crate) fn limit_segments(&mut self, bytes: u64) {
        self.sizes.largest = self.sizes.largest.min(bytes.max(self.sizes.first));
    }

    fn new(disk: Arc<dyn Disk>, store: StoreId, sizes: Sizes, synced: u64, state: State) -> Journal {
        let active = state.active();
        let tail =
            Tail { file: Arc::clone(&active.slot.file), name: active.slot.name(), position: state.position };
        Journal {
            disk,
            store,
            sizes,
            state: Mutex::new(state),
            syncing: Mutex::new(()),
            tail: Mutex::new(tail),
            synced: AtomicU64::new(synced),
            poison: OnceLock::new(),
            preparing: Mutex::new(()),
        }
    }
}

impl State {
    fn active(&self) -> &Segment {
        self.segments.back().expect("a journal has an active segment")
    }

    /// How much of the active segment is taken by batches.
    fn used(&self) -> u64 {
        self.position - self.active().base
    }

    /// Takes the lowest index that no slot has.
    fn take_index(&mut self) -> u64 {
        let mut index = 0;
        while !self.taken.insert(index) {
            index += 1;
        }
        index
    }
}
