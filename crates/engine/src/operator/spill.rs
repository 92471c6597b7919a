//! Sorted runs in a temporary file, and their merge.
//!
//! A run is a sequence of entries in ascending order, each a key, a row id and the row's bytes, with
//! lengths before them. The file has no name, so it goes away with its last handle, also after a crash.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, Result, StorageError};
use kilim_storage::Bytes;

use super::{Measured, Row, RowData};
use crate::ids::RecordId;
use crate::records::{Image, RowId};

/// One row on its way through a sort.
#[derive(Debug)]
pub(super) struct SortEntry {
    pub key: Box<[u8]>,
    /// Arrival, so that equal keys keep their order.
    pub sequence: u64,
    /// A record or a document, never a key alone.
    pub row: Row,
}

impl SortEntry {
    /// What it costs in memory, the bookkeeping around it included.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + bytes_of(&self.row).1.len() + size_of::<SortEntry>()
    }
}

/// A row's bytes, and whether they are those of a record as it is stored.
fn bytes_of(row: &Row) -> (bool, &[u8]) {
    match &row.data {
        RowData::Record(image) => (true, image.as_bytes()),
        _ => (false, row.document().as_bytes()),
    }
}

impl Ord for SortEntry {
    fn cmp(&self, other: &SortEntry) -> Ordering {
        self.key.cmp(&other.key).then(self.sequence.cmp(&other.sequence))
    }
}

