//! What a batch is in the journal.
//!
//! For each write: the space's number with the highest bit set for a deletion, the lengths of key (u16) and value (u32,
//! not for a deletion), key, value. All of it is on disk.
//!
//! Long values are handed to the journal as they lie in memory; everything between them is put together first.

use crate::space::{Bytes, Space, Write};

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
}

impl Payload {
    pub(super) fn encode(&mut self, batch: &[&Write]) {
        self.between.clear();
        self.long.clear();
        for (at, write) in batch.iter().enumerate() {
            let out = &mut self.between;
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
        }
    }
}

/// On disk.
const DELETION: u8 = 1 << 7;

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
    let mut writes = Vec::new();
    while let Some((&tag, rest)) = payload.split_first() {
        let space = *Space::ALL.get(usize::from(tag & !DELETION))?;
        let (key_bytes, mut rest) = rest.split_first_chunk::<2>()?;
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
