//! Validation of bytes from outside: the one gate before raw access trusts them.
//!
//! One pass, front to back, without recursion: open containers wait on a small stack of end
//! positions, so a hostile nesting costs a bounded array and not the thread's stack.
//!
//! Invariant: what passes here has true lengths, known types, UTF-8 names and texts, and at most
//! [`DEPTH_MAX`] containers inside the outermost. Duplicate names and array names pass unlooked at,
//! as in mongod.

use std::fmt;

use kilim_error::{Error, ErrorCode};

use crate::raw::mark_zero;
use crate::{Document, ElementType, RawDocument};

/// Containers inside the outermost document that a message may hold, as in mongod.
pub const DEPTH_MAX: usize = 200;

/// Levels of a stored document, itself included, as in mongod: lower than on the wire, so that a
/// stored document still fits into the commands and replies around it.
pub const STORED_DEPTH_MAX: usize = 180;

/// The smallest document: four length bytes and the final zero.
const DOCUMENT_BYTES_MIN: usize = 5;

/// What a container within a container costs at least: type, an empty name's zero, an empty document.
const LEVEL_BYTES_MIN: usize = 2 + DOCUMENT_BYTES_MIN;

/// Why bytes are no BSON, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    fault: Fault,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Length,
    End,
    Type(u8),
    Name,
    Text,
    Bool,
    Depth,
}

impl<'a> RawDocument<'a> {
    /// Validates bytes that must be exactly one document.
    pub fn parse(bytes: &'a [u8]) -> Result<RawDocument<'a>, Malformed> {
        match RawDocument::parse_prefix(bytes)? {
            (document, []) => Ok(document),
            (document, _) => Err(Malformed { fault: Fault::Length, at: document.as_bytes().len() }),
        }
    }

    /// Validates the document at the start of a buffer and returns what follows it.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(RawDocument<'a>, &'a [u8]), Malformed> {
        let length = read_length(bytes, 0)?;
        if length < DOCUMENT_BYTES_MIN || length > bytes.len() {
            return Err(Malformed { fault: Fault::Length, at: 0 });
        }
        let (document, rest) = bytes.split_at(length);
        validate(document)?;
        // SAFETY: validated just now.
        Ok((unsafe { RawDocument::from_validated(document) }, rest))
    }

    /// Levels of containers, the document's own included.
    pub fn depth(self) -> usize {
        let mut deepest = 1;
        let mut open = vec![self.iter()];
        while let Some(iter) = open.last_mut() {
            match iter.next_container() {
                Some(inner) => {
                    open.push(inner.iter());
                    deepest = deepest.max(open.len());
                }
                None => {
                    open.pop();
                }
            }
        }
        deepest
    }

    /// Refuses what is nested too deeply to be stored.
    pub fn check_stored_depth(self) -> Result<(), Error> {
        // Most documents are too short to be that deep, and need not be walked.
        let possible = self.as_bytes().len() / LEVEL_BYTES_MIN + 1;
        if possible > STORED_DEPTH_MAX && self.depth() > STORED_DEPTH_MAX {
            return Err(Error::user(
                ErrorCode::Overflow,
                format!("cannot insert document because it exceeds {STORED_DEPTH_MAX} levels of nesting"),
            ));
        }
        Ok(())
    }
}

impl Document {
    /// Validates bytes that must be exactly one document, and keeps them.
    pub fn parse(bytes: Vec<u8>) -> Result<Document, Malformed> {
        RawDocument::parse(&bytes)?;
        // SAFETY: validated just now.
        Ok(unsafe { Document::from_validated(bytes) })
    }
}

