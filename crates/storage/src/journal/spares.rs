//! Spares: slots that no segment lies in, kept so that the next segment need not be made while somebody waits.
//!
//! Segments grow while they fill up and shrink when they are ended almost empty, so a store that is written to
//! a lot rarely changes segments, and one that is not takes little room. A spare that is smaller than the next
//! segment should be is extended when there is time for it, and used as it is when there is not.
//!
//! Invariant: a slot is in one place only, among the segments, among the spares, or with the thread that is
//! making, extending or removing it; its index is taken in all of these.

use kilim_error::{Error, Result};

use super::slot::{BLOCK, NO_SEGMENT, SegmentHeader, Slot, io_error, size_for};
use super::{AppendError, Journal, Sizes, Start, State};

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
    /// spares. One spare is kept, the largest of ordinary size; when the store is idle, only if it is small.
    pub(crate) fn release_before(&self, start: &Start, idle: bool) -> Result<()> {
        let surplus = {
            let mut state = self.state.lock();
            // The active segment stays, whatever the caller thinks of it.
            while state.segments.len() > 1 && state.segments[0].number < start.segment {
                let segment = state.segments.pop_front().expect("there is more than one");
                state.spares.push(segment.slot);
            }
            let limit = if idle { self.sizes.first } else { self.sizes.largest };
            let mut surplus = std::mem::take(&mut state.spares);
            surplus.sort_by_key(|spare| spare.size);
            if let Some(kept) = surplus.iter().rposition(|spare| spare.size <= limit) {
                state.spares.push(surplus.remove(kept));
            }
            surplus
        };
        // Removed outside of the lock, since that can take a file system a while. Their names need not be
        // synced away: a slot that comes back after a power loss holds a segment before the start.
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

    /// A slot for the next segment, in which a batch of this size has room: a spare, or one made on the spot.
    /// An error changes nothing.
    pub(super) fn take_spare(&self, state: &mut State, batch: u64) -> Result<Slot, AppendError> {
        let least = size_for(batch);
        if let Some(fitting) = state.spares.iter().position(|spare| spare.size >= least) {
            return Ok(state.spares.swap_remove(fitting));
        }
        let size = next_size(state, self.sizes).max(least);
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
