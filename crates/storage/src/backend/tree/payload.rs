//! What a batch is in the journal.
//!
//! For each write: the space's number with the highest bit set for a deletion, the lengths of key (u16) and value (u32,
//! not for a deletion), key, value. The document of an event lies in a record of the same batch as a rule (`log.rs`). Then it has
//! the number of a space of its own, and the record's place in the batch instead of its length and value. All of it is on disk.
//!
//! Long values are handed to the journal as they lie in memory; everything between them is put together first.

use crate::log;
use crate::space::{Bytes, STAMP_BYTES, Space, Write};

/// Shorter values are copied: a part of its own costs as much.
const LONG_BYTES: usize = 256;

/// A buffer that a rare large batch has grown is not kept.
const BUFFER_KEPT: usize = 4 << 20;

/// What lies between the long values of a batch.
#[derive(Default)]
pub(super) struct Payload {
    between: Vec<u8>,
    /// Where in `between` each long value belongs, with its write.
    long: Vec<(usize, usize)>,
    /// Where the documents of the batch's records lie in memory, in order, with their writes.
    documents: Vec<(usize, u32)>,
}

impl Payload {
    pub(super) fn encode(&mut self, batch: &[&Write]) {
        self.between.clear();
        self.long.clear();
        self.find_documents(batch);
        for (at, write) in batch.iter().enumerate() {
            let record = self.record_of(write).filter(|record| (*record as usize) < at);
            let out = &mut self.between;
            if let Some(record) = record {
                debug_assert_eq!(
                    batch[record as usize].value.as_ref().map(|value| &value[STAMP_BYTES..]),
                    write.value.as_deref(),
                    "an event shares another document"
                );
                out.push(DOCUMENT);
                out.extend_from_slice(&(write.key.len() as u16).to_le_bytes());
                out.extend_from_slice(&record.to_le_bytes());
                out.extend_from_slice(&write.key);
                continue;
            }
            let deletion = if write.value.is_none() { DELETION } else { 0 };
            out.push(write.space as u8 | deletion);
            out.extend_from_slice(&(write.key.len() as u16).to_le_bytes());
            if let Some(value) = &write.value {
                out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            }
            out.extend_from_slice(&write.key);
            match &write.value {
                Some(value) if value.len() >= LONG_BYTES => self.long.push((out.len(), at)),
                Some(value) => out.extend_from_slice(value),
                None => {}
            }
        }
    }

    /// Notes where documents lie, if the batch has events that may share them.
    fn find_documents(&mut self, batch: &[&Write]) {
        self.documents.clear();
        if !batch.iter().any(|write| log::is_document(write)) {
            return;
        }
        for (at, write) in batch.iter().enumerate().filter(|(_, write)| write.space == Space::Records) {
            if let Some(document) = write.value.as_ref().and_then(|value| value.get(STAMP_BYTES..)) {
                self.documents.push((document.as_ptr().addr(), at as u32));
            }
        }
        self.documents.sort_unstable();
    }

    /// The write of the record whose document an event shares. Both are alive, so what lies in one place is one thing.
    fn record_of(&self, write: &Write) -> Option<u32> {
        let value = write.value.as_ref().filter(|_| log::is_document(write))?;
        let found = self.documents.binary_search_by_key(&value.as_ptr().addr(), |(place, _)| *place).ok()?;
        Some(self.documents[found].1)
    }