/// Walks `bytes`, whose length field is already known to be true.
fn validate(bytes: &[u8]) -> Result<(), Malformed> {
    let mut ends = [0u32; DEPTH_MAX];
    let mut depth = 0;
    // The innermost container's final zero. Everything read before it stays below it, so an element
    // never reaches into what surrounds its container.
    let mut end = bytes.len() - 1;
    if bytes[end] != 0 {
        return Err(Malformed { fault: Fault::End, at: end });
    }
    let mut at = 4;
    loop {
        let kind = bytes[at];
        if kind == 0 {
            if at != end {
                return Err(Malformed { fault: Fault::Length, at });
            }
            if depth == 0 {
                return Ok(());
            }
            at += 1;
            depth -= 1;
            end = ends[depth] as usize;
            continue;
        }
        let element = at;
        at = skip_name(bytes, at + 1, end)?;
        let fixed = |size: usize| {
            if size > end - at { Err(Malformed { fault: Fault::Length, at: element }) } else { Ok(at + size) }
        };
        let Some(kind) = ElementType::from_byte(kind) else {
            return Err(Malformed { fault: Fault::Type(kind), at: element });
        };
        at = match kind {
            ElementType::Double | ElementType::DateTime | ElementType::Timestamp | ElementType::Int64 => {
                fixed(8)?
            }
            ElementType::Int32 => fixed(4)?,
            ElementType::ObjectId => fixed(12)?,
            ElementType::Decimal128 => fixed(16)?,
            ElementType::Undefined | ElementType::Null | ElementType::MaxKey | ElementType::MinKey => at,
            ElementType::Bool => {
                let next = fixed(1)?;
                if bytes[at] > 1 {
                    return Err(Malformed { fault: Fault::Bool, at });
                }
                next
            }
            ElementType::String | ElementType::JavaScript | ElementType::Symbol => skip_text(bytes, at, end)?,
            ElementType::DbPointer => {
                let id = skip_text(bytes, at, end)?;
                if end - id < 12 {
                    return Err(Malformed { fault: Fault::Length, at: element });
                }
                id + 12
            }
            ElementType::Regex => {
                let options = skip_name(bytes, at, end)?;
                skip_name(bytes, options, end)?
            }
            ElementType::Binary => {
                let next = fixed(5)? + read_length(bytes, at)?;
                if next > end {
                    return Err(Malformed { fault: Fault::Length, at: element });
                }
                // The old generic subtype repeats the length inside.
                if bytes[at + 4] == 2 {
                    let content = at + 9;
                    if content > next || read_length(bytes, at + 5)? != next - content {
                        return Err(Malformed { fault: Fault::Length, at: at + 5 });
                    }
                }
                next
            }
            ElementType::Document | ElementType::Array | ElementType::JavaScriptWithScope => {
                let mut start = at;
                let mut length = read_length(bytes, start)?;
                if kind == ElementType::JavaScriptWithScope {
                    // The scope fills exactly what the code leaves of the stated length.
                    fixed(length)?;
                    let whole = at + length;
                    start = skip_text(bytes, fixed(4)?, end)?;
                    length = read_length(bytes, start)?;
                    if start.checked_add(length) != Some(whole) {
                        return Err(Malformed { fault: Fault::Length, at: element });
                    }
                }
                if length < DOCUMENT_BYTES_MIN || length > end - start {
                    return Err(Malformed { fault: Fault::Length, at: start });
                }
                if depth == DEPTH_MAX {
                    return Err(Malformed { fault: Fault::Depth, at: element });
                }
                ends[depth] = end as u32;
                depth += 1;
                end = start + length - 1;
                if bytes[end] != 0 {
                    return Err(Malformed { fault: Fault::End, at: end });
                }
                start + 4
            }
        };
    }
}

fn read_length(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let malformed = Malformed { fault: Fault::Length, at };
    let four = bytes.get(at..at + 4).ok_or(malformed)?;
    let length = i32::from_le_bytes(four.try_into().expect("four bytes"));
    usize::try_from(length).map_err(|_| malformed)
}