impl PartialOrd for SortEntry {
    fn partial_cmp(&self, other: &SortEntry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortEntry {
    fn eq(&self, other: &SortEntry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SortEntry {}

fn io(error: std::io::Error) -> kilim_error::Error {
    StorageError::Io(format!("temporary file of a sort: {error}")).into()
}

/// A run on disk.
pub(super) struct Run {
    file: File,
}

impl Run {
    /// Writes entries, which ascend.
    pub(super) fn write(entries: impl Iterator<Item = SortEntry>) -> Result<Run> {
        let mut writer = BufWriter::new(tempfile::tempfile().map_err(io)?);
        for entry in entries {
            let mut put = |bytes: &[u8]| writer.write_all(bytes).map_err(io);
            put(&(entry.key.len() as u32).to_le_bytes())?;
            put(&entry.key)?;
            put(&entry.sequence.to_le_bytes())?;
            put(&entry.row.id.record.0.to_le_bytes())?;
            put(&entry.row.id.position.to_le_bytes())?;
            let (is_record, bytes) = bytes_of(&entry.row);
            put(&[u8::from(is_record)])?;
            put(&(bytes.len() as u32).to_le_bytes())?;
            put(bytes)?;
            let key = entry.row.key.as_ref().map_or(&[][..], |key| key.as_bytes());
            put(&(key.len() as u32).to_le_bytes())?;
            put(key)?;
            put(&[u8::from(entry.row.score.is_some())])?;
            put(&entry.row.score.unwrap_or(0.0).to_bits().to_le_bytes())?;
            let near = entry.row.near.as_ref().map(|near| doc! {"d": near.distance, "p": near.place.clone()});
            let near = near.as_ref().map_or(&[][..], |near| near.as_bytes());
            put(&(near.len() as u32).to_le_bytes())?;
            put(near)?;
        }
        let file = writer.into_inner().map_err(|error| io(error.into_error()))?;
        Ok(Run { file })
    }
}

/// The entries of several runs, in order.
pub(super) struct Merge {
    readers: Vec<BufReader<File>>,
    heads: BinaryHeap<Reverse<(SortEntry, usize)>>,
}

impl Merge {
    pub(super) fn new(runs: Vec<Run>) -> Result<Merge> {
        let mut merge = Merge { readers: Vec::with_capacity(runs.len()), heads: BinaryHeap::new() };
        for (at, mut run) in runs.into_iter().enumerate() {
            run.file.seek(SeekFrom::Start(0)).map_err(io)?;
            merge.readers.push(BufReader::with_capacity(64 * 1024, run.file));
            merge.refill(at)?;
        }
        Ok(merge)
    }

    pub(super) fn next(&mut self) -> Result<Option<SortEntry>> {
        let Some(Reverse((entry, run))) = self.heads.pop() else { return Ok(None) };
        self.refill(run)?;
        Ok(Some(entry))
    }

    fn refill(&mut self, run: usize) -> Result<()> {
        if let Some(entry) = read_entry(&mut self.readers[run])? {
            self.heads.push(Reverse((entry, run)));
        }
        Ok(())
    }
}

fn read_entry(reader: &mut impl Read) -> Result<Option<SortEntry>> {
    let mut length = [0; 4];
    match reader.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let mut key = vec![0; u32::from_le_bytes(length) as usize];
    reader.read_exact(&mut key).map_err(io)?;
    let mut number = [0; 8];
    reader.read_exact(&mut number).map_err(io)?;
    let sequence = u64::from_le_bytes(number);
    reader.read_exact(&mut number).map_err(io)?;
    let record = RecordId(u64::from_le_bytes(number));
    reader.read_exact(&mut length).map_err(io)?;
    let id = RowId { record, position: u32::from_le_bytes(length) };
    let mut is_record = [0; 1];
    reader.read_exact(&mut is_record).map_err(io)?;
    reader.read_exact(&mut length).map_err(io)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    reader.read_exact(&mut bytes).map_err(io)?;
    let data = match is_record {
        // SAFETY: `Run::write` wrote these bytes of an image into a file that nobody else can open.
        [1] => RowData::Record(unsafe { Image::from_bytes(Bytes::from(bytes)) }),
        _ => RowData::Document(Document::parse(bytes).map_err(|_| Error::bug("a spilled document changed"))?),
    };
    let told = read_document(reader)?.map(Arc::new);
    let mut has_score = [0; 1];
    reader.read_exact(&mut has_score).map_err(io)?;
    reader.read_exact(&mut number).map_err(io)?;
    let score = (has_score == [1]).then(|| f64::from_bits(u64::from_le_bytes(number)));
    let near = read_document(reader)?.and_then(|near| match (near.get("d"), near.get("p")) {
        (Some(RawValue::Double(distance)), Some(place)) => {
            Some(Arc::new(Measured { distance, place: place.to_value() }))
        }
        _ => None,
    });
    Ok(Some(SortEntry { key: key.into(), sequence, row: Row { id, data, key: told, score, near } }))
}

/// A document behind its length, which is zero where there is none.
fn read_document(reader: &mut impl Read) -> Result<Option<Document>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).map_err(io)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    reader.read_exact(&mut bytes).map_err(io)?;
    match bytes.is_empty() {
        true => Ok(None),
        false => Document::parse(bytes).map(Some).map_err(|_| Error::bug("a spilled document changed")),
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::Value;

    use super::*;

    #[test]
    fn a_row_that_was_on_disk_keeps_its_distance_and_its_place() {
        let near = Arc::new(Measured { distance: 2.5, place: Value::from("here") });
        let rows = [
            Row { score: Some(2.5), near: Some(near), ..Row::of(doc! {"_id": 1}) },
            Row { score: Some(1.5), ..Row::of(doc! {"_id": 2}) },
        ];
        let entries = rows.into_iter().zip(0..).map(|(row, sequence)| SortEntry {
            key: Box::from([sequence as u8]),
            sequence,
            row,
        });
        let mut merge = Merge::new(vec![Run::write(entries).unwrap()]).unwrap();
        let first = merge.next().unwrap().expect("a row").row;
        let near = first.near.expect("a distance");
        assert_eq!((first.score, near.distance), (Some(2.5), 2.5));
        assert_eq!(near.place.as_raw().as_str(), Some("here"));
        let second = merge.next().unwrap().expect("a row").row;
        assert_eq!((second.score, second.near.is_none()), (Some(1.5), true));
    }
}
