//! The error for a unique key that is taken, as drivers and ODMs parse it.

use kilim_bson::{Document, RawValue, Value, Writer};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, UserError};
use kilim_query::text;

use super::{Index, decode_entry_key};
use crate::namespace::Namespace;

/// `E11000 duplicate key error collection: shop.users index: email_1 dup key: { email: "a@b.c" }`.
pub(crate) fn duplicate_key(namespace: &Namespace, index: &Index, key: &[u8], type_bits: &[u8]) -> Error {
    let values = decode_entry_key(&index.spec, key, type_bits);
    // Of texts under a collation there are keys only, which are shown as what they are: bytes.
    let is_hex = |value: &Value| index.spec.collation.is_some() && matches!(value, Value::String(_));
    let shown = |prefix: &str| -> Document {
        let mut key_value = Writer::new();
        for (part, value) in index.spec.key.iter().zip(&values) {
            match value {
                Value::String(key) if is_hex(value) => {
                    let hex: String = key.chars().map(|char| format!("{:02x}", char as u32)).collect();
                    key_value.append(part.path.as_str(), RawValue::String(&format!("{prefix}{hex}")));
                }
                value => key_value.append(part.path.as_str(), value.as_raw()),
            }
        }
        key_value.finish()
    };
    let collation = index.spec.collation.as_ref().map(Collation::to_document);
    let with_collation = match &collation {
        Some(collation) => format!(" collation: {}", text::document(collation.as_raw())),
        None => String::new(),
    };
    let message = format!(
        "E11000 duplicate key error collection: {namespace} index: {}{with_collation} dup key: {}",
        index.spec.name,
        text::document(shown("0x").as_raw())
    );
    let mut details = Document::new();
    details.push("keyPattern", index.spec.key_document.clone());
    details.push("keyValue", shown(""));
    if values.iter().any(is_hex) {
        details.push("hexEncoded", values.iter().map(|value| Value::Bool(is_hex(value))).collect::<Vec<_>>());
    }
    if let Some(collation) = collation {
        details.push("collation", collation);
    }
    Error::User(Box::new(UserError {
        code: ErrorCode::DuplicateKey,
        message,
        details: Some(details.into_bytes().into()),
    }))
}
