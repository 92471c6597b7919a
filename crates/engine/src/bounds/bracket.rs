//! Type brackets: the interval of all values that compare with a value of some type.
//!
//! A comparison never leaves its bracket: `{$lt: 5}` selects numbers only. Where a type has a greatest
//! value the bracket ends there, otherwise just before the next type's least, as MongoDB prints it.

use kilim_bson::{Document, ElementType, ObjectId, Timestamp, Value};

use super::interval::{Cut, Interval};

/// The values that compare with a value of type `kind`; `None` for those that compare with no other.
pub fn comparable_with(kind: ElementType) -> Option<Interval> {
    use ElementType as T;
    Some(match kind {
        // NaN compares with NaN alone, so the order's least number is not in.
        T::Double | T::Int32 | T::Int64 | T::Decimal128 => {
            closed(f64::NEG_INFINITY.into(), f64::INFINITY.into())
        }
        T::Null | T::Undefined | T::MinKey | T::MaxKey => return None,
        other => all_of(other),
    })
}

/// All values that sort where type `kind` does.
pub fn all_of(kind: ElementType) -> Interval {
    use ElementType as T;
    match kind {
        T::Double | T::Int32 | T::Int64 | T::Decimal128 => closed(f64::NAN.into(), f64::INFINITY.into()),
        T::String | T::Symbol => below("".into(), Document::new().into()),
        T::Document => below(Document::new().into(), Value::Array(Default::default())),
        T::Array => below(Value::Array(Default::default()), least_binary()),
        T::Binary => below(least_binary(), least_object_id()),
        T::ObjectId => closed(least_object_id(), Value::ObjectId(ObjectId::from_bytes([0xFF; 12]))),
        T::Bool => closed(false.into(), true.into()),
        T::DateTime => closed(Value::DateTime(i64::MIN), Value::DateTime(i64::MAX)),
        T::Timestamp => closed(
            Value::Timestamp(Timestamp::from_bits(0)),
            Value::Timestamp(Timestamp::from_bits(u64::MAX)),
        ),
        T::Regex => below(Value::Regex { pattern: String::new(), options: String::new() }, least_pointer()),
        T::DbPointer => below(least_pointer(), Value::JavaScript(String::new())),
        T::JavaScript => below(Value::JavaScript(String::new()), least_scoped()),
        T::JavaScriptWithScope => below(least_scoped(), Value::MaxKey),
        T::Undefined => Interval::point(Value::Undefined),
        T::Null => Interval::point(Value::Null),
        T::MinKey => Interval::point(Value::MinKey),
        T::MaxKey => Interval::point(Value::MaxKey),
    }
}

fn closed(low: Value, high: Value) -> Interval {
    Interval::new(Cut::before(low), Cut::after(high))
}

fn below(low: Value, end: Value) -> Interval {
    Interval::new(Cut::before(low), Cut::before(end))
}

fn least_binary() -> Value {
    Value::Binary { subtype: 0, bytes: Vec::new() }
}

fn least_object_id() -> Value {
    Value::ObjectId(ObjectId::from_bytes([0; 12]))
}

fn least_pointer() -> Value {
    Value::DbPointer { namespace: String::new(), id: ObjectId::from_bytes([0; 12]) }
}

fn least_scoped() -> Value {
    Value::JavaScriptWithScope { code: String::new(), scope: Document::new() }
}
