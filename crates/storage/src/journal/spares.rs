//! Spares: slots that no segment lies in, kept so that the next segment need not be made while somebody waits.
//!
//! Segments grow while they fill up and shrink when they are ended almost empty, so a store that is written to
//! a lot rarely changes segments, and one that is not takes little room. A spare that is smaller than the next
//! segment should be is extended when there is time for it, and used as it is when there is not.
//!
//! What a checkpoint sets free is kept for the segments up to the next one ([`Keep`]): to make a slot costs as much
//! as to fill it with batches. When nothing was written for a while, a small one is enough; after a longer while the active
//! segment is exchanged for a small one too ([`Journal::shrink`]).
//!
//! Invariant: a slot is in one place only, among the segments, among the spares, or with the thread that is
//! making, extending or removing it; its index is taken in all of these.

use kilim_error::{Error, Result};

use super::slot::{BLOCK, NO_SEGMENT, SegmentHeader, Slot, io_error, size_for};
use super::{AppendError, Journal, Sizes, Start, State};

/// Which spares are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As many bytes as the segments had that were released: the next ones will need as many.
    AsReleased,
    /// One of ordinary size, because the disk is nearly full.
    One,
    /// One of the smallest size, because nothing is being written.
    Small,
}

impl Journal {
    /// Makes a spare ready, if the active segment is more than half full and there is none of the right size.
    /// Meant for a thread in the background; appends go on meanwhile. An error changes nothing.
    pub(crate) fn prepare_spare(&self) -> Result<()> {
        let Some(_one_at_a_time) = self.preparing.try_lock() else { return Ok(()) };
        let (size, begun) = {
            let mut state = self.state.lock();
            let size = next_size(&state, self.sizes);
            if !half_full(&state) || state.spares.iter().any(|spare| spare.size >= size) {
                return Ok(());
            }
            let begun = match state.spares.pop() {
                Some(spare) => Ok(spare),
                None => Err(state.take_index()),
            };
            (size, begun)
        };
        match begun {
            Ok(mut spare) => {
                let before = spare.size;
                let extended = spare.extend(&*self.disk, size);
                if extended.is_err() {
                    // What was added may be all that is left of the disk.
                    let _ = spare.file.set_len(before);
                }
                self.state.lock().spares.push(spare);
                extended
            }
            Err(index) => {
                let made = self.make_slot(index, size).and_then(|slot| {
                    self.mark_spare(&slot).inspect_err(|_| self.discard(&slot))?;
                    Ok(slot)
                });
                let mut state = self.state.lock();
                match made {
                    Ok(slot) => state.spares.push(slot),
                    Err(error) => {
                        state.taken.remove(&index);
                        return Err(error);
                    }
                }
                Ok(())
            }
        }
    }

    /// The segments before this start are not needed any more, which must be on disk itself: their slots become
    /// spares, of which some are kept.
    pub(crate) fn release_before(&self, start: &Start, keep: Keep) -> Result<()> {
        let surplus = {
            let mut state = self.state.lock();
            let mut released = 0;
            // The active segment stays, whatever the caller thinks of it.
            while state.segments.len() > 1 && state.segments[0].number < start.segment {
                let segment = state.segments.pop_front().expect("there is more than one");
                released += segment.slot.size;
                state.spares.push(segment.slot);
            }
            state.take_surplus(keep, self.sizes, released)
        };
        self.remove_all(surplus)
    }

    /// Removes spares that need not be kept.
    pub(crate) fn keep_spares(&self, keep: Keep) -> Result<()> {
        let surplus = self.state.lock().take_surplus(keep, self.sizes, 0);
        self.remove_all(surplus)
    }

    /// Removes slots, outside of the lock, since that can take a file system a while. Their names need not be synced
    /// away: a slot that comes back after a power loss holds a segment before the start.
    fn remove_all(&self, surplus: Vec<Slot>) -> Result<()> {
        let mut outcome = Ok(());
        for slot in surplus {
            let name = slot.name();
            match self.disk.remove(&name) {
                Ok(()) => _ = self.state.lock().taken.remove(&slot.index),
                // The file stays until the store is opened again, and nothing else takes its name.
                Err(error) => outcome = Err(io_error(&*self.disk, &name, "cannot be removed", &error)),
            }
        }
        outcome
    }

