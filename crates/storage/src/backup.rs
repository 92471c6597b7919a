//! A physical copy of a store that goes on meanwhile.
//!
//! One side holds a state: a checkpoint is made, and the roots of its trees are kept, so none of its pages is used again.
//! It hands out the blocks that are in use, in the order of their places. The other side puts them into a file of a
//! directory whose name ends in `.unfinished`, makes an empty journal and a superblock for exactly that state, and gives
//! the directory its own name when everything is on disk.
//!
//! Invariant: a store that is opened over a finished copy has the rows of the state that was held, and no others.

use crate::backend::tree::open::{CREATING, TREES, new_store_id};
use crate::clock::CommitTime;
use crate::disk::directory::{self, Directory, DirectoryLock};
use crate::disk::{Disk, File};
use crate::extents::FreeMap;
use crate::journal::{Journal, Start};
use crate::rebuild::{begin, put_in_place};
use crate::store::Store;
use crate::tree::BLOCK_BYTES;
use crate::tree::file::PageFile;
use crate::tree::forest::Forest;
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use kilim_error::{Error, Result, StorageError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A state that is held while it is copied.
pub struct Held {
    file: Arc<PageFile>,
    _forest: Arc<Forest>,
    superblock: Superblock,
    /// First block and length of what is in use, ascending; without the superblocks.
    used: Vec<(u64, u64)>,
}

impl Held {
    pub(crate) fn new(
        file: Arc<PageFile>,
        forest: Arc<Forest>,
        superblock: Superblock,
        free: &FreeMap,
    ) -> Held {
        let mut used = Vec::new();
        let mut next = SUPERBLOCKS;
        for (first, blocks) in free.iter() {
            if first > next {
                used.push((next, first - next));
            }
            next = next.max(first + blocks);
        }
        if superblock.end > next {
            used.push((next, superblock.end - next));
        }
        Held { file, _forest: forest, superblock, used }
    }

    /// What a receiver needs to know first: a block for [`Receiver::begin`].
    pub fn superblock(&self) -> Vec<u8> {
        self.superblock.encode().to_vec()
    }

    pub fn commit_time(&self) -> CommitTime {
        self.superblock.commit_time
    }

    /// How many bytes are handed out in all.
    pub fn bytes(&self) -> u64 {
        self.used.iter().map(|(_, blocks)| blocks * BLOCK_BYTES).sum()
    }

    /// The first bytes in use from an offset on, and where they lie; `None` behind the last.
    pub fn read(&self, offset: u64, bytes_max: usize) -> Result<Option<(u64, Vec<u8>)>> {
        let block = offset / BLOCK_BYTES;
        let next = self.used.partition_point(|(first, blocks)| first + blocks <= block);
        let Some((first, blocks)) = self.used.get(next) else { return Ok(None) };
        let from = block.max(*first);
        let blocks = (first + blocks - from).min((bytes_max as u64 / BLOCK_BYTES).max(1));
        let mut bytes = vec![0; (blocks * BLOCK_BYTES) as usize];
        self.file
            .file
            .read_at(&mut bytes, from * BLOCK_BYTES)
            .map_err(|error| Error::from(StorageError::Io(format!("{TREES}: {error}"))))?;
        Ok(Some((from * BLOCK_BYTES, bytes)))
    }
}

impl Store {
    /// Makes a checkpoint and holds its state, to be copied. While it is held, space that is freed is not used again.
    pub fn hold(&self) -> Result<Held> {
        self.checkpoint()?;
        self.shared().backend.hold()
    }
}

/// The other side: a directory that a copy goes to.
pub struct Receiver {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    superblock: Superblock,
    unfinished: PathBuf,
    out: PathBuf,
    _lock: DirectoryLock,
}

impl Receiver {
    /// Begins a copy in a directory that does not exist or is empty, by what [`Held::superblock`] gave.
    pub fn begin(out: &Path, superblock: &[u8]) -> Result<Receiver> {
        let senseless = || Error::from(StorageError::Corrupt("what the server sent is no superblock".into()));
        let block: &[u8; BLOCK_BYTES as usize] = superblock.try_into().map_err(|_| senseless())?;
        let found = (0..SUPERBLOCKS).find_map(|place| match Superblock::decode(block, place) {
            Err(None) => None,
            decoded => Some(decoded),
        });
        let superblock = match found {
            Some(Ok(superblock)) => superblock,
            Some(Err(Some(error))) => return Err(error),
            _ => return Err(senseless()),
        };
        let unfinished = begin(out)?;
        let lock = directory::lock(&unfinished)?;
        let disk: Arc<dyn Disk> = Arc::new(Directory::open(&unfinished)?);
        let file = disk.create(CREATING).map_err(|error| io(&*disk, &error))?;
        disk.sync_directory().map_err(|error| io(&*disk, &error))?;
        Ok(Receiver { disk, file, superblock, unfinished, out: out.to_owned(), _lock: lock })
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if offset < SUPERBLOCKS * BLOCK_BYTES || end.is_none_or(|end| end > self.superblock.end * BLOCK_BYTES)
        {
            return Err(
                StorageError::Corrupt(format!("the server sent bytes for the offset {offset}")).into()
            );
        }
        self.file.write_at(bytes, offset).map_err(|error| io(&*self.disk, &error))
    }

    /// Makes a store of what was received.
    pub fn finish(self) -> Result<()> {
        let failed = |error: std::io::Error| io(&*self.disk, &error);
        let store = new_store_id(self.disk.environment());
        let (_, journal): (_, Start) = Journal::create(self.disk.clone(), store)?;
        self.file.set_len(self.superblock.end * BLOCK_BYTES).map_err(failed)?;
        self.file.sync().map_err(failed)?;
        let superblock = Superblock { place: 1, store, journal, ..self.superblock };
        superblock.write(&PageFile::new(self.file.clone(), CREATING.to_owned(), 0, None))?;
        self.disk.rename(CREATING, TREES).map_err(failed)?;
        self.disk.sync_directory().map_err(failed)?;
        put_in_place(&self.unfinished, &self.out)
    }

    /// Removes what was received.
    pub fn give_up(self) -> Result<()> {
        std::fs::remove_dir_all(&self.unfinished).map_err(|error| io(&*self.disk, &error))
    }
}

fn io(disk: &dyn Disk, error: &std::io::Error) -> Error {
    StorageError::Io(format!("{}: {error}", disk.name())).into()
}
