//! Sorts index entries that may not fit into memory.
//!
//! Entries gather in memory; a full load is sorted and written to a temporary file as a run; at the end
//! the runs and the last load are merged. Entries are `(key, value)` byte strings, sorted by key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};

use kilim_error::{Result, StorageError};
use kilim_query::interrupt;

/// Memory of one load; two builds at once stay well below a small machine's memory.
const LOAD_BYTES_MAX: usize = 128 * 1024 * 1024;

pub type Entry = (Vec<u8>, Vec<u8>);

pub struct Sorter {
    load: Vec<Entry>,
    load_bytes: usize,
    runs: Vec<File>,
}

impl Sorter {
    pub fn new() -> Sorter {
        Sorter { load: Vec::new(), load_bytes: 0, runs: Vec::new() }
    }

    pub fn push(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.load_bytes += key.len() + value.len() + size_of::<Entry>();
        self.load.push((key, value));
        if self.load_bytes >= LOAD_BYTES_MAX {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        interrupt::sort(&mut self.load, Ord::cmp)?;
        let file = tempfile::tempfile().map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        for (key, value) in self.load.drain(..) {
            interrupt::tick()?;
            for part in [&key, &value] {
                out.write_all(&(part.len() as u32).to_le_bytes()).map_err(failed)?;
                out.write_all(part).map_err(failed)?;
            }
        }
        self.load_bytes = 0;
        self.runs.push(out.into_inner().map_err(|error| failed(error.into_error()))?);
        Ok(())
    }

    /// All entries, by key.
    pub fn finish(mut self) -> Result<Merge> {
        interrupt::sort(&mut self.load, Ord::cmp)?;
        let mut runs = Vec::with_capacity(self.runs.len() + 1);
        for mut file in self.runs {
            use std::io::Seek;
            file.rewind().map_err(failed)?;
            runs.push(Run::File(BufReader::with_capacity(1 << 20, file)));
        }
        runs.push(Run::Load(self.load.into_iter()));
        let mut merge = Merge { runs, heads: BinaryHeap::new() };
        for run in 0..merge.runs.len() {
            merge.pull(run)?;
        }
        Ok(merge)
    }
}

enum Run {
    File(BufReader<File>),
    Load(std::vec::IntoIter<Entry>),
}

pub struct Merge {
    runs: Vec<Run>,
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl Merge {
    fn pull(&mut self, run: usize) -> Result<()> {
        let entry = match &mut self.runs[run] {
            Run::Load(load) => load.next(),
            Run::File(file) => read_entry(file)?,
        };
        if let Some(entry) = entry {
            self.heads.push(Reverse((entry, run)));
        }
        Ok(())
    }

    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let Some(Reverse((entry, run))) = self.heads.pop() else { return Ok(None) };
        self.pull(run)?;
        Ok(Some(entry))
    }
}

fn read_entry(file: &mut BufReader<File>) -> Result<Option<Entry>> {
    let Some(key) = read_part(file)? else { return Ok(None) };
    let value = read_part(file)?
        .ok_or_else(|| StorageError::Io("a temporary file of an index build was cut short".to_owned()))?;
    Ok(Some((key, value)))
}

fn read_part(file: &mut BufReader<File>) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match file.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let mut part = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut part).map_err(failed)?;
    Ok(Some(part))
}

fn failed(error: std::io::Error) -> kilim_error::Error {
    StorageError::Io(format!("a temporary file of an index build: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_disk_and_the_last_load_merge_in_order() {
        let mut sorter = Sorter::new();
        for number in (0..1000u32).rev() {
            sorter.push((number * 7919 % 1000).to_be_bytes().to_vec(), vec![1]).unwrap();
            if number % 300 == 0 {
                sorter.spill().unwrap();
            }
        }
        let mut merge = sorter.finish().unwrap();
        for expected in 0..1000u32 {
            assert_eq!(merge.next_entry().unwrap().unwrap().0, expected.to_be_bytes());
        }
        assert!(merge.next_entry().unwrap().is_none());
    }
}
