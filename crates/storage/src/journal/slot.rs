//! Slots, the journal's files, and the header that says which segment lies in one.
//!
//! A slot is filled with zeros and synced before anything else is done with it, so a later sync of a batch need
//! not allocate blocks and a full disk shows here, where nothing depends on it yet. The header is one block;
//! to write it is what turns a slot into a segment, and a recycled slot keeps the bytes behind it.
//!
//! Invariant: a header that names a segment is written only into a slot whose whole length is on disk.

use std::io;
use std::sync::Arc;

use kilim_error::{Error, StorageError};
use xxhash_rust::xxh3::xxh3_64;

use super::StoreId;
use super::batch::{ALIGNMENT, CONTROL_SIZE, claimed_position};
use crate::disk::{Disk, File};

/// On disk: the size of a segment's header, and where its first batch lies.
pub(super) const BLOCK: u64 = 4096;

/// On disk: the first bytes of a slot, behind the checksum.
const MAGIC: [u8; 8] = *b"kilimjnl";
/// On disk: the version of headers and batches.
const VERSION: u32 = 1;
/// On disk: the number that no segment has; it marks a spare.
pub(super) const NO_SEGMENT: u64 = 0;

// On disk: where the fields of the header lie. The checksum at 0 covers the rest of the block.
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = 16;
const STORE: usize = 24;
const SEGMENT: usize = 40;
const BASE: usize = 48;
const SEQUENCE: usize = 56;
const SIZE: usize = 64;

const PREFIX: &str = "journal.";
/// How much is written at once when a slot is filled. Linux caches what was written at once in one piece, and goes over all
/// blocks of a piece with each small write into it.
const FILL: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store: StoreId,
    pub(super) segment: u64,
    /// The absolute position of the first batch.
    pub(super) base: u64,
    /// The sequence of the first batch.
    pub(super) sequence: u64,
    /// The slot's size, with this header.
    pub(super) size: u64,
}

/// What stands in a slot's first block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderBlock {
    Whole(SegmentHeader),
    /// Zeros: the slot was never finished.
    Blank,
    Damaged,
    /// Whole, and of a version that is not ours.
    Foreign(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        block[MAGIC_AT..][..8].copy_from_slice(&MAGIC);
        block[VERSION_AT..][..4].copy_from_slice(&VERSION.to_le_bytes());
        block[STORE..][..16].copy_from_slice(&self.store);
        for (at, number) in
            [(SEGMENT, self.segment), (BASE, self.base), (SEQUENCE, self.sequence), (SIZE, self.size)]
        {
            block[at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh3_64(&block[8..]);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        block
    }
}

/// What a slot's first block says; fewer bytes if the file is that short.
pub(super) fn decode_header(block: &[u8]) -> HeaderBlock {
    if block.iter().all(|byte| *byte == 0) {
        return HeaderBlock::Blank;
    }
    if block.len() < BLOCK as usize || xxh3_64(&block[8..]).to_le_bytes() != block[..8] {
        return HeaderBlock::Damaged;
    }
    let number =
        |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("the range has eight bytes"));
    let version = number(VERSION_AT) as u32;
    if block[MAGIC_AT..][..8] != MAGIC {
        return HeaderBlock::Damaged;
    }
    if version != VERSION {
        return HeaderBlock::Foreign(version);
    }
    let store = block[STORE..][..16].try_into().expect("the range has sixteen bytes");
    HeaderBlock::Whole(SegmentHeader {
        store,
        segment: number(SEGMENT),
        base: number(BASE),
        sequence: number(SEQUENCE),
        size: number(SIZE),
    })
}

/// The name of the slot with this index.
pub(super) fn slot_name(index: u64) -> String {
    format!("{PREFIX}{index}")
}

/// The index of the slot with this name; none if it is no slot's name.
pub(super) fn slot_index(name: &str) -> Option<u64> {
    let index = name.strip_prefix(PREFIX)?.parse().ok()?;
    // Neither a sign nor leading zeros: a file has one name only.
    (slot_name(index) == name).then_some(index)
}

