//! Values into key bytes, ascending. Nesting is bounded by validation, so this recurses.

use super::type_bits::{Note, TypeBitsWriter};
use super::{END, ESCAPE, lead, number};
use crate::compare::stored_binary_length;
use crate::{RawDocument, RawValue, canonical_type};

pub(super) fn encode(out: &mut Vec<u8>, types: &mut TypeBitsWriter, value: RawValue<'_>) {
    match value {
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {
            number::encode(out, types, value);
        }
        RawValue::String(text) => {
            types.default_type();
            out.push(lead::STRING);
            encode_text(out, text);
        }
        RawValue::Symbol(text) => {
            types.note(Note::Symbol);
            out.push(lead::STRING);
            encode_text(out, text);
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
            encode_fields(out, types, document);
        }
        RawValue::Array(array) => {
            out.push(lead::ARRAY);
            for value in array.iter() {
                encode(out, types, value);
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
            encode_fields(out, types, scope);
        }
    }
}

/// Fields compare by bracket, then name, then value, so they are written in that order.
fn encode_fields(out: &mut Vec<u8>, types: &mut TypeBitsWriter, document: RawDocument<'_>) {
    for (name, value) in document {
        out.push(canonical_type(value.element_type()) + 1);
        encode_text(out, name);
        encode(out, types, value);
    }
    out.push(END);
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
