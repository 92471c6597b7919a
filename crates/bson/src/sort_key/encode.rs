//! Values into key bytes, ascending. Nesting is bounded by validation, so this recurses.

use super::type_bits::{Note, TypeBitsWriter};
use super::{END, ESCAPE, lead, number};
use crate::collator::{Bytewise, TextOrder};
use crate::compare::stored_binary_length;
use crate::{RawDocument, RawValue, canonical_type};

pub(super) fn encode(
    texts: impl TextOrder,
    out: &mut Vec<u8>,
    types: &mut TypeBitsWriter,
    value: RawValue<'_>,
) {
    match value {
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {
            number::encode(out, types, value);
        }
        RawValue::String(text) => {
            types.default_type();
            out.push(lead::STRING);
            encode_ordered_text(texts, out, text);
        }
        RawValue::Symbol(text) => {
            types.note(Note::Symbol);
            out.push(lead::STRING);
            encode_ordered_text(texts, out, text);
        }
        RawValue::ObjectId(id) => {
            out.push(lead::OBJECT_ID);
            out.extend_from_slice(&id.to_bytes());
        }
        RawValue::DateTime(millis) => {
            out.push(lead::DATE);
            // Flipping the sign bit puts negative numbers first.
            out.extend_from_slice(&(millis as u64 ^ 1 << 63).to_be_bytes());
        }
        RawValue::Bool(value) => out.push(if value { lead::TRUE } else { lead::FALSE }),
        RawValue::Null => out.push(lead::NULL),
        RawValue::Undefined => out.push(lead::UNDEFINED),
        RawValue::MinKey => out.push(lead::MIN_KEY),
        RawValue::MaxKey => out.push(lead::MAX_KEY),
        RawValue::Document(document) => {
            out.push(lead::DOCUMENT);
            encode_fields(texts, out, types, document);
        }
        RawValue::Array(array) => {
            out.push(lead::ARRAY);
            for value in array.iter() {
                encode(texts, out, types, value);
            }
            out.push(END);
        }
        RawValue::Binary { subtype, bytes } => {
            out.push(lead::BINARY);
            encode_length(out, stored_binary_length(subtype, bytes.len()));
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        RawValue::Timestamp(timestamp) => {
            out.push(lead::TIMESTAMP);
            out.extend_from_slice(&timestamp.to_bits().to_be_bytes());
        }
        RawValue::Regex { pattern, options } => {
            out.push(lead::REGEX);
            encode_text(out, pattern);
            encode_text(out, options);
        }
        RawValue::DbPointer { namespace, id } => {
            out.push(lead::DB_POINTER);
            encode_length(out, namespace.len());
            out.extend_from_slice(namespace.as_bytes());
            out.extend_from_slice(&id.to_bytes());
        }
        RawValue::JavaScript(code) => {
            out.push(lead::CODE);
            encode_text(out, code);
        }
        RawValue::JavaScriptWithScope { code, scope } => {
            out.push(lead::CODE_WITH_SCOPE);
            encode_text(out, code);
            // A collation does not reach into the scope.
            encode_fields(Bytewise, out, types, scope);
        }
    }
}

/// Fields compare by bracket, then name, then value, so they are written in that order.
fn encode_fields(
    texts: impl TextOrder,
    out: &mut Vec<u8>,
    types: &mut TypeBitsWriter,
    document: RawDocument<'_>,
) {
    for (name, value) in document {
        out.push(canonical_type(value.element_type()) + 1);
        encode_text(out, name);
        encode(texts, out, types, value);
    }
    out.push(END);
}

/// A text that the collation may order otherwise than its bytes.
fn encode_ordered_text(texts: impl TextOrder, out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    if texts.write_text_key(text, out) {
        escape_in_place(out, start);
        out.push(END);
    } else {
        encode_text(out, text);
    }
}

/// Does to the bytes from `start` on what [`encode_text`] does to a text.
fn escape_in_place(out: &mut Vec<u8>, start: usize) {
    let escapes = memchr::memchr2_iter(END, ESCAPE, &out[start..]).count();
    if escapes == 0 {
        return;
    }
    let mut from = out.len();
    let mut to = from + escapes;
    out.resize(to, END);
    // From the back, until what is left stands where it belongs.
    while from < to {
        from -= 1;
        let byte = out[from];
        if byte <= ESCAPE {
            to -= 2;
            out[to] = ESCAPE;
            out[to + 1] = byte + 1;
        } else {
            to -= 1;
            out[to] = byte;
        }
    }
}

fn encode_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + 1);
    while let Some(at) = memchr::memchr2(END, ESCAPE, rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(END);
}

/// One byte for short lengths, five for others.
fn encode_length(out: &mut Vec<u8>, length: usize) {
    if length < 0xFF {
        out.push(length as u8);
    } else {
        out.push(0xFF);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
}