/// An error of the operating system at one of the journal's files.
pub(super) fn io_error(disk: &dyn Disk, name: &str, doing: &str, error: &io::Error) -> Error {
    StorageError::Io(format!("{}/{name}: {doing}: {error}", disk.name())).into()
}

/// A file of the journal that is large enough to be a segment.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) index: u64,
    pub(super) file: Arc<dyn File>,
    /// How much of the file is known to be allocated; what lies behind is not used.
    pub(super) size: u64,
}

impl Slot {
    /// Makes a new file full of zeros, on disk but for its name. On an error no file stays behind, if the disk
    /// lets it be removed.
    pub(super) fn make(disk: &dyn Disk, index: u64, size: u64) -> Result<Slot, Error> {
        let name = slot_name(index);
        let file = disk.create(&name).map_err(|error| io_error(disk, &name, "cannot be made", &error))?;
        let mut slot = Slot { index, file, size: 0 };
        if let Err(error) = slot.extend(disk, size) {
            if let Err(error) = disk.remove(&name) {
                tracing::warn!(file = name, %error, "an unfinished journal file cannot be removed");
            }
            return Err(error);
        }
        Ok(slot)
    }

    /// Fills the file with zeros from its end up to this size and syncs it. After an error it has its size still.
    pub(super) fn extend(&mut self, disk: &dyn Disk, size: u64) -> Result<(), Error> {
        let name = self.name();
        let zeros = vec![0; FILL.min(size - self.size) as usize];
        let mut filled = self.size;
        while filled < size {
            let length = FILL.min(size - filled);
            let doing = "cannot be filled with zeros at offset";
            self.file
                .write_at(&zeros[..length as usize], filled)
                .map_err(|error| io_error(disk, &name, &format!("{doing} {filled}"), &error))?;
            filled += length;
        }
        self.file.sync().map_err(|error| io_error(disk, &name, "cannot be synced", &error))?;
        self.size = size;
        Ok(())
    }

    /// Whether something in it seems to be a batch at this position or a later one, of whatever segment.
    pub(super) fn has_batches_from(&self, disk: &dyn Disk, position: u64) -> Result<bool, Error> {
        let mut bytes = vec![0; (self.size - BLOCK) as usize];
        let read = self.file.read_at(&mut bytes, BLOCK);
        read.map_err(|error| io_error(disk, &self.name(), "cannot be read", &error))?;
        let mut places = (0..bytes.len()).step_by(ALIGNMENT);
        Ok(places.any(|at| claimed_position(&bytes[at..]).is_some_and(|found| found >= position)))
    }

    /// Writes the first block and syncs it.
    pub(super) fn write_header(&self, disk: &dyn Disk, header: &SegmentHeader) -> Result<(), Error> {
        let written = self.file.write_at(&header.encode(), 0).and_then(|()| self.file.sync());
        written.map_err(|error| io_error(disk, &self.name(), "the header cannot be written", &error))
    }

    pub(super) fn name(&self) -> String {
        slot_name(self.index)
    }
}

/// The smallest slot that a batch of this size fits into.
pub(super) fn size_for(batch: u64) -> u64 {
    (BLOCK + batch + CONTROL_SIZE).next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_name_only() {
        assert_eq!(slot_index("journal.0"), Some(0));
        assert_eq!(slot_index("journal.18446744073709551615"), Some(u64::MAX));
        for name in [
            "journal.",
            "journal.01",
            "journal.+1",
            "journal.1 ",
            "journal.18446744073709551616",
            "Journal.1",
            "x",
        ] {
            assert_eq!(slot_index(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_is_decoded_and_any_damage_to_it_is_seen() {
        let header = SegmentHeader { store: [3; 16], segment: 5, base: 1 << 40, sequence: 77, size: 1 << 20 };
        let block = header.encode();
        assert_eq!(decode_header(&block), HeaderBlock::Whole(header));
        assert_eq!(decode_header(&[0; 4096]), HeaderBlock::Blank);
        assert_eq!(decode_header(&block[..4095]), HeaderBlock::Damaged);
        for byte in 0..block.len() {
            let mut damaged = block.clone();
            damaged[byte] ^= 0x40;
            assert_eq!(decode_header(&damaged), HeaderBlock::Damaged, "byte {byte}");
        }
    }
}
