//! The error for a unique key that is taken, as drivers and ODMs parse it.

use kilim_bson::{Document, Writer};
use kilim_error::{Error, ErrorCode, UserError};
use kilim_query::text;

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
        text::document(key_value.as_raw())
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
