//! BSON as bytes: validation, raw access, comparison order, index keys, decimals, extended JSON.
//!
//! Documents live and move as bytes. [`RawDocument`] and [`RawValue`] borrow them, [`Document`] and
//! [`Value`] own them; nothing is decoded into a tree. Bytes from outside pass
//! [`Document::parse`] or [`RawDocument::parse`] once, which validate iteratively; after that, access
//! trusts them.

#[cfg(test)]
mod arbitrary;
pub mod calendar;
mod collator;
mod column;
mod compare;
mod decimal;
mod document;
mod json;
mod macros;
mod number;
mod object_id;
mod path;
mod raw;
mod sort_key;
mod validate;
mod value;

pub use collator::Collator;
pub use column::{BadColumn, COLUMN_SUBTYPE, Scalars, decode_column, encode_column};
pub use compare::{
    canonical_type, compare, compare_documents, compare_documents_with, compare_with, identical,
};
pub use decimal::{Decimal128, ParseDecimalError, Rounding};
pub use document::{Array, ArrayBuilder, Document, ValueRef, Writer};
pub use json::{JsonFormat, parse_extended_json, to_extended_json, value_to_extended_json};
pub use object_id::ObjectId;
pub use path::{Component, Path, parse_index};
pub use raw::{ElementType, RawArray, RawDocument, RawElement, RawIter, RawValue, Reading};
pub use sort_key::{
    CorruptKey, KeyDecoder, KeyEncoder, bracket, component_length, decode_key, encode_value,
    encode_value_with,
};
pub use validate::{DEPTH_MAX, Malformed, STORED_DEPTH_MAX};
pub use value::{Timestamp, Value};
