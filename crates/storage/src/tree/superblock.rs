//! The two blocks that say which state of the file is the newest.
//!
//! They lie at the front of the file. A new state is written to the one that is older or damaged and synced, then
//! to the other one and synced too. Everything that it refers to is on disk before. So a torn write leaves the state
//! before, and afterwards damage to one of the two is harmless. With both damaged the store is refused: the state
//! before is never taken for the newest. An older copy of the whole file is known by the journal, which notes the
//! epoch of each state that is on disk.
//!
//! ```text
//!  0 checksum u64: xxh3 of the rest of the block     48 directory: page 20 bytes, level u8 (no page: zeros)
//!  8 magic "kilim\0db", 16 format version u32, u32 0 72 free-space map: page 20 bytes
//! 24 store id 16 bytes                               96 blocks in the file u64
//! 40 epoch u64                                      104 journal: segment, position, sequence u64
//!                                                   128 newest commit time u64, 136 own block u64
//! ```

use super::file::PageFile;
use super::{BLOCK_BYTES, PagePtr};
use crate::clock::CommitTime;
use crate::disk::File;
use crate::format;
use crate::journal::Start;
use kilim_error::{Result, StorageError};
use xxhash_rust::xxh3::xxh3_64;

/// What the block begins with behind its checksum. On disk.
const MAGIC: &[u8; 8] = b"kilim\0db";

/// Blocks before the first page.
pub(crate) const SUPERBLOCKS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Which of the two blocks it lies in.
    pub(crate) place: u64,
    /// The format's version, which says whether there may be a change log.
    pub(crate) version: u32,
    pub(crate) store: [u8; 16],
    pub(crate) epoch: u64,
    /// The directory's root and its level.
    pub(crate) directory: Option<(PagePtr, u8)>,
    pub(crate) free_map: PagePtr,
    /// The file's length in blocks.
    pub(crate) end: u64,
    /// Where the journal goes on from this state.
    pub(crate) journal: Start,
    pub(crate) commit_time: CommitTime,
}

impl Superblock {
    /// Writes both blocks, that of `self.place` first.
    pub(crate) fn write(&self, file: &PageFile) -> Result<()> {
        for place in [self.place, (self.place + 1) % SUPERBLOCKS] {
            let block = Superblock { place, ..*self }.encode();
            let written = file.file.write_at(&block, place * BLOCK_BYTES);
            written.map_err(|error| StorageError::Io(format!("the superblock: {error}")))?;
            file.sync()?;
        }
        Ok(())
    }

    /// The newest one that is whole.
    pub(crate) fn read(file: &dyn File, name: &str) -> Result<Superblock> {
        let mut newest: Option<Superblock> = None;
        let mut refused = None;
        for place in 0..SUPERBLOCKS {
            let mut block = [0; BLOCK_BYTES as usize];
            match file.read_at(&mut block, place * BLOCK_BYTES) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => continue,
                Err(error) => return Err(StorageError::Io(format!("{name}: {error}")).into()),
            }
            match Superblock::decode(&block, place) {
                Ok(found) if newest.is_none_or(|newest| found.epoch > newest.epoch) => newest = Some(found),
                Ok(_) => {}
                // A newer program's format is worth more than "damaged".
                Err(Some(error)) => refused = Some(error),
                Err(None) => tracing::warn!(
                    file = name,
                    block = place,
                    "a superblock is damaged; the other one counts"
                ),
            }
        }
        match (newest, refused) {
            (_, Some(error)) => Err(error),
            (Some(newest), None) => Ok(newest),
            (None, None) => {
                let what = format!("{name}: both superblocks are damaged, or this is not Kilim's file");
                Err(StorageError::Corrupt(what).into())
            }
        }
    }

    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES as usize] {
        let mut out = [0; BLOCK_BYTES as usize];
        out[8..16].copy_from_slice(MAGIC);
        out[16..20].copy_from_slice(&self.version.to_le_bytes());
        out[24..40].copy_from_slice(&self.store);
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        if let Some((page, level)) = &self.directory {
            out[48..68].copy_from_slice(&page.encode());
            out[68] = *level;
        }
        out[72..92].copy_from_slice(&self.free_map.encode());
        let Start { segment, position, sequence } = self.journal;
        let numbers = [self.end, segment, position, sequence, self.commit_time, self.place];
        for (place, number) in numbers.into_iter().enumerate() {
            out[96 + 8 * place..104 + 8 * place].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh3_64(&out[8..]);
        out[..8].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// The inner `None` says that it is damaged.
    pub(crate) fn decode(
        block: &[u8; BLOCK_BYTES as usize],
        place: u64,
    ) -> Result<Superblock, Option<kilim_error::Error>> {
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
        if &block[8..16] != MAGIC || u64_at(0) != xxh3_64(&block[8..]) {
            return Err(None);
        }
        let version = u32::from_le_bytes(block[16..20].try_into().unwrap_or_default());
        format::check_version(version).map_err(Some)?;
        let directory = PagePtr::decode(&block[48..68]).ok_or(None)?;
        let found = Superblock {
            place: u64_at(136),
            version,
            store: block[24..40].try_into().unwrap_or_default(),
            epoch: u64_at(40),
            directory: (directory.bytes > 0).then_some((directory, block[68])),
            free_map: PagePtr::decode(&block[72..92]).ok_or(None)?,
            end: u64_at(96),
            journal: Start { segment: u64_at(104), position: u64_at(112), sequence: u64_at(120) },
            commit_time: u64_at(128),
        };
        // One that was written to the other's place belongs to nobody.
        if found.place == place { Ok(found) } else { Err(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_read_as_it_was_written_and_every_flip_is_seen() {
        let page = PagePtr { first: 7, bytes: 5000, birth: 3 };
        let written = Superblock {
            place: 1,
            version: format::FORMAT_VERSION,
            store: *b"0123456789abcdef",
            epoch: 5,
            directory: Some((page, 2)),
            free_map: page,
            end: 99,
            journal: Start { segment: 4, position: 1 << 40, sequence: 77 },
            commit_time: 1 << 33,
        };
        let block = written.encode();
        assert_eq!(Superblock::decode(&block, 1).ok(), Some(written));
        assert!(Superblock::decode(&block, 0).is_err(), "in the wrong place");
        for bit in 0..8 * 4096 {
            let mut bad = block;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad, 1).is_err(), "bit {bit}");
        }
    }
}
