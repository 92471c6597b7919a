//! Writing: batches into the active segment, and from one segment to the next.
//!
//! An append puts header and payload together in one buffer and writes them at once. Whoever wants them on disk
//! waits in `sync`, outside of the appender's lock; one sync serves all that were appended before it began.
//!
//! A batch that is to be synced at once, and before which everything is on disk, goes past the operating system's memory: that
//! spares a third of the processor time of the write and its sync. Others go through it, so that whoever does not wait for the
//! disk does not wait, and a killed process loses none of them.
//!
//! What may fail harmlessly, to find room for a segment, comes before everything that may not: from the first
//! byte of a batch, a record or a segment's header on, each failure poisons. A header above all: if it might be
//! on disk, a reader ends the segment before it where it says, and later batches there would be lost.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_error::{Error, Result, StorageError};

use super::batch::{self, CONTROL_SIZE, Header, Kind, encode_batch};
use super::blocks::Blocks;
use super::slot::{self, BLOCK, SegmentHeader, Slot, io_error};
use super::{AppendError, End, Journal, Phase, Segment, Sizes, Start, State, StoreId, Tail};
use crate::disk::Disk;

/// The number of a new store's first segment; zero marks a spare.
const FIRST_SEGMENT: u64 = 1;
/// Larger batches are written as they are: past the operating system's memory they would gain nothing.
const IN_BLOCKS_MAX: usize = 128 << 10;
/// A buffer that an unusually large batch has grown is not kept.
const BUFFER_KEPT: usize = 4 << 20;

impl Journal {
    /// A new store's journal, in a file of its own that is on disk but for its name: the caller syncs the
    /// directory. What an interrupted creation left is replaced; a slot with a batch in it refuses.
    pub(crate) fn create(disk: Arc<dyn Disk>, store: StoreId) -> Result<(Journal, Start)> {
        Journal::create_sized(disk, store, super::sizes())
    }

    pub(super) fn create_sized(
        disk: Arc<dyn Disk>,
        store: StoreId,
        sizes: Sizes,
    ) -> Result<(Journal, Start)> {
        let names = disk.list().map_err(|error| io_error(&*disk, "", "cannot be listed", &error))?;
        let slots: Vec<String> = names.into_iter().filter(|name| Journal::is_slot(name)).collect();
        for name in &slots {
            check_without_batches(&*disk, name)?;
        }
        for name in &slots {
            disk.remove(name).map_err(|error| io_error(&*disk, name, "cannot be removed", &error))?;
        }
        let slot = Slot::make(&*disk, 0, sizes.first)?;
        let header = SegmentHeader { store, segment: FIRST_SEGMENT, base: 0, sequence: 1, size: slot.size };
        slot.write_header(&*disk, &header)?;
        let segment = Segment::new(&header, slot);
        let start = segment.start();
        let state = State {
            phase: Phase::Open,
            position: segment.base,
            sequence: segment.sequence,
            segments: VecDeque::from([segment]),
            spares: Vec::new(),
            taken: BTreeSet::from([0]),
            unusable: Vec::new(),
            end: End::Clean,
            commit_time: 0,
            buffer: Vec::new(),
            blocks: Blocks::default(),
        };
        Ok((Journal::new(disk, store, sizes, start.position, state), start))
    }

    /// Appends one batch and returns its end position; with `sync` it is on disk then. The sequence must be that
    /// of the last batch plus one.
    pub(crate) fn append(
        &self,
        sequence: u64,
        commit_time: u64,
        payload: &[&[u8]],
        sync: bool,
    ) -> Result<u64, AppendError> {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let Ok(length) = u32::try_from(length) else {
            let error = StorageError::Io(format!("a batch of {length} bytes is too large for the journal"));
            return Err(AppendError::Unchanged(error.into()));
        };
        let end = {
            let mut state = self.state.lock();
            self.check_open(&state)?;
            if sequence != state.sequence {
                let message = format!("batch {sequence} is appended where {} is due", state.sequence);
                return Err(AppendError::Unchanged(Error::bug(message)));
            }
            let size = batch::size(length as usize);
            if BLOCK + state.used() + size + CONTROL_SIZE > state.active().slot.size {
                self.begin_segment(&mut state, size)?;
            }
            let header = Header {
                kind: Kind::Data,
                position: state.position,
                sequence,
                synced: self.synced(),
                commit_time,
            };
            self.write(&mut state, &header, payload, length, sync)?;
            state.position += size;
            state.sequence += 1;
            state.commit_time = commit_time;
            self.tail.lock().position = state.position;
            state.position
        };
        if sync {
            self.sync_to(end)?;
        }
        Ok(end)
    }

