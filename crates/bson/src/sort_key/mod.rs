//! Index keys: bytes whose order is MongoDB's comparison order.
//!
//! A key is a run of components, one per field of the index. A component is a lead byte that ranks
//! its type, then a body whose bytes ascend with the value. Descending fields have all their bytes
//! inverted. `1`, `1.0` and `NumberLong(1)` give the same bytes, because a unique index must see them
//! as one key; what is lost of their types goes to the *type bits*, a second string stored beside the
//! key, so a covered read can restore the values exactly. The bits are empty in the common case:
//! int for whole numbers in its range, long for larger ones, double for the rest, string for text.
//!
//! What a range needs to know:
//! - No component is the beginning of another one, so components can be told apart without lengths.
//! - No component begins with `0x00` or `0xFF`, in either direction. All keys that begin with the
//!   components `p` are those from `p` up to, not including, `p ++ [0xFF]`; the keys behind every one
//!   of them begin at `p ++ [0xFF]`.
//! - All values of one bracket (see [`canonical_type`](crate::canonical_type)) have their first byte
//!   in one range: [`bracket`]. So `{a: {$gt: 5}}`, numbers only, is `key(5) ++ [0xFF]` to
//!   `[bracket(10, false).end]`, and `{a: {$lt: 5}}` is `key(-Infinity)` to `key(5)`: NaN is the
//!   bracket's smallest and matches no range.
//!
//! With a collator, what stands for a text is the collator's key of it. Such a component cannot be
//! turned back into the text, and says nothing to who does not know the collation.
//!
//! Invariant: for ascending components, byte order equals [`compare`](crate::compare), and equal bytes
//! mean equal values, under the collator where there is one. These bytes are on disk: a change here is a change of the storage format.

mod decode;
mod encode;
mod number;
mod type_bits;

use std::ops::Range;

pub use decode::{CorruptKey, KeyDecoder, component_length, decode_key};
use type_bits::TypeBitsWriter;

use crate::RawValue;
use crate::collator::{Bytewise, Collator};

/// First bytes of components. On disk. Numbers have many: their lead holds sign and size too.
mod lead {
    pub(super) const MIN_KEY: u8 = 0x10;
    pub(super) const UNDEFINED: u8 = 0x18;
    pub(super) const NULL: u8 = 0x20;
    pub(super) const NAN: u8 = 0x28;
    /// Negative numbers lie as far below as positive ones above.
    pub(super) const ZERO: u8 = 0x38;
    /// Above zero and below one.
    pub(super) const SMALL: u8 = ZERO + 1;
    /// From one to 2⁶³, by the bytes of the whole part: `WHOLE + 1` to `WHOLE + 8`.
    pub(super) const WHOLE: u8 = SMALL;
    /// From 2⁶³ up, infinity included.
    pub(super) const LARGE: u8 = WHOLE + 9;
    pub(super) const STRING: u8 = 0x50;
    pub(super) const DOCUMENT: u8 = 0x58;
    pub(super) const ARRAY: u8 = 0x60;
    pub(super) const BINARY: u8 = 0x68;
    pub(super) const OBJECT_ID: u8 = 0x70;
    pub(super) const FALSE: u8 = 0x78;
    pub(super) const TRUE: u8 = 0x79;
    pub(super) const DATE: u8 = 0x80;
    pub(super) const TIMESTAMP: u8 = 0x88;
    pub(super) const REGEX: u8 = 0x90;
    pub(super) const DB_POINTER: u8 = 0x98;
    pub(super) const CODE: u8 = 0xA0;
    pub(super) const CODE_WITH_SCOPE: u8 = 0xA8;
    pub(super) const MAX_KEY: u8 = 0xF0;
}

/// Where the negative numbers begin.
const NEGATIVE_LARGE: u8 = lead::ZERO - (lead::LARGE - lead::ZERO);

/// Ends documents, arrays and texts: below whatever could follow instead.
const END: u8 = 0x00;

