//! The rows of a partition that are still needed, by their places. Those that do not fit in memory lie in a file.
//!
//! Rows are needed for a while from the front, in order, by several readers at different places. So the file is written
//! front to back, and what a row's bytes are is remembered by their place in it. It has no name and goes away
//! with its handle.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use kilim_bson::Document;
use kilim_error::{Error, Result, StorageError};

use crate::operator::{Row, RowData};

/// Bytes gathered before they are written: few writes, and little that is held twice.
const WRITE_BYTES: usize = 256 * 1024;

pub(super) struct Rows {
    allow_disk_use: bool,
    bytes_max: usize,
    /// The place of the first row that is held.
    first: u64,
    memory: VecDeque<Row>,
    bytes: usize,
    /// What came after memory was full.
    disk: Option<Disk>,
    spilled: bool,
}

struct Disk {
    file: File,
    entries: VecDeque<Entry>,
    written: u64,
    /// Not written yet.
    tail: Vec<u8>,
}

struct Entry {
    /// The row without its document, which is in the file.
    row: Row,
    at: u64,
    len: usize,
}

/// What a row costs beside its bytes.
const ROW_BYTES: usize = size_of::<Row>();

impl Rows {
    pub(super) fn new(allow_disk_use: bool, bytes_max: usize) -> Rows {
        Rows {
            allow_disk_use,
            bytes_max,
            first: 0,
            memory: VecDeque::new(),
            bytes: 0,
            disk: None,
            spilled: false,
        }
    }

    /// Forgets everything: another partition begins.
    pub(super) fn clear(&mut self) {
        self.first = 0;
        self.memory.clear();
        self.bytes = 0;
        self.disk = None;
    }

    /// The place behind the last row.
    pub(super) fn end(&self) -> u64 {
        let on_disk = self.disk.as_ref().map_or(0, |disk| disk.entries.len());
        self.first + (self.memory.len() + on_disk) as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any partition went to disk.
    pub(super) fn has_spilled(&self) -> bool {
        self.spilled
    }

    pub(super) fn push(&mut self, row: Row) -> Result<()> {
        let bytes = row.document().as_bytes().len() + ROW_BYTES;
        if self.disk.is_none() && self.bytes + bytes <= self.bytes_max {
            self.bytes += bytes;
            self.memory.push_back(row);
            return Ok(());
        }
        if !self.allow_disk_use {
            return Err(Error::location(
                5_643_011,
                "Exceeded max memory. Set 'allowDiskUse: true' to spill to disk",
            ));
        }
        self.spilled = true;
        if self.disk.is_none() {
            self.disk = Some(Disk::new()?);
        }
        match &mut self.disk {
            Some(disk) => disk.push(row),
            None => Ok(()),
        }
    }

    /// The row at a place. One that lies in the file is read from it.
    pub(super) fn get(&self, place: u64) -> Result<Cow<'_, Row>> {
        let gone = || Error::bug("a row of a partition is asked for that is gone");
        let at = place.checked_sub(self.first).ok_or_else(gone)? as usize;
        if let Some(row) = self.memory.get(at) {
            return Ok(Cow::Borrowed(row));
        }
        match &self.disk {
            Some(disk) => disk.get(at - self.memory.len()).map(Cow::Owned),
            None => Err(gone()),
        }
    }

    /// Forgets what stands before a place.
    pub(super) fn release(&mut self, before: u64) {
        while self.first < before {
            if let Some(row) = self.memory.pop_front() {
                self.bytes -= row.document().as_bytes().len() + ROW_BYTES;
            } else if self.disk.as_mut().and_then(|disk| disk.entries.pop_front()).is_none() {
                return;
            }
            self.first += 1;
        }
        // The file is used up, so memory serves again.
        if self.disk.as_ref().is_some_and(|disk| disk.entries.is_empty()) {
            self.disk = None;
        }
    }
}

impl Disk {
    fn new() -> Result<Disk> {
        let file = tempfile::tempfile().map_err(io)?;
        Ok(Disk { file, entries: VecDeque::new(), written: 0, tail: Vec::new() })
    }

    fn push(&mut self, row: Row) -> Result<()> {
        let bytes = row.document().as_bytes();
        let at = self.written + self.tail.len() as u64;
        let bare = row.with(RowData::Document(Document::new()));
        self.entries.push_back(Entry { row: bare, at, len: bytes.len() });
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= WRITE_BYTES {
            self.file.write_all_at(&self.tail, self.written).map_err(io)?;
            self.written += self.tail.len() as u64;
            self.tail.clear();
        }
        Ok(())
    }

    fn get(&self, at: usize) -> Result<Row> {
        let entry = self.entries.get(at).ok_or_else(|| Error::bug("a spilled row is gone"))?;
        let mut bytes = vec![0; entry.len];
        match entry.at.checked_sub(self.written) {
            Some(from) => bytes.copy_from_slice(&self.tail[from as usize..from as usize + entry.len]),
            None => self.file.read_exact_at(&mut bytes, entry.at).map_err(io)?,
        }
        let document = Document::parse(bytes).map_err(|_| Error::bug("a spilled document changed"))?;
        Ok(entry.row.with(RowData::Document(document)))
    }
}

fn io(error: std::io::Error) -> Error {
    StorageError::Io(format!("temporary file of a window: {error}")).into()
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn rows_on_disk_are_the_rows_that_came() {
        let row = |n: i32| Row::of(doc! {"_id": n, "text": "x".repeat(n as usize % 50)});
        let mut rows = Rows::new(true, 2000);
        for n in 0..5000 {
            rows.push(row(n)).expect("a row");
            if n >= 40 {
                let behind = (n - 40) as u64;
                assert_eq!(rows.get(behind).expect("a row").document(), row(n - 40).document());
                rows.release(behind / 2);
            }
        }
        assert!(rows.has_spilled());
        assert_eq!(rows.end(), 5000);
        for n in 2479..5000 {
            assert_eq!(rows.get(n as u64).expect("a row").document(), row(n).document());
            rows.release(n as u64);
        }
        let mut rows = Rows::new(false, 2000);
        let refused = (0..100).map(|n| rows.push(row(n))).find_map(Result::err).expect("too many rows");
        assert_eq!(refused.code().0, 5_643_011);
    }
}
