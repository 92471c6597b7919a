//! One batch in the journal's bytes: a header, a payload, zeros up to a multiple of eight.
//!
//! The checksum covers all of the header behind it and the payload. It is seeded by the store and the segment,
//! so neither what an earlier segment left in a recycled slot nor a document that contains the bytes of a
//! journal is ever taken for a batch of this segment.
//!
//! Besides data there are two control records. They stand where the next batch would, take no position and no
//! sequence, and are written at most once in a segment's last place: `Continues` names the segment that
//! follows, `Closed` says that everything before it was synced.
//!
//! Invariant: `decode_batch` returns only what `encode_batch` made for this segment and this position.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::StoreId;

/// On disk: what a batch begins with, behind its checksum.
const MAGIC: u32 = 0x6862_6b4a;

// On disk: where the fields of a batch's header lie.
const CHECKSUM: usize = 0;
const MAGIC_AT: usize = 8;
const LENGTH: usize = 12;
const POSITION: usize = 16;
const SEQUENCE: usize = 24;
const SYNCED: usize = 32;
const COMMIT_TIME: usize = 40;
const KIND: usize = 48;
/// On disk: the size of a batch's header; seven zeros follow the kind.
pub(super) const HEADER_SIZE: usize = 56;

/// On disk: batches begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

/// The largest control record. A segment keeps this much free, so that it can always be ended.
pub(super) const CONTROL_SIZE: u64 = (HEADER_SIZE + 8) as u64;

/// What a batch is. The numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Data = 1,
    /// The journal goes on in the segment whose number is the payload.
    Continues = 2,
    /// The journal was closed; nothing follows.
    Closed = 3,
}

/// The fields of a batch's header, but for those that follow from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) position: u64,
    pub(super) sequence: u64,
    /// Up to here the journal was on disk when the batch was written.
    pub(super) synced: u64,
    pub(super) commit_time: u64,
}

/// A batch that was found whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
}

impl Batch<'_> {
    pub(super) fn end(&self) -> u64 {
        self.header.position.saturating_add(size(self.payload.len()))
    }

    /// The number that a `Continues` record names.
    pub(super) fn next_segment(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.payload.try_into().ok()?))
    }
}

/// What a payload of this length takes in the journal.
pub(super) fn size(payload: usize) -> u64 {
    (HEADER_SIZE + payload).next_multiple_of(ALIGNMENT) as u64
}

/// What the checksums of a segment's batches start from.
pub(super) fn seed(store: &StoreId, segment: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(store);
    bytes[16..].copy_from_slice(&segment.to_le_bytes());
    xxh3_64(&bytes)
}

/// Puts the batch's bytes into the buffer, in place of what it holds. The payload, all parts together, is
/// `length` bytes, which the caller has found to fit.
pub(super) fn encode_batch(buffer: &mut Vec<u8>, seed: u64, header: &Header, payload: &[&[u8]], length: u32) {
    buffer.clear();
    buffer.resize(HEADER_SIZE, 0);
    buffer[MAGIC_AT..][..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[LENGTH..][..4].copy_from_slice(&length.to_le_bytes());
    buffer[POSITION..][..8].copy_from_slice(&header.position.to_le_bytes());
    buffer[SEQUENCE..][..8].copy_from_slice(&header.sequence.to_le_bytes());
    buffer[SYNCED..][..8].copy_from_slice(&header.synced.to_le_bytes());
    buffer[COMMIT_TIME..][..8].copy_from_slice(&header.commit_time.to_le_bytes());
    buffer[KIND] = header.kind as u8;
    for part in payload {
        buffer.extend_from_slice(part);
    }
    let checksum = xxh3_64_with_seed(&buffer[MAGIC_AT..], seed);
    buffer[CHECKSUM..][..8].copy_from_slice(&checksum.to_le_bytes());
    buffer.resize(buffer.len().next_multiple_of(ALIGNMENT), 0);
}

fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the range has eight bytes"))
}

/// Whether a header with this position begins here, and the size that it claims, which may be a lie.
pub(super) fn claimed_size(bytes: &[u8], position: u64) -> Option<u64> {
    if bytes.len() < HEADER_SIZE || bytes[MAGIC_AT..][..4] != MAGIC.to_le_bytes() {
        return None;
    }
    let length = u32::from_le_bytes(bytes[LENGTH..][..4].try_into().expect("the range has four bytes"));
    (field(bytes, POSITION) == position).then(|| size(length as usize))
}

/// The position of the batch of data whose header seems to begin here.
pub(super) fn claimed_position(bytes: &[u8]) -> Option<u64> {
    let begins = bytes.len() >= HEADER_SIZE && bytes[MAGIC_AT..][..4] == MAGIC.to_le_bytes();
    (begins && bytes[KIND] == Kind::Data as u8).then(|| field(bytes, POSITION))
}

/// The batch at the beginning of these bytes, which reach to the end of its segment; none if there is no whole
/// one with this position.
pub(super) fn decode_batch(bytes: &[u8], seed: u64, position: u64) -> Option<Batch<'_>> {
    let size = claimed_size(bytes, position)?;
    if size > bytes.len() as u64 {
        return None;
    }
    let length = u32::from_le_bytes(bytes[LENGTH..][..4].try_into().expect("the range has four bytes"));
    let end = HEADER_SIZE + length as usize;
    if xxh3_64_with_seed(&bytes[MAGIC_AT..end], seed) != field(bytes, CHECKSUM) {
        return None;
    }
    let kind = match bytes[KIND] {
        kind if kind == Kind::Data as u8 => Kind::Data,
        kind if kind == Kind::Continues as u8 => Kind::Continues,
        kind if kind == Kind::Closed as u8 => Kind::Closed,
        _ => return None,
    };
    let header = Header {
        kind,
        position,
        sequence: field(bytes, SEQUENCE),
        synced: field(bytes, SYNCED),
        commit_time: field(bytes, COMMIT_TIME),
    };
    Some(Batch { header, payload: &bytes[HEADER_SIZE..end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { kind: Kind::Data, position: 4096, sequence: 7, synced: 4000, commit_time: 99 };

    fn encoded(payload: &[&[u8]]) -> Vec<u8> {
        let mut buffer = vec![9; 3];
        let length = payload.iter().map(|part| part.len()).sum::<usize>() as u32;
        encode_batch(&mut buffer, 5, &HEADER, payload, length);
        buffer
    }

    #[test]
    fn a_batch_of_several_parts_is_decoded_as_one() {
        let bytes = encoded(&[b"one", b"", b"two"]);
        assert_eq!(bytes.len(), 64);
        let batch = decode_batch(&bytes, 5, 4096).unwrap();
        assert_eq!(batch.header, HEADER);
        assert_eq!(batch.payload, b"onetwo");
        assert_eq!(batch.end(), 4096 + 64);
    }

    #[test]
    fn a_batch_of_another_place_or_segment_is_none() {
        let bytes = encoded(&[b"one"]);
        assert!(decode_batch(&bytes, 5, 4104).is_none());
        assert!(decode_batch(&bytes, 6, 4096).is_none());
    }

    #[test]
    fn any_flipped_bit_but_in_the_padding_makes_it_none() {
        let bytes = encoded(&[b"payload of some bytes"]);
        for bit in 0..(HEADER_SIZE + 21) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_batch(&damaged, 5, 4096).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn bytes_that_end_early_are_none() {
        let bytes = encoded(&[b"payload of some bytes"]);
        for end in 0..bytes.len() {
            assert!(decode_batch(&bytes[..end], 5, 4096).is_none());
        }
    }
}