    /// Makes zeros of spares with batches from behind the end of the journal. An honest disk has none, because a segment's header is
    /// on disk before its batches. If a sync was only said to be done the header may be lost and batches be there, and the next
    /// segment, which gets the same number, would be taken to go on with them.
    pub(super) fn erase_later(&self, state: &mut State) -> Result<()> {
        let end = state.position;
        for spare in &mut state.spares {
            if spare.has_batches_from(&*self.disk, end)? {
                let size = std::mem::replace(&mut spare.size, BLOCK);
                spare.extend(&*self.disk, size)?;
                tracing::warn!(
                    file = spare.name(),
                    "an unused journal file had later batches and was erased"
                );
            }
        }
        Ok(())
    }

    /// A slot for the next segment, in which a batch of this size has room: the spare whose size is nearest to what
    /// the segment should have, or one made on the spot. An error changes nothing.
    pub(super) fn take_spare(&self, state: &mut State, batch: u64) -> Result<Slot, AppendError> {
        let least = size_for(batch);
        let size = next_size(state, self.sizes).max(least);
        let fitting = (state.spares.iter().enumerate()).filter(|(_, spare)| spare.size >= least);
        if let Some((nearest, _)) = fitting.min_by_key(|(_, spare)| spare.size.abs_diff(size)) {
            return Ok(state.spares.swap_remove(nearest));
        }
        self.make_now(state, size)
    }

    /// A slot of the smallest size. An error changes nothing.
    pub(super) fn take_small(&self, state: &mut State) -> Result<Slot, AppendError> {
        match state.spares.iter().position(|spare| spare.size <= self.sizes.first) {
            Some(small) => Ok(state.spares.swap_remove(small)),
            None => self.make_now(state, self.sizes.first),
        }
    }

    fn make_now(&self, state: &mut State, size: u64) -> Result<Slot, AppendError> {
        let index = state.take_index();
        self.make_slot(index, size).map_err(|error| {
            state.taken.remove(&index);
            AppendError::Unchanged(error)
        })
    }

    /// Makes a slot, on disk with its name.
    fn make_slot(&self, index: u64, size: u64) -> Result<Slot> {
        let slot = Slot::make(&*self.disk, index, size)?;
        if let Err(error) = self.disk.sync_directory() {
            self.discard(&slot);
            return Err(io_error(&*self.disk, &slot.name(), "the name cannot be synced", &error));
        }
        Ok(slot)
    }

    /// Says in the slot's header that it is a spare, so that a recovery finds a use for it.
    fn mark_spare(&self, slot: &Slot) -> Result<(), Error> {
        let header =
            SegmentHeader { store: self.store, segment: NO_SEGMENT, base: 0, sequence: 0, size: slot.size };
        slot.write_header(&*self.disk, &header)
    }

    fn discard(&self, slot: &Slot) {
        if let Err(error) = self.disk.remove(&slot.name()) {
            tracing::warn!(file = slot.name(), %error, "an unfinished journal file cannot be removed");
        }
    }
}

impl State {
    /// Takes out the spares that are not to be kept, the largest of ordinary size being kept first.
    fn take_surplus(&mut self, keep: Keep, sizes: Sizes, released: u64) -> Vec<Slot> {
        let (largest, bytes) = match keep {
            Keep::AsReleased => (sizes.largest, released),
            Keep::One => (sizes.largest, 0),
            Keep::Small => (sizes.first, 0),
        };
        let mut found = std::mem::take(&mut self.spares);
        found.sort_by_key(|spare| std::cmp::Reverse(spare.size));
        let (mut kept, mut surplus) = (0, Vec::new());
        for spare in found {
            if spare.size <= largest && (kept == 0 || kept + spare.size <= bytes) {
                kept += spare.size;
                self.spares.push(spare);
            } else {
                surplus.push(spare);
            }
        }
        surplus
    }
}

/// What of the active segment batches can take.
fn capacity(state: &State) -> u64 {
    state.active().slot.size - BLOCK
}

fn half_full(state: &State) -> bool {
    state.used() > capacity(state) / 2
}

/// How large the segment after the active one should be, if that ended now.
fn next_size(state: &State, sizes: Sizes) -> u64 {
    let size = state.active().slot.size;
    let next = if half_full(state) {
        size * 2
    } else if state.used() < capacity(state) / 8 {
        size / 2
    } else {
        size
    };
    next.clamp(sizes.first, sizes.largest)
}
