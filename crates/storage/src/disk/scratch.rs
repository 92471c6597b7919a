//! A directory to look at: what is written over it stays in memory and ends with the disk.
//!
//! A check opens a store as any start does, and a start writes: the journal's next header, a spare file, what the
//! engine cleans up. Here such writes go to a map of blocks in memory, while the directory's files are opened for
//! reading only.
//!
//! Invariant: nothing in the directory is changed, whatever the store over it does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, File, FileSystemSpace};
use crate::environment::Environment;

const BLOCK: u64 = 4096;

pub(crate) struct Scratch {
    path: PathBuf,
    files: Mutex<BTreeMap<String, Arc<ScratchFile>>>,
    environment: Environment,
}

impl Scratch {
    /// Over a directory that exists.
    pub(crate) fn over(path: &Path) -> io::Result<Scratch> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A folder is listed and cannot be opened, as in the directory itself.
            let below = if entry.path().is_dir() { None } else { Some(fs::File::open(entry.path())?) };
            let len = below.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
            let written = Mutex::new(Written { len, below_len: len, blocks: BTreeMap::new() });
            files.insert(name, Arc::new(ScratchFile { below, written }));
        }
        let environment = Environment::default();
        Ok(Scratch { path: path.to_owned(), files: Mutex::new(files), environment })
    }
}

impl Disk for Scratch {
    fn environment(&self) -> &Environment {
        &self.environment
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.files.lock().get(name).cloned();
        Ok(file.ok_or(io::ErrorKind::NotFound)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(ScratchFile { below: None, written: Mutex::default() });
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    /// Memory is what it takes, and a check must run on a full disk.
    fn space(&self) -> Option<FileSystemSpace> {
        None
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

struct ScratchFile {
    below: Option<fs::File>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    len: u64,
    /// Up to here the file below shows where no block was written.
    below_len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl ScratchFile {
    /// Fills the buffer from the file below, with zeros behind its end.
    fn read_below(&self, buffer: &mut [u8], offset: u64, below_len: u64) -> io::Result<()> {
        let known = below_len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (known, rest) = buffer.split_at_mut(known);
        rest.fill(0);
        match &self.below {
            Some(below) => below.read_exact_at(known, offset),
            None => {
                known.fill(0);
                Ok(())
            }
        }
    }
}

/// The blocks that a range touches.
fn blocks_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    offset / BLOCK..(offset + len as u64).div_ceil(BLOCK)
}

impl File for ScratchFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let written = self.written.lock();
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > written.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(buffer, offset, written.below_len)?;
        for (block, bytes) in written.blocks.range(blocks_of(offset, buffer.len())) {
            let from = (block * BLOCK).max(offset);
            let to = ((block + 1) * BLOCK).min(offset + buffer.len() as u64);
            let source = &bytes[(from - block * BLOCK) as usize..(to - block * BLOCK) as usize];
            buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        let below_len = written.below_len;
        for block in blocks_of(offset, bytes.len()) {
            let start = block * BLOCK;
            let content = match written.blocks.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unwritten) => {
                    let mut content = vec![0; BLOCK as usize].into_boxed_slice();
                    self.read_below(&mut content, start, below_len)?;
                    unwritten.insert(content)
                }
            };
            let (from, to) = (start.max(offset), (start + BLOCK).min(offset + bytes.len() as u64));
            content[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
        }
        written.len = written.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        written.blocks.split_off(&len.div_ceil(BLOCK));
        written.below_len = written.below_len.min(len);
        if let Some(last) = written.blocks.get_mut(&(len / BLOCK)) {
            last[(len % BLOCK) as usize..].fill(0);
        }
        written.len = len;
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        // What is punched is free, and nobody reads it before it is written again.
        let mut written = self.written.lock();
        written.blocks.retain(|block, _| block * BLOCK < offset || (block + 1) * BLOCK > offset + len);
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_the_directory_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, vec![1; 6000]).unwrap();
        let disk = Scratch::over(dir.path()).unwrap();
        let file = disk.open("a").unwrap();
        file.write_at(&[2; 100], 4090).unwrap();
        file.write_at(&[3; 10], 9000).unwrap();
        let mut read = vec![0; 9010];
        file.read_at(&mut read, 0).unwrap();
        let mut expected = vec![1; 6000];
        expected.resize(9000, 0);
        expected[4090..4190].fill(2);
        expected.resize(9010, 3);
        assert!(read == expected);
        assert!(file.read_at(&mut [0; 2], 9009).is_err());

        file.set_len(4100).unwrap();
        file.set_len(5000).unwrap();
        expected.truncate(4100);
        expected.resize(5000, 0);
        let mut read = vec![0; 5000];
        file.read_at(&mut read, 0).unwrap();
        assert!(read == expected);

        disk.create("b").unwrap();
        disk.rename("b", "a").unwrap();
        assert_eq!(disk.open("a").unwrap().len().unwrap(), 0);
        assert!(disk.open("b").is_err());
        assert_eq!(fs::read(&path).unwrap(), vec![1; 6000]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