/// Texts hold `0x00` as `0x01 0x01` and `0x01` as `0x01 0x02`, which keeps them in order and leaves
/// [`END`] to mean the end.
const ESCAPE: u8 = 0x01;

/// Makes keys; kept and cleared, it allocates nothing once its buffers have grown.
#[derive(Default)]
pub struct KeyEncoder {
    key: Vec<u8>,
    type_bits: TypeBitsWriter,
}

impl KeyEncoder {
    pub fn new() -> KeyEncoder {
        KeyEncoder::default()
    }

    /// Appends one component.
    pub fn push(&mut self, value: RawValue<'_>, descending: bool) {
        let start = self.key.len();
        encode::encode(Bytewise, &mut self.key, &mut self.type_bits, value);
        if descending {
            invert(&mut self.key[start..]);
        }
    }

    /// Appends one component whose texts are the collator's keys.
    pub fn push_with(&mut self, value: RawValue<'_>, descending: bool, collator: Option<&dyn Collator>) {
        let Some(collator) = collator else { return self.push(value, descending) };
        let start = self.key.len();
        encode::encode(collator, &mut self.key, &mut self.type_bits, value);
        if descending {
            invert(&mut self.key[start..]);
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Empty when every value has the type that its bytes suggest.
    pub fn type_bits(&self) -> &[u8] {
        self.type_bits.bytes()
    }

    pub fn clear(&mut self) {
        self.key.clear();
        self.type_bits.clear();
    }
}

/// Appends one component to a key whose types need not be restored, such as a bound.
pub fn encode_value(out: &mut Vec<u8>, value: RawValue<'_>, descending: bool) {
    let start = out.len();
    encode::encode(Bytewise, out, &mut TypeBitsWriter::ignored(), value);
    if descending {
        invert(&mut out[start..]);
    }
}

/// [`encode_value`] with texts as the collator's keys.
#[inline]
pub fn encode_value_with(
    out: &mut Vec<u8>,
    value: RawValue<'_>,
    descending: bool,
    collator: Option<&dyn Collator>,
) {
    let Some(collator) = collator else { return encode_value(out, value, descending) };
    let start = out.len();
    encode::encode(collator, out, &mut TypeBitsWriter::ignored(), value);
    if descending {
        invert(&mut out[start..]);
    }
}

/// The first bytes of all components of a bracket, by the numbers of
/// [`canonical_type`](crate::canonical_type): every value of that bracket lies from `[start]` up to,
/// not including, `[end]`, and no other value does. Neither end is `0x00` or `0xFF`, so both may stand
/// behind a prefix of components.
pub fn bracket(canonical: u8, descending: bool) -> Range<u8> {
    let (first, last) = match canonical {
        0 => (lead::MIN_KEY, lead::MIN_KEY),
        1 => (lead::UNDEFINED, lead::UNDEFINED),
        5 => (lead::NULL, lead::NULL),
        10 => (lead::NAN, lead::LARGE),
        15 => (lead::STRING, lead::STRING),
        20 => (lead::DOCUMENT, lead::DOCUMENT),
        25 => (lead::ARRAY, lead::ARRAY),
        30 => (lead::BINARY, lead::BINARY),
        35 => (lead::OBJECT_ID, lead::OBJECT_ID),
        40 => (lead::FALSE, lead::TRUE),
        45 => (lead::DATE, lead::DATE),
        47 => (lead::TIMESTAMP, lead::TIMESTAMP),
        50 => (lead::REGEX, lead::REGEX),
        55 => (lead::DB_POINTER, lead::DB_POINTER),
        60 => (lead::CODE, lead::CODE),
        65 => (lead::CODE_WITH_SCOPE, lead::CODE_WITH_SCOPE),
        _ => (lead::MAX_KEY, lead::MAX_KEY),
    };
    if descending { !last..!first + 1 } else { first..last + 1 }
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

#[cfg(test)]
mod tests;
