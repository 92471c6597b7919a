//! The files that a store lies in, as an argument.
//!
//! The tree and the journal ask a [`Disk`] for files and never the operating system. In a program the disk is a
//! directory ([`directory`]); in a simulation it is memory that tears writes, loses syncs, damages bytes and
//! fills up on command.
//!
//! What is assumed of a disk: after `sync` of a file its bytes and its length survive a power loss; after
//! `sync_directory` the names do. Bytes that were written and not synced may be there afterwards, or be partly
//! there, in any order. A write changes no byte outside its range of whole 4 KiB blocks.

pub(crate) mod directory;
#[cfg(any(test, feature = "fuzzing", feature = "simulated"))]
#[cfg_attr(not(test), allow(dead_code, reason = "others use some of it, the tests here all of it"))]
pub(crate) mod memory;
pub(crate) mod scratch;

use crate::environment::Environment;
use std::io;
use std::sync::Arc;

/// A flat directory of files.
pub(crate) trait Disk: Send + Sync {
    /// The names of everything in it, in no order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists, to read and to write.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Makes an empty file; an error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file, which replaces what has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Puts names on disk: what was made, removed and renamed.
    fn sync_directory(&self) -> io::Result<()>;

    /// Free bytes and size of the file system, if it can tell.
    fn space(&self) -> Option<FileSystemSpace>;

    /// What a message calls the place, for instance a path.
    fn name(&self) -> String;

    /// Where the store on it takes time, chance and threads from.
    fn environment(&self) -> &Environment;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystemSpace {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// A file that can be read and written at any place by several threads.
pub(crate) trait File: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    /// Fills the buffer; an error of the kind `UnexpectedEof` if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of it; the file grows as needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes whole 4 KiB blocks, which lie aligned in memory, past the operating system's memory if that can be done. A sync
    /// puts them on disk, as any others.
    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(blocks, offset)
    }

    /// Puts what was written, and the length, on disk.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file, or extends it by zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Gives the blocks of a range back to the file system; the range reads as zeros. May do nothing.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// What the file takes on the file system, without its holes.
    fn allocated_bytes(&self) -> io::Result<u64>;
}
