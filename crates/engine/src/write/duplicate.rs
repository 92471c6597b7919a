//! The error for a unique key that is taken, as drivers and ODMs parse it.

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, UserError};

use crate::index::{Index, decode_entry_key};
use crate::namespace::Namespace;

/// `E11000 duplicate key error collection: shop.users index: email_1 dup key: { email: "a@b.c" }`.
pub(crate) fn duplicate_key(namespace: &Namespace, index: &Index, key: &[u8], type_bits: &[u8]) -> Error {
    let values = decode_entry_key(&index.spec, key, type_bits);
    let mut key_value = Writer::new();
    for (part, value) in index.spec.key.iter().zip(&values) {
        key_value.append(part.path.as_str(), value.as_raw());
    }
    let key_value = key_value.finish();
    let message = format!(
        "E11000 duplicate key error collection: {namespace} index: {} dup key: {}",
        index.spec.name,
        shell_text(key_value.as_raw())
    );
    let mut details = Document::new();
    details.push("keyPattern", index.spec.key_document.clone());
    details.push("keyValue", key_value);
    Error::User(Box::new(UserError {
        code: ErrorCode::DuplicateKey,
        message,
        details: Some(details.into_bytes().into()),
    }))
}

/// A document as mongod's messages print it.
pub fn shell_text(document: RawDocument<'_>) -> String {
    let mut out = String::new();
    write_document(&mut out, document, false);
    out
}

fn write_document(out: &mut String, document: RawDocument<'_>, array: bool) {
    let (open, close) = if array { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (position, (name, value)) in document.iter().enumerate() {
        out.push_str(if position == 0 { " " } else { ", " });
        if !array {
            out.push_str(name);
            out.push_str(": ");
        }
        write_value(out, value);
    }
    out.push(if document.is_empty() { close } else { ' ' });
    if !document.is_empty() {
        out.push(close);
    }
}

fn write_value(out: &mut String, value: RawValue<'_>) {
    use std::fmt::Write as _;
    // Writing to a string does not fail.
    let _ = match value {
        RawValue::Double(value) if value.is_nan() => write!(out, "nan.0"),
        RawValue::Double(value) if value.is_infinite() => {
            write!(out, "{}", if value > 0.0 { "inf" } else { "-inf" })
        }
        RawValue::Double(value) if value == value.trunc() && value.abs() < 1e15 => write!(out, "{value:.1}"),
        RawValue::Double(value) => write!(out, "{value}"),
        RawValue::String(text) | RawValue::Symbol(text) => write!(out, "\"{}\"", escape(text)),
        RawValue::Document(document) => {
            write_document(out, document, false);
            Ok(())
        }
        RawValue::Array(array) => {
            write_document(out, array.as_document(), true);
            Ok(())
        }
        RawValue::Binary { subtype, bytes } => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            write!(out, "BinData({subtype}, {hex})")
        }
        RawValue::Undefined => write!(out, "undefined"),
        RawValue::ObjectId(id) => write!(out, "ObjectId('{id}')"),
        RawValue::Bool(value) => write!(out, "{value}"),
        RawValue::DateTime(millis) => write!(out, "new Date({millis})"),
        RawValue::Null => write!(out, "null"),
        RawValue::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        RawValue::DbPointer { namespace, id } => write!(out, "DBRef('{namespace}', {id})"),
        RawValue::JavaScript(code) => write!(out, "{code}"),
        RawValue::JavaScriptWithScope { code, .. } => write!(out, "CodeWScope( {code})"),
        RawValue::Int32(value) => write!(out, "{value}"),
        RawValue::Timestamp(value) => write!(out, "Timestamp({}, {})", value.seconds, value.increment),
        RawValue::Int64(value) => write!(out, "{value}"),
        RawValue::Decimal128(value) => write!(out, "{value}"),
        RawValue::MaxKey => write!(out, "MaxKey"),
        RawValue::MinKey => write!(out, "MinKey"),
    };
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
