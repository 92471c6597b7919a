//! The bytes of one segment in memory, and the batches that are found in them.
//!
//! A segment is read whole: what it allocates is bounded by the file, whatever a batch's length claims, and what
//! stands behind a break can be looked at. Everything here asks by position, and positions outside of the
//! segment hold nothing.
//!
//! Invariant: no batch is reported that does not stand at its own position.

use kilim_error::{Result, StorageError};

use super::Segment;
use super::batch::{self, Batch, decode_batch};
use super::slot::{BLOCK, io_error};
use crate::disk::Disk;

pub(super) struct SegmentBytes {
    pub(super) name: String,
    base: u64,
    seed: u64,
    /// Without the header.
    bytes: Vec<u8>,
}

/// What stands behind a break.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) batches: u64,
    /// The end of the last whole batch, or of what a torn one at the break itself claims to be.
    pub(super) end: u64,
    /// The highest position that a batch knew to be on disk.
    pub(super) synced: u64,
    /// The lowest and the highest.
    pub(super) commit_times: Option<(u64, u64)>,
}

impl SegmentBytes {
    /// Reads a segment. The buffer is one that an earlier segment was read into.
    pub(super) fn read(disk: &dyn Disk, segment: &Segment, mut buffer: Vec<u8>) -> Result<SegmentBytes> {
        let name = segment.slot.name();
        let length =
            segment.slot.file.len().map_err(|error| io_error(disk, &name, "has no length", &error))?;
        let size = segment.slot.size;
        if length < size || size < BLOCK {
            let message = format!(
                "{}/{name}: the file has {length} bytes and its header says {size}; the journal is not whole",
                disk.name()
            );
            return Err(StorageError::Corrupt(message).into());
        }
        buffer.clear();
        buffer.resize((size - BLOCK) as usize, 0);
        let doing = format!("cannot be read at offset {BLOCK}");
        let read = segment.slot.file.read_at(&mut buffer, BLOCK);
        read.map_err(|error| io_error(disk, &name, &doing, &error))?;
        Ok(SegmentBytes { name, base: segment.base, seed: segment.seed, bytes: buffer })
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Where in the file a position lies.
    pub(super) fn offset(&self, position: u64) -> u64 {
        BLOCK + (position - self.base)
    }

    fn from(&self, position: u64) -> &[u8] {
        let at = position.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// The batch or control record at this position, if there is a whole one.
    pub(super) fn batch_at(&self, position: u64) -> Option<Batch<'_>> {
        decode_batch(self.from(position), self.seed, position)
    }

    /// Looks for whole batches from a break on.
    pub(super) fn behind(&self, break_position: u64) -> Behind {
        let end = self.base.saturating_add(self.bytes.len() as u64);
        // What an earlier segment left in the slot has another position, so this was torn.
        let torn = batch::claimed_size(self.from(break_position), break_position).unwrap_or(0);
        let mut behind = Behind { end: break_position.saturating_add(torn).min(end), ..Behind::default() };
        let mut position = break_position;
        while position < end {
            let Some(batch) = self.batch_at(position) else {
                position += batch::ALIGNMENT as u64;
                continue;
            };
            let time = batch.header.commit_time;
            let (first, last) = behind.commit_times.unwrap_or((time, time));
            behind.commit_times = Some((first.min(time), last.max(time)));
            behind.batches += 1;
            behind.synced = behind.synced.max(batch.header.synced);
            position = batch.end();
            behind.end = behind.end.max(position);
        }
        behind
    }
}