    /// The encoded batch, in pieces.
    pub(super) fn parts<'p>(&'p self, batch: &[&'p Write]) -> Vec<&'p [u8]> {
        let mut parts = Vec::with_capacity(2 * self.long.len() + 1);
        let mut from = 0;
        for &(to, at) in &self.long {
            parts.push(&self.between[from..to]);
            parts.extend(batch[at].value.as_deref());
            from = to;
        }
        parts.push(&self.between[from..]);
        parts
    }

    pub(super) fn shrink(&mut self) {
        if self.between.capacity() > BUFFER_KEPT {
            self.between = Vec::new();
            self.documents = Vec::new();
        }
    }
}

/// On disk.
const DELETION: u8 = 1 << 7;

/// On disk: a row of the change log whose value is the document of a record that stands before it in the batch.
const DOCUMENT: u8 = Space::COUNT as u8;

/// On disk, in the journal: a batch without writes begins with this number, which no space has, and an epoch (u64)
/// follows that the file had reached before.
const EPOCH: u8 = 0x7f;

pub(super) fn encode_epoch(epoch: u64) -> [u8; 9] {
    let mut out = [EPOCH; 9];
    out[1..].copy_from_slice(&epoch.to_le_bytes());
    out
}

pub(crate) fn decode_epoch(payload: &[u8]) -> Option<u64> {
    let epoch = payload.strip_prefix(&[EPOCH])?;
    Some(u64::from_le_bytes(epoch.try_into().ok()?))
}

/// The writes of a batch, or `None` if it is not one that [`Payload`] makes.
pub(crate) fn decode(mut payload: &[u8]) -> Option<Vec<Write>> {
    let mut writes: Vec<Write> = Vec::new();
    while let Some((&tag, rest)) = payload.split_first() {
        let (key_bytes, mut rest) = rest.split_first_chunk::<2>()?;
        if tag == DOCUMENT {
            let (record, behind) = rest.split_first_chunk::<4>()?;
            let (key, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
            let record = writes.get(u32::from_le_bytes(*record) as usize)?;
            let stored = record.value.as_ref().filter(|_| record.space == Space::Records)?;
            let document = (stored.len() >= STAMP_BYTES).then(|| stored.slice(STAMP_BYTES..))?;
            writes.push(Write { space: Space::Log, key: Bytes::from(key), value: Some(document) });
            payload = behind;
            continue;
        }
        let space = *Space::ALL.get(usize::from(tag & !DELETION))?;
        let mut value_bytes = None;
        if tag & DELETION == 0 {
            let (bytes, behind) = rest.split_first_chunk::<4>()?;
            value_bytes = Some(u32::from_le_bytes(*bytes) as usize);
            rest = behind;
        }
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
        let (value, rest) = rest.split_at_checked(value_bytes.unwrap_or(0))?;
        writes.push(Write { space, key: Bytes::from(key), value: value_bytes.map(|_| Bytes::from(value)) });
        payload = rest;
    }
    Some(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_an_event_is_written_once_and_shared_again() {
        let record = |key: &str| Write {
            space: Space::Records,
            key: Bytes::from(key),
            value: Some(Bytes::from(vec![5; 1000])),
        };
        let document = |of: &Write| Write {
            space: Space::Log,
            key: Bytes::from("an event's key..!"),
            value: of.value.as_ref().map(|value| value.slice(STAMP_BYTES..)),
        };
        let writes = [record("a"), record("b"), record("c")];
        let (shared, own) = (document(&writes[1]), document(&record("d")));
        let batch = [&writes[0], &writes[1], &writes[2], &shared, &own];
        let mut payload = Payload::default();
        payload.encode(&batch);
        let bytes = payload.parts(&batch).concat();
        assert!((4_000..4_200).contains(&bytes.len()), "{}", bytes.len());
        let decoded = decode(&bytes).unwrap();
        assert!(decoded.iter().zip(batch).all(|(one, two)| one.key == two.key && one.value == two.value));
        let [.., b, _, again, _] = &decoded[..] else { panic!() };
        let (b, again) = (b.value.as_ref().unwrap(), again.value.as_ref().unwrap());
        assert_eq!(b[STAMP_BYTES..].as_ptr(), again.as_ptr());
        // A record that is not before it, and one that is no record.
        for wrong in [4u32, 3, u32::MAX] {
            let at = bytes.windows(7).position(|bytes| bytes == [DOCUMENT, 17, 0, 1, 0, 0, 0]).unwrap();
            let mut damaged = bytes.clone();
            damaged[at + 3..][..4].copy_from_slice(&wrong.to_le_bytes());
            assert!(decode(&damaged).is_none(), "{wrong}");
        }
        // Before the record, the document is written out.
        let batch = [&shared, &writes[1]];
        payload.encode(&batch);
        let decoded = decode(&payload.parts(&batch).concat()).unwrap();
        assert_eq!(decoded[0].value, shared.value);
    }

    #[test]
    fn a_batch_is_decoded_as_it_was_encoded() {
        let write = |space, key: &str, value: Option<usize>| Write {
            space,
            key: Bytes::from(key),
            value: value.map(|len| Bytes::from(vec![7; len])),
        };
        let writes = [
            write(Space::Records, "a", Some(1000)),
            write(Space::Records, "b", Some(LONG_BYTES)),
            write(Space::Index, "c", Some(0)),
            write(Space::Index, "d", None),
            write(Space::Meta, "e", Some(LONG_BYTES - 1)),
            write(Space::Records, "f", Some(300)),
            write(Space::Log, "an event's key..", Some(20)),
        ];
        for count in 0..=writes.len() {
            let batch: Vec<&Write> = writes[..count].iter().collect();
            let mut payload = Payload::default();
            payload.encode(&batch);
            let decoded = decode(&payload.parts(&batch).concat()).unwrap();
            let told = |write: &Write| (write.space, write.key.clone(), write.value.clone());
            assert_eq!(
                decoded.iter().map(told).collect::<Vec<_>>(),
                writes[..count].iter().map(told).collect::<Vec<_>>()
            );
        }
    }
}
