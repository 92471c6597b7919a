//! Owned values. Containers own their bytes, so a [`Value`] is one allocation at most.

use crate::{Array, Decimal128, Document, ElementType, ObjectId, RawValue};

/// One value, owned.
#[derive(Debug, Clone)]
pub enum Value {
    Double(f64),
    String(String),
    Document(Document),
    Array(Array),
    Binary {
        subtype: u8,
        bytes: Vec<u8>,
    },
    Undefined,
    ObjectId(ObjectId),
    Bool(bool),
    /// Milliseconds since 1970.
    DateTime(i64),
    Null,
    Regex {
        pattern: String,
        options: String,
    },
    DbPointer {
        namespace: String,
        id: ObjectId,
    },
    JavaScript(String),
    Symbol(String),
    JavaScriptWithScope {
        code: String,
        scope: Document,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    Decimal128(Decimal128),
    MaxKey,
    MinKey,
}

/// Seconds since 1970 and a counter within the second: MongoDB's internal clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    pub seconds: u32,
    pub increment: u32,
}

impl Timestamp {
    pub fn from_bits(bits: u64) -> Timestamp {
        Timestamp { seconds: (bits >> 32) as u32, increment: bits as u32 }
    }

    pub fn to_bits(self) -> u64 {
        u64::from(self.seconds) << 32 | u64::from(self.increment)
    }
}

impl Value {
    pub fn as_raw(&self) -> RawValue<'_> {
        match self {
            Value::Double(value) => RawValue::Double(*value),
            Value::String(text) => RawValue::String(text),
            Value::Document(document) => RawValue::Document(document.as_raw()),
            Value::Array(array) => RawValue::Array(array.as_raw()),
            Value::Binary { subtype, bytes } => RawValue::Binary { subtype: *subtype, bytes },
            Value::Undefined => RawValue::Undefined,
            Value::ObjectId(id) => RawValue::ObjectId(*id),
            Value::Bool(value) => RawValue::Bool(*value),
            Value::DateTime(millis) => RawValue::DateTime(*millis),
            Value::Null => RawValue::Null,
            Value::Regex { pattern, options } => RawValue::Regex { pattern, options },
            Value::DbPointer { namespace, id } => RawValue::DbPointer { namespace, id: *id },
            Value::JavaScript(code) => RawValue::JavaScript(code),
            Value::Symbol(text) => RawValue::Symbol(text),
            Value::JavaScriptWithScope { code, scope } => {
                RawValue::JavaScriptWithScope { code, scope: scope.as_raw() }
            }
            Value::Int32(value) => RawValue::Int32(*value),
            Value::Timestamp(value) => RawValue::Timestamp(*value),
            Value::Int64(value) => RawValue::Int64(*value),
            Value::Decimal128(value) => RawValue::Decimal128(*value),
            Value::MaxKey => RawValue::MaxKey,
            Value::MinKey => RawValue::MinKey,
        }
    }

    pub fn element_type(&self) -> ElementType {
        self.as_raw().element_type()
    }
}

impl RawValue<'_> {
    pub fn to_value(self) -> Value {
        match self {
            RawValue::Double(value) => Value::Double(value),
            RawValue::String(text) => Value::String(text.to_owned()),
            RawValue::Document(document) => Value::Document(document.to_document()),
            RawValue::Array(array) => Value::Array(array.to_array()),
            RawValue::Binary { subtype, bytes } => Value::Binary { subtype, bytes: bytes.to_vec() },
            RawValue::Undefined => Value::Undefined,
            RawValue::ObjectId(id) => Value::ObjectId(id),
            RawValue::Bool(value) => Value::Bool(value),
            RawValue::DateTime(millis) => Value::DateTime(millis),
            RawValue::Null => Value::Null,
            RawValue::Regex { pattern, options } => {
                Value::Regex { pattern: pattern.to_owned(), options: options.to_owned() }
            }
            RawValue::DbPointer { namespace, id } => Value::DbPointer { namespace: namespace.to_owned(), id },
            RawValue::JavaScript(code) => Value::JavaScript(code.to_owned()),
            RawValue::Symbol(text) => Value::Symbol(text.to_owned()),
            RawValue::JavaScriptWithScope { code, scope } => {
                Value::JavaScriptWithScope { code: code.to_owned(), scope: scope.to_document() }
            }
            RawValue::Int32(value) => Value::Int32(value),
            RawValue::Timestamp(value) => Value::Timestamp(value),
            RawValue::Int64(value) => Value::Int64(value),
            RawValue::Decimal128(value) => Value::Decimal128(value),
            RawValue::MaxKey => Value::MaxKey,
            RawValue::MinKey => Value::MinKey,
        }
    }
}

macro_rules! value_from {
    ($($from:ty => |$name:ident| $to:expr),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from($name: $from) -> Value {
                $to
            }
        })*
    };
}

value_from! {
    f64 => |value| Value::Double(value),
    i32 => |value| Value::Int32(value),
    i64 => |value| Value::Int64(value),
    bool => |value| Value::Bool(value),
    &str => |value| Value::String(value.to_owned()),
    String => |value| Value::String(value),
    &String => |value| Value::String(value.clone()),
    Document => |value| Value::Document(value),
    Array => |value| Value::Array(value),
    ObjectId => |value| Value::ObjectId(value),
    Timestamp => |value| Value::Timestamp(value),
    Decimal128 => |value| Value::Decimal128(value),
    RawValue<'_> => |value| value.to_value(),
    crate::RawDocument<'_> => |value| Value::Document(value.to_document()),
    crate::RawArray<'_> => |value| Value::Array(value.to_array()),
    Vec<Value> => |values| Value::Array(values.into_iter().collect()),
    Vec<Document> => |values| Value::Array(values.into_iter().map(Value::Document).collect()),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