    /// Puts everything on disk that was appended before the call.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.sync_to(self.appended())?)
    }

    /// Ends the active segment and begins the next; returns the start of a replay that needs nothing appended so
    /// far. An active segment without a batch is left as it is, and its own start is returned.
    pub(crate) fn roll(&self) -> Result<Start, AppendError> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        if state.used() > 0 {
            self.begin_segment(&mut state, 0)?;
        }
        Ok(state.active().start())
    }

    /// Goes on in a segment of the smallest size, if the active one is larger; returns the start of a replay that needs nothing
    /// appended so far. An error of the disk that changes nothing leaves the journal as it was.
    pub(crate) fn shrink(&self) -> Result<Option<Start>, AppendError> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        if state.active().slot.size <= self.sizes.first {
            return Ok(None);
        }
        let slot = self.take_small(&mut state)?;
        self.begin_segment_in(&mut state, slot)?;
        Ok(Some(state.active().start()))
    }

    /// After a recovery, and once the rest of the store was found whole: begins a new segment behind what was
    /// replayed, so that bytes left behind a cut can never be taken for its continuation. Nothing may be
    /// appended before. A segment without batches and without anything behind goes on, and so does any that ends
    /// clean if a full disk has no room for another: deletions must be possible then.
    pub(crate) fn resume(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.check_not_poisoned()?;
        if state.phase != Phase::Recovered {
            return Err(Error::bug("a journal is resumed that was not just recovered"));
        }
        self.write_again(&state)?;
        self.sync_active()?;
        if state.end != End::Closed {
            self.erase_later(&mut state)?;
        }
        if state.used() > 0 || state.end != End::Clean {
            match self.begin_segment(&mut state, 0) {
                Err(AppendError::Unchanged(error)) if state.end != End::Cut => {
                    tracing::warn!(%error, "no room for a new journal segment; the last one goes on");
                    self.erase_end(&state)?;
                }
                begun => begun?,
            }
        }
        state.phase = Phase::Open;
        for index in std::mem::take(&mut state.unusable) {
            let name = slot::slot_name(index);
            match self.disk.remove(&name) {
                Ok(()) => _ = state.taken.remove(&index),
                // Its index stays taken, so nothing depends on it.
                Err(error) => tracing::warn!(file = name, %error, "an unused journal file cannot be removed"),
            }
        }
        Ok(())
    }

    /// Removes a `Closed` record. A batch written over it might be lost while later ones are not.
    fn erase_end(&self, state: &State) -> Result<(), AppendError> {
        let active = state.active();
        let erased = active.slot.file.write_at(&[0; CONTROL_SIZE as usize], BLOCK + state.used());
        erased.map_err(|error| {
            self.poisoned(io_error(&*self.disk, &active.slot.name(), "cannot be opened again", &error))
        })?;
        self.sync_active()
    }

    /// Writes and syncs a `Closed` record, so that a later reader knows that everything before was on disk.
    /// Nothing can be appended afterwards. A journal that was only recovered is left as it is.
    pub(crate) fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.check_not_poisoned()?;
        if state.phase == Phase::Open {
            self.sync_to(state.position)?;
            self.write_control(&mut state, Kind::Closed, &[])?;
            state.phase = Phase::Closed;
        }
        Ok(())
    }

    /// Writes again what was replayed without knowing it to be on disk, because the next header will vouch for
    /// it. It may have been read from the operating system's memory; and after a failed sync, for which a store
    /// is opened anew, that holds bytes as clean which the disk never got, so that a sync alone would not do.
    fn write_again(&self, state: &State) -> Result<(), AppendError> {
        let active = state.active();
        // A batch in the segment knows that the header is on disk; without any, the header is in doubt itself.
        let known = self.synced().max(active.base);
        let from = if state.used() == 0 { 0 } else { BLOCK + known - active.base };
        let to = BLOCK + state.used();
        let mut bytes = vec![0; (to - from) as usize];
        let file = &active.slot.file;
        let written = file.read_at(&mut bytes, from).and_then(|()| file.write_at(&bytes, from));
        written.map_err(|error| {
            let doing = format!("{} bytes cannot be written again at offset {from}", bytes.len());
            self.poisoned(io_error(&*self.disk, &active.slot.name(), &doing, &error))
        })
    }

    fn check_open(&self, state: &State) -> Result<(), AppendError> {
        self.check_not_poisoned()?;
        match state.phase {
            Phase::Open => Ok(()),
            Phase::Recovered => {
                Err(AppendError::Unchanged(Error::bug("the journal is written to before it was resumed")))
            }
            Phase::Closed => {
                Err(AppendError::Unchanged(Error::bug("the journal is written to after it was closed")))
            }
        }
    }

    /// Writes one batch or record at the end of the active segment. `sync`: the caller syncs it next.
    fn write(
        &self,
        state: &mut State,
        header: &Header,
        payload: &[&[u8]],
        length: u32,
        sync: bool,
    ) -> Result<(), AppendError> {
        let mut buffer = std::mem::take(&mut state.buffer);
        let mut blocks = std::mem::take(&mut state.blocks);
        let active = state.active();
        encode_batch(&mut buffer, active.seed, header, payload, length);
        let (file, offset) = (&active.slot.file, BLOCK + header.position - active.base);
        let is_small = buffer.len() <= IN_BLOCKS_MAX;
        let whole = if is_small { blocks.with(&buffer, offset) } else { None };
        let is_within = |(whole, at): &(&[u8], u64)| at + whole.len() as u64 <= active.slot.size;
        let written = match whole.filter(is_within) {
            // What the operating system holds of these blocks and has not written would be waited for first.
            Some((whole, at)) if sync && self.synced() == header.position => file.write_blocks(whole, at),
            Some((whole, at)) => file.write_at(whole, at),
            None => file.write_at(&buffer, offset),
        };
        match &written {
            Ok(()) => blocks.note_written(&buffer, offset),
            Err(_) => blocks.forget(),
        }
        let written = written.map_err(|error| {
            let doing = format!("position {} cannot be written at offset {offset}", header.position);
            self.poisoned(io_error(&*self.disk, &active.slot.name(), &doing, &error))
        });
        state.blocks = blocks;
        if buffer.capacity() <= BUFFER_KEPT {
            state.buffer = buffer;
        }
        written
    }

    /// Writes a control record behind the last batch of the active segment and syncs it. All batches before it
    /// are on disk already.
    fn write_control(&self, state: &mut State, kind: Kind, payload: &[u8]) -> Result<(), AppendError> {
        let header = Header {
            kind,
            position: state.position,
            sequence: state.sequence,
            synced: state.position,
            commit_time: state.commit_time,
        };
        self.write(state, &header, &[payload], payload.len() as u32, true)?;
        self.sync_active()
    }

    /// Ends the active segment and begins one in which a batch of this size has room.
    fn begin_segment(&self, state: &mut State, batch: u64) -> Result<(), AppendError> {
        let slot = self.take_spare(state, batch)?;
        self.begin_segment_in(state, slot)
    }

    fn begin_segment_in(&self, state: &mut State, slot: Slot) -> Result<(), AppendError> {
        self.sync_to(state.position)?;
        let header = SegmentHeader {
            store: self.store,
            segment: state.active().number + 1,
            base: state.position,
            sequence: state.sequence,
            size: slot.size,
        };
        slot.write_header(&*self.disk, &header).map_err(|error| self.poisoned(error))?;
        self.write_control(state, Kind::Continues, &header.segment.to_le_bytes())?;
        tracing::debug!(
            segment = header.segment,
            file = slot.name(),
            bytes = slot.size,
            "a journal segment begins"
        );
        *self.tail.lock() =
            Tail { file: Arc::clone(&slot.file), name: slot.name(), position: state.position };
        state.segments.push_back(Segment::new(&header, slot));
        state.blocks.begin(BLOCK);
        Ok(())
    }

    /// Returns when everything before this position is on disk.
    fn sync_to(&self, position: u64) -> Result<(), AppendError> {
        if self.synced() >= position {
            return Ok(());
        }
        let _turn = self.syncing.lock();
        // Another thread's sync, while this one waited, may have served it.
        if self.synced() >= position { Ok(()) } else { self.sync_tail() }
    }

    /// Syncs the active segment, whatever is known of it.
    fn sync_active(&self) -> Result<(), AppendError> {
        let _turn = self.syncing.lock();
        self.sync_tail()
    }

    /// Syncs the active segment. Called with `syncing` held.
    fn sync_tail(&self) -> Result<(), AppendError> {
        // An earlier failure took the operating system's notice with it, so this sync would seem to succeed.
        self.check_not_poisoned()?;
        let (file, position) = {
            let tail = self.tail.lock();
            (Arc::clone(&tail.file), tail.position)
        };
        file.sync().map_err(|error| {
            let name = self.tail.lock().name.clone();
            self.poisoned(io_error(&*self.disk, &name, "cannot be synced", &error))
        })?;
        self.synced.fetch_max(position, Ordering::AcqRel);
        Ok(())
    }
}

impl Segment {
    pub(super) fn new(header: &SegmentHeader, slot: Slot) -> Segment {
        let seed = batch::seed(&header.store, header.segment);
        Segment { number: header.segment, base: header.base, sequence: header.sequence, slot, seed }
    }
}

/// Refuses a slot with anything where its first batch would stand: a creation writes only zeros there.
fn check_without_batches(disk: &dyn Disk, name: &str) -> Result<()> {
    let failed = |error| io_error(disk, name, "cannot be read", &error);
    let file = disk.open(name).map_err(failed)?;
    let length = file.len().map_err(failed)?.saturating_sub(BLOCK).min(batch::HEADER_SIZE as u64);
    let mut place = vec![0; length as usize];
    file.read_at(&mut place, BLOCK).map_err(failed)?;
    if place.iter().any(|byte| *byte != 0) {
        let message = format!("{}/{name} holds a journal, where a new one is to be made", disk.name());
        return Err(StorageError::Corrupt(message).into());
    }
    Ok(())
}
