//! What an expression gives.

use std::cmp::Ordering;

use kilim_bson::{
    Array, Collator, Decimal128, Document, RawArray, RawDocument, RawValue, Value, compare, compare_with,
};

/// A value or none, borrowed where possible.
#[derive(Debug, Clone)]
pub enum Evaluated<'a> {
    Missing,
    /// Numbers and the like hold themselves, containers and texts borrow.
    Raw(RawValue<'a>),
    Owned(Value),
}

impl<'a> Evaluated<'a> {
    pub const NULL: Evaluated<'static> = Evaluated::Raw(RawValue::Null);

    /// None if missing.
    pub fn raw(&self) -> Option<RawValue<'_>> {
        match self {
            Evaluated::Missing => None,
            Evaluated::Raw(value) => Some(*value),
            Evaluated::Owned(value) => Some(value.as_raw()),
        }
    }

    /// As an array's element, where nothing becomes null.
    pub fn raw_or_null(&self) -> RawValue<'_> {
        self.raw().unwrap_or(RawValue::Null)
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, Evaluated::Missing)
    }

    /// Missing, null or undefined: what most operators answer with null.
    pub fn is_nullish(&self) -> bool {
        matches!(self.raw(), None | Some(RawValue::Null | RawValue::Undefined))
    }

    pub fn into_value(self) -> Option<Value> {
        match self {
            Evaluated::Missing => None,
            Evaluated::Raw(value) => Some(value.to_value()),
            Evaluated::Owned(value) => Some(value),
        }
    }

    /// Independent of everything it was computed from.
    pub fn into_owned(self) -> Evaluated<'static> {
        match self {
            Evaluated::Raw(RawValue::Int32(value)) => Evaluated::Raw(RawValue::Int32(value)),
            Evaluated::Raw(RawValue::Int64(value)) => Evaluated::Raw(RawValue::Int64(value)),
            Evaluated::Raw(RawValue::Double(value)) => Evaluated::Raw(RawValue::Double(value)),
            Evaluated::Raw(RawValue::DateTime(value)) => Evaluated::Raw(RawValue::DateTime(value)),
            other => other.into_value().map_or(Evaluated::Missing, Evaluated::Owned),
        }
    }

    /// MongoDB's truth: false are false, zeros, null, undefined and nothing.
    pub fn to_bool(&self) -> bool {
        match self.raw() {
            None | Some(RawValue::Null | RawValue::Undefined) => false,
            Some(RawValue::Bool(value)) => value,
            Some(RawValue::Int32(value)) => value != 0,
            Some(RawValue::Int64(value)) => value != 0,
            Some(RawValue::Double(value)) => value != 0.0,
            Some(RawValue::Decimal128(value)) => !value.is_zero(),
            Some(_) => true,
        }
    }

    pub fn type_name(&self) -> &'static str {
        self.raw().map_or("missing", |value| value.element_type().name())
    }

    pub fn as_str(&self) -> Option<&str> {
        self.raw().and_then(RawValue::as_str)
    }

    pub fn as_array(&self) -> Option<RawArray<'_>> {
        self.raw().and_then(RawValue::as_array)
    }

    pub fn as_document(&self) -> Option<RawDocument<'_>> {
        self.raw().and_then(RawValue::as_document)
    }

    /// MongoDB's order; nothing stands where undefined stands.
    pub fn compare(&self, other: &Evaluated<'_>, collator: Option<&dyn Collator>) -> Ordering {
        match (self.is_missing(), other.is_missing()) {
            (false, false) => compare_with(self.raw_or_null(), other.raw_or_null(), collator),
            (true, false) => compare(RawValue::Undefined, other.raw_or_null()),
            (false, true) => compare(self.raw_or_null(), RawValue::Undefined),
            (true, true) => Ordering::Equal,
        }
    }
}

impl<'a> From<Option<RawValue<'a>>> for Evaluated<'a> {
    fn from(value: Option<RawValue<'a>>) -> Evaluated<'a> {
        value.map_or(Evaluated::Missing, Evaluated::Raw)
    }
}

macro_rules! evaluated_from {
    ($($from:ty => |$name:ident| $to:expr),* $(,)?) => {
        $(impl<'a> From<$from> for Evaluated<'a> {
            fn from($name: $from) -> Evaluated<'a> {
                $to
            }
        })*
    };
}

evaluated_from! {
    RawValue<'a> => |value| Evaluated::Raw(value),
    bool => |value| Evaluated::Raw(RawValue::Bool(value)),
    i32 => |value| Evaluated::Raw(RawValue::Int32(value)),
    i64 => |value| Evaluated::Raw(RawValue::Int64(value)),
    f64 => |value| Evaluated::Raw(RawValue::Double(value)),
    Decimal128 => |value| Evaluated::Raw(RawValue::Decimal128(value)),
    Value => |value| Evaluated::Owned(value),
    String => |value| Evaluated::Owned(Value::String(value)),
    Array => |value| Evaluated::Owned(Value::Array(value)),
    Document => |value| Evaluated::Owned(Value::Document(value)),
}
