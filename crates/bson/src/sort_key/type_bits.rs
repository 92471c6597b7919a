//! Type bits: what a key's bytes do not say about its values.
//!
//! Values that could be of several types (numbers and texts) are counted as they are encoded. One
//! that is not of the default type gets a note: how many went before it since the last note, what it
//! is, and its bytes where those are needed. On disk.

use super::decode::CorruptKey;
use crate::Decimal128;

/// What a value is, other than its default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Note {
    Int64,
    Double,
    NegativeZero,
    /// A NaN with bits of its own.
    OddNan(u64),
    Decimal(Decimal128),
    Symbol,
}

const INT64: u8 = 1;
const DOUBLE: u8 = 2;
const NEGATIVE_ZERO: u8 = 3;
const ODD_NAN: u8 = 4;
const DECIMAL: u8 = 5;
const SYMBOL: u8 = 6;

#[derive(Default)]
pub(super) struct TypeBitsWriter {
    bytes: Vec<u8>,
    /// Values of default type since the last note.
    skipped: u32,
    /// Nobody will read them.
    ignored: bool,
}

impl TypeBitsWriter {
    /// For keys whose types need not be restored: writes nothing, so it allocates nothing.
    pub(super) fn ignored() -> TypeBitsWriter {
        TypeBitsWriter { ignored: true, ..TypeBitsWriter::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.skipped = 0;
    }

    pub(super) fn default_type(&mut self) {
        self.skipped += 1;
    }

    pub(super) fn note(&mut self, note: Note) {
        if self.ignored {
            return;
        }
        let mut skipped = std::mem::take(&mut self.skipped);
        while skipped >= 0x80 {
            self.bytes.push(skipped as u8 | 0x80);
            skipped >>= 7;
        }
        self.bytes.push(skipped as u8);
        match note {
            Note::Int64 => self.bytes.push(INT64),
            Note::Double => self.bytes.push(DOUBLE),
            Note::NegativeZero => self.bytes.push(NEGATIVE_ZERO),
            Note::OddNan(bits) => {
                self.bytes.push(ODD_NAN);
                self.bytes.extend_from_slice(&bits.to_be_bytes());
            }
            Note::Decimal(decimal) => {
                self.bytes.push(DECIMAL);
                self.bytes.extend_from_slice(&decimal.to_bytes());
            }
            Note::Symbol => self.bytes.push(SYMBOL),
        }
    }
}

pub(super) struct TypeBitsReader<'a> {
    bytes: &'a [u8],
    /// Values of default type before the next note; `None` when no note is left.
    skip: Option<u32>,
}

impl<'a> TypeBitsReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<TypeBitsReader<'a>, CorruptKey> {
        let mut reader = TypeBitsReader { bytes, skip: None };
        reader.read_skip()?;
        Ok(reader)
    }

    fn read_skip(&mut self) -> Result<(), CorruptKey> {
        self.skip = None;
        if self.bytes.is_empty() {
            return Ok(());
        }
        let mut skip = 0;
        for shift in (0..32).step_by(7) {
            let [byte] = self.take()?;
            skip |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                self.skip = Some(skip);
                return Ok(());
            }
        }
        Err(CorruptKey)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], CorruptKey> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(CorruptKey)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// The note of the next value, if it has one.
    pub(super) fn next(&mut self) -> Result<Option<Note>, CorruptKey> {
        match self.skip {
            None => return Ok(None),
            Some(0) => {}
            Some(skip) => {
                self.skip = Some(skip - 1);
                return Ok(None);
            }
        }
        let [kind] = self.take()?;
        let note = match kind {
            INT64 => Note::Int64,
            DOUBLE => Note::Double,
            NEGATIVE_ZERO => Note::NegativeZero,
            ODD_NAN => Note::OddNan(u64::from_be_bytes(self.take()?)),
            DECIMAL => Note::Decimal(Decimal128::from_bytes(self.take()?)),
            SYMBOL => Note::Symbol,
            _ => return Err(CorruptKey),
        };
        self.read_skip()?;
        Ok(Some(note))
    }
}