/// The position behind the zero that ends a name. `bytes[end]` is zero, so the scan stops there at
/// the latest.
#[inline]
fn skip_name(bytes: &[u8], start: usize, end: usize) -> Result<usize, Malformed> {
    // Eight bytes at a time, looking for the zero and for foreign letters at once.
    let mut seen = 0;
    let mut at = start;
    loop {
        let Some(word) = bytes[at..].first_chunk() else {
            while bytes[at] != 0 {
                seen |= u64::from(bytes[at]);
                at += 1;
            }
            break;
        };
        let word = u64::from_le_bytes(*word);
        let mark = mark_zero(word);
        if mark != 0 {
            // Only the bytes before the zero belong to the name.
            seen |= word & ((mark & mark.wrapping_neg()) - 1);
            at += mark.trailing_zeros() as usize / 8;
            break;
        }
        seen |= word;
        at += 8;
    }
    if at >= end {
        return Err(Malformed { fault: Fault::End, at: start });
    }
    if seen & 0x8080_8080_8080_8080 != 0 && std::str::from_utf8(&bytes[start..at]).is_err() {
        return Err(Malformed { fault: Fault::Name, at: start });
    }
    Ok(at + 1)
}

/// The position behind a length-prefixed text.
#[inline]
fn skip_text(bytes: &[u8], at: usize, end: usize) -> Result<usize, Malformed> {
    let length = read_length(bytes, at)?;
    let start = at + 4;
    if length == 0 || start > end || length > end - start {
        return Err(Malformed { fault: Fault::Length, at });
    }
    let last = start + length - 1;
    if bytes[last] != 0 {
        return Err(Malformed { fault: Fault::End, at: last });
    }
    if std::str::from_utf8(&bytes[start..last]).is_err() {
        return Err(Malformed { fault: Fault::Text, at: start });
    }
    Ok(last + 1)
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.fault {
            Fault::Length => write!(f, "incorrect BSON length at byte {at}"),
            Fault::End => write!(f, "not null terminated string or object at byte {at}"),
            Fault::Type(kind) => write!(f, "Unrecognized BSON type {} at byte {at}", kind as i8),
            Fault::Name => write!(f, "field name is not valid UTF-8 at byte {at}"),
            Fault::Text => write!(f, "string is not valid UTF-8 at byte {at}"),
            Fault::Bool => write!(f, "BSON bool must be 0 or 1 at byte {at}"),
            Fault::Depth => write!(f, "BSONObj exceeds maximum nested object depth"),
        }
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        let code = match malformed.fault {
            Fault::Depth => ErrorCode::Overflow,
            _ => ErrorCode::InvalidBSON,
        };
        Error::user(code, malformed.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawValue, Writer, array, doc};

    fn nested(levels: usize) -> Document {
        let mut writer = Writer::new();
        (1..levels).for_each(|_| writer.open_document("x"));
        (1..levels).for_each(|_| writer.close());
        writer.finish()
    }

    /// Bytes in hex, spaces ignored.
    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let cases = [
            ("", "nothing"),
            ("05000000", "no final zero"),
            ("0400000000", "length below the minimum"),
            ("FFFFFFFF00", "negative length"),
            ("0500000001", "wrong final byte"),
            ("060000000000", "zero before the end"),
            ("0500000000 00", "trailing byte"),
            ("0A000000 10 6100 0000 00", "int cut short"),
            ("09000000 14 6100 00 00", "unknown type"),
            ("08000000 0A 61 61 00", "name runs into the final zero"),
            ("08000000 0A FF00 00", "name not UTF-8"),
            ("0D000000 02 6100 00000000 00 00", "string length zero"),
            ("0D000000 02 6100 FFFFFFFF 00 00", "string length negative"),
            ("0E000000 02 6100 01000000 00 00 00", "string shorter than its place"),
            ("0E000000 02 6100 03000000 62 00 00", "string takes the document's zero"),
            ("0E000000 02 6100 02000000 62 62 00", "string without zero"),
            ("0E000000 02 6100 02000000 E9 00 00", "string not UTF-8"),
            ("09000000 08 6100 02 00", "bool of two"),
            ("0C000000 03 6100 05000000 00", "inner document takes the outer zero"),
            ("0D000000 03 6100 04000000 00 00", "inner length below the minimum"),
            ("12000000 05 6100 05000000 02 02000000 AA 00", "old binary length differs"),
            ("0F000000 05 6100 02000000 02 AABB 00", "old binary without room for its length"),
            ("0E000000 05 6100 FFFFFFFF 00 AA 00", "binary length negative"),
            ("0A000000 0B 6100 62 00 00", "regex without options"),
            ("1A000000 0F 6100 10000000 02000000 6200 05000000 00 00 00 00", "scope shorter than stated"),
            (
                "15000000 0F 6100 09000000 02000000 6200 05000000 00 00",
                "code with scope shorter than its parts",
            ),
            ("0E000000 0C 6100 02000000 62 00 00", "pointer without id"),
        ];
        for (hex, why) in cases {
            assert!(Document::parse(bytes(hex)).is_err(), "{why}");
        }
    }

    #[test]
    fn every_type_passes_and_no_cut_or_flip_panics() {
        let mut whole = doc! {
            "double": 1.5, "string": "sträng", "object": {"a": {"b": {}}}, "array": [1, [2, {"c": 3}]],
            "id": (crate::ObjectId::from_bytes([7; 12])), "bool": true, "int": 1, "long": 2i64,
        };
        for (name, value) in [
            ("binary", RawValue::Binary { subtype: 0, bytes: b"abc" }),
            ("old binary", RawValue::Binary { subtype: 2, bytes: b"abc" }),
            ("undefined", RawValue::Undefined),
            ("date", RawValue::DateTime(-1)),
            ("null", RawValue::Null),
            ("regex", RawValue::Regex { pattern: "a.*", options: "i" }),
            ("pointer", RawValue::DbPointer { namespace: "a.b", id: crate::ObjectId::from_bytes([1; 12]) }),
            ("code", RawValue::JavaScript("f()")),
            ("symbol", RawValue::Symbol("s")),
            ("scope", RawValue::JavaScriptWithScope { code: "g()", scope: doc! {"x": 1}.as_raw() }),
            ("timestamp", RawValue::Timestamp(crate::Timestamp { seconds: 1, increment: 2 })),
            ("decimal", RawValue::Decimal128(crate::Decimal128::from_bytes([9; 16]))),
            ("max", RawValue::MaxKey),
            ("min", RawValue::MinKey),
        ] {
            whole.push(name, value.to_value());
        }
        let good = whole.into_bytes();
        assert!(RawDocument::parse(&good).is_ok());
        for cut in 0..good.len() {
            assert!(RawDocument::parse(&good[..cut]).is_err());
        }
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xFF, 0x7F] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                // Whatever passes must be readable to its leaves.
                if let Ok(document) = RawDocument::parse(&bad) {
                    assert!(document.depth() >= 1);
                    assert!(!format!("{document:?}").is_empty());
                }
            }
        }
    }

    #[test]
    fn a_prefix_gives_back_the_rest() {
        let mut buffer = doc! {"a": 1}.into_bytes();
        buffer.extend_from_slice(b"rest");
        let (document, rest) = RawDocument::parse_prefix(&buffer).unwrap();
        assert_eq!((document.get("a").is_some(), rest), (true, &b"rest"[..]));
    }

    #[test]
    fn depth_is_bounded_on_the_wire_and_in_storage() {
        assert!(Document::parse(nested(201).into_bytes()).is_ok());
        let error = Error::from(Document::parse(nested(202).into_bytes()).unwrap_err());
        assert_eq!(error.code(), ErrorCode::Overflow);
        assert!(Document::parse(nested(100_000).into_bytes()).is_err());
        assert!(nested(180).as_raw().check_stored_depth().is_ok());
        let error = nested(181).as_raw().check_stored_depth().unwrap_err();
        assert_eq!(error.to_string(), "cannot insert document because it exceeds 180 levels of nesting");
        assert_eq!(doc! {"a": [[1]], "b": 1}.as_raw().depth(), 3);
        assert_eq!(doc! {"a": (array![1])}.as_raw().depth(), 2);
    }
}
