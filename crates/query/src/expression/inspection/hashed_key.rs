//! The key of a value in a hashed index: eight bytes of an MD5 over its canonical type and its content.
//!
//! Numbers count by their whole part as 64 bits, so equal numbers of any type have one key. Within documents
//! and arrays names count too.

use kilim_bson::{RawDocument, RawValue, Rounding, Writer};

use crate::digest::Md5;

/// The seed that mongod writes before everything.
const SEED: i32 = 0;

/// The hash that mongod's hashed indexes have for a value.
pub fn hashed_key(value: RawValue<'_>) -> i64 {
    let mut hash = Md5::new();
    hash.update(&SEED.to_le_bytes());
    add_value(&mut hash, None, value);
    let digest = hash.finish();
    i64::from_le_bytes(digest[..8].try_into().expect("a digest has sixteen bytes"))
}

fn add_value(hash: &mut Md5, name: Option<&str>, value: RawValue<'_>) {
    hash.update(&type_number(value).to_le_bytes());
    if let Some(name) = name {
        hash.update(name.as_bytes());
        hash.update(&[0]);
    }
    match value {
        RawValue::Document(document) => add_elements(hash, document),
        RawValue::Array(array) => add_elements(hash, array.as_document()),
        RawValue::JavaScriptWithScope { code, scope } => {
            hash.update(code.as_bytes());
            hash.update(&[0]);
            add_elements(hash, scope);
        }
        number if number.is_number() => hash.update(&whole(number).to_le_bytes()),
        other => {
            // As stored: an element of an empty name, without its type and name.
            let mut writer = Writer::new();
            writer.append("", other);
            let document = writer.finish();
            let elements = document.as_raw().elements();
            hash.update(&elements[2..]);
        }
    }
}

fn add_elements(hash: &mut Md5, document: RawDocument<'_>) {
    for (name, value) in document {
        add_value(hash, Some(name), value);
    }
    // The end of a document counts as an element of type zero.
    hash.update(&0i32.to_le_bytes());
}

/// A number as 64 bits; beyond their range the nearest end, NaN is zero.
fn whole(number: RawValue<'_>) -> i64 {
    match number {
        RawValue::Int32(value) => value.into(),
        RawValue::Int64(value) => value,
        RawValue::Double(value) => value as i64,
        RawValue::Decimal128(value) => match value.round_to_whole(Rounding::HalfEven).to_i64() {
            Some(value) => value,
            None if value.is_nan() => 0,
            None if value.is_negative() => i64::MIN,
            None => i64::MAX,
        },
        _ => 0,
    }
}

/// The number that mongod has for a value's place in the order of types.
fn type_number(value: RawValue<'_>) -> i32 {
    match value {
        RawValue::MinKey => -1,
        RawValue::Undefined => 0,
        RawValue::Null => 5,
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => 10,
        RawValue::String(_) | RawValue::Symbol(_) => 15,
        RawValue::Document(_) => 20,
        RawValue::Array(_) => 25,
        RawValue::Binary { .. } => 30,
        RawValue::ObjectId(_) => 35,
        RawValue::Bool(_) => 40,
        RawValue::DateTime(_) => 45,
        RawValue::Timestamp(_) => 47,
        RawValue::Regex { .. } => 50,
        RawValue::DbPointer { .. } => 55,
        RawValue::JavaScript(_) => 60,
        RawValue::JavaScriptWithScope { .. } => 65,
        RawValue::MaxKey => 127,
    }
}
