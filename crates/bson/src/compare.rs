//! MongoDB's order over all values.
//!
//! Types come first, in brackets: all numbers are one bracket, strings and symbols are one. Within a
//! bracket values compare by content. This is the order of sorts, index keys and range filters.
//!
//! A collation changes how texts compare, wherever they lie in a value, and nothing else: names of
//! fields, code and the scope that goes with it keep the order of their bytes.
//!
//! Invariant: [`compare`] is a total order, and the order of the bytes that `sort_key` makes; with a
//! collator it is a total preorder, and still that of the bytes.

use std::cmp::Ordering;

use crate::collator::{Bytewise, Collator, TextOrder};
use crate::number::compare_numbers;
use crate::{ElementType, RawArray, RawDocument, RawValue};

/// The bracket of a type: brackets ascend in MongoDB's order, types of one bracket compare by value.
///
/// MinKey 0, undefined 1, null 5, numbers 10, strings and symbols 15, documents 20, arrays 25, binary
/// 30, ObjectId 35, bool 40, date 45, timestamp 47, regex 50, DBPointer 55, code 60, code with scope
/// 65, MaxKey 127.
pub fn canonical_type(kind: ElementType) -> u8 {
    match kind {
        ElementType::MinKey => 0,
        ElementType::Undefined => 1,
        ElementType::Null => 5,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => 10,
        ElementType::String | ElementType::Symbol => 15,
        ElementType::Document => 20,
        ElementType::Array => 25,
        ElementType::Binary => 30,
        ElementType::ObjectId => 35,
        ElementType::Bool => 40,
        ElementType::DateTime => 45,
        ElementType::Timestamp => 47,
        ElementType::Regex => 50,
        ElementType::DbPointer => 55,
        ElementType::JavaScript => 60,
        ElementType::JavaScriptWithScope => 65,
        ElementType::MaxKey => 127,
    }
}

/// Compares two values of any types, texts by their bytes.
#[inline]
pub fn compare(left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    match (left, right) {
        // Mostly, and it needs no call.
        (RawValue::Int32(left), RawValue::Int32(right)) => left.cmp(&right),
        _ => compare_in(Bytewise, left, right),
    }
}

/// Compares two values of any types, texts as the collator has them.
#[inline]
pub fn compare_with(left: RawValue<'_>, right: RawValue<'_>, collator: Option<&dyn Collator>) -> Ordering {
    match collator {
        None => compare(left, right),
        Some(collator) => compare_in(collator, left, right),
    }
}

fn compare_in(texts: impl TextOrder, left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    use RawValue::*;
    match (left, right) {
        (String(left) | Symbol(left), String(right) | Symbol(right)) => texts.compare_texts(left, right),
        (ObjectId(left), ObjectId(right)) => left.cmp(&right),
        (DateTime(left), DateTime(right)) => left.cmp(&right),
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Timestamp(left), Timestamp(right)) => left.cmp(&right),
        (Document(left), Document(right)) => compare_documents_in(texts, left, right),
        (Array(left), Array(right)) => compare_arrays(texts, left, right),
        (Binary { subtype: left_subtype, bytes: left }, Binary { subtype: right_subtype, bytes: right }) => {
            let length = |subtype, bytes: &[u8]| stored_binary_length(subtype, bytes.len());
            length(left_subtype, left)
                .cmp(&length(right_subtype, right))
                .then(left_subtype.cmp(&right_subtype))
                .then_with(|| left.cmp(right))
        }
        (
            Regex { pattern: left, options: left_options },
            Regex { pattern: right, options: right_options },
        ) => left.cmp(right).then_with(|| left_options.cmp(right_options)),
        (DbPointer { namespace: left, id: left_id }, DbPointer { namespace: right, id: right_id }) => {
            left.len().cmp(&right.len()).then_with(|| left.cmp(right)).then(left_id.cmp(&right_id))
        }
        (JavaScript(left), JavaScript(right)) => left.cmp(right),
        (
            JavaScriptWithScope { code: left, scope: left_scope },
            JavaScriptWithScope { code: right, scope: right_scope },
        ) => left.cmp(right).then_with(|| compare_documents(left_scope, right_scope)),
        _ if left.is_number() && right.is_number() => compare_numbers(left, right),
        _ => canonical_type(left.element_type()).cmp(&canonical_type(right.element_type())),
    }
}

/// Field by field: type bracket, then name, then value; the shorter of equals comes first.
pub fn compare_documents(left: RawDocument<'_>, right: RawDocument<'_>) -> Ordering {
    compare_documents_in(Bytewise, left, right)
}

pub fn compare_documents_with(
    left: RawDocument<'_>,
    right: RawDocument<'_>,
    collator: Option<&dyn Collator>,
) -> Ordering {
    match collator {
        None => compare_documents(left, right),
        Some(collator) => compare_documents_in(collator, left, right),
    }
}

fn compare_documents_in(texts: impl TextOrder, left: RawDocument<'_>, right: RawDocument<'_>) -> Ordering {
    // Equal bytes are common, as in an update that changes nothing, and quickly seen.
    if left.as_bytes() == right.as_bytes() {
        return Ordering::Equal;
    }
    let (mut left, mut right) = (left.iter(), right.iter());
    loop {
        match (left.next(), right.next()) {
            (Some((left_name, left)), Some((right_name, right))) => {
                let order = canonical_type(left.element_type())
                    .cmp(&canonical_type(right.element_type()))
                    .then_with(|| left_name.cmp(right_name))
                    .then_with(|| compare_in(texts, left, right));
                if order.is_ne() {
                    return order;
                }
            }
            (left, right) => return left.is_some().cmp(&right.is_some()),
        }
    }
}

fn compare_arrays(texts: impl TextOrder, left: RawArray<'_>, right: RawArray<'_>) -> Ordering {
    let (mut left, mut right) = (left.iter(), right.iter());
    loop {
        match (left.next(), right.next()) {
            (Some(left), Some(right)) => {
                let order = compare_in(texts, left, right);
                if order.is_ne() {
                    return order;
                }
            }
            (left, right) => return left.is_some().cmp(&right.is_some()),
        }
    }
}

/// Binary values compare by stored length first, and the old subtype 2 stores four bytes more.
pub(crate) fn stored_binary_length(subtype: u8, length: usize) -> usize {
    length + if subtype == 2 { 4 } else { 0 }
}

/// Whether two values are the same type and bytes, so that replacing one by the other changes
/// nothing: `1` and `1.0` are equal but not identical.
pub fn identical(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    use RawValue::*;
    match (left, right) {
        (Double(left), Double(right)) => left.to_bits() == right.to_bits(),
        (String(left), String(right))
        | (Symbol(left), Symbol(right))
        | (JavaScript(left), JavaScript(right)) => left == right,
        (Document(left), Document(right)) => left.as_bytes() == right.as_bytes(),
        (Array(left), Array(right)) => left.as_bytes() == right.as_bytes(),
        (Binary { subtype: left_subtype, bytes: left }, Binary { subtype, bytes }) => {
            left_subtype == subtype && left == bytes
        }
        (ObjectId(left), ObjectId(right)) => left == right,
        (Bool(left), Bool(right)) => left == right,
        (DateTime(left), DateTime(right)) | (Int64(left), Int64(right)) => left == right,
        (Regex { pattern: left, options: left_options }, Regex { pattern, options }) => {
            left == pattern && left_options == options
        }
        (DbPointer { namespace: left, id: left_id }, DbPointer { namespace, id }) => {
            left == namespace && left_id == id
        }
        (JavaScriptWithScope { code: left, scope: left_scope }, JavaScriptWithScope { code, scope }) => {
            left == code && left_scope.as_bytes() == scope.as_bytes()
        }
        (Int32(left), Int32(right)) => left == right,
        (Timestamp(left), Timestamp(right)) => left == right,
        (Decimal128(left), Decimal128(right)) => left == right,
        (Undefined, Undefined) | (Null, Null) | (MaxKey, MaxKey) | (MinKey, MinKey) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decimal128, Timestamp, Value, array, doc};

    fn decimal(text: &str) -> Value {
        Value::Decimal128(Decimal128::parse(text).unwrap())
    }

    /// Ascending groups of equals.
    fn ladder() -> Vec<Vec<Value>> {
        let id = |byte| crate::ObjectId::from_bytes([byte; 12]);
        let binary = |subtype, bytes: &[u8]| Value::Binary { subtype, bytes: bytes.to_vec() };
        let regex = |pattern: &str, options: &str| Value::Regex {
            pattern: pattern.to_owned(),
            options: options.to_owned(),
        };
        let pointer =
            |namespace: &str, byte| Value::DbPointer { namespace: namespace.to_owned(), id: id(byte) };
        let scope = |code: &str, scope| Value::JavaScriptWithScope { code: code.to_owned(), scope };
        vec![
            vec![Value::MinKey],
            vec![Value::Undefined],
            vec![Value::Null],
            vec![f64::NAN.into(), decimal("NaN"), decimal("-NaN")],
            vec![f64::NEG_INFINITY.into(), decimal("-Infinity")],
            vec![decimal("-1E+400")],
            vec![(-1e300).into()],
            vec![i64::MIN.into(), (-9223372036854775808.0).into(), decimal("-9223372036854775808")],
            vec![(i64::MIN + 1).into()],
            vec![(-1).into(), (-1.0).into(), (-1i64).into(), decimal("-1.00")],
            vec![(-0.5).into(), decimal("-0.5")],
            vec![decimal("-0.1000000000000000055511151231257828")],
            vec![(-0.1).into()],
            vec![decimal("-0.1")],
            vec![decimal("-1E-6176")],
            vec![0.into(), (-0.0).into(), 0i64.into(), decimal("0E+3"), decimal("-0")],
            vec![decimal("1E-6176")],
            vec![decimal("4E-324")],
            vec![5e-324.into()],
            vec![decimal("5E-324")],
            vec![decimal("0.1")],
            vec![decimal("0.1000000000000000055511151231257827")],
            vec![0.1.into()],
            vec![1.into(), decimal("1.000")],
            vec![1.5.into(), decimal("1.5")],
            vec![2.into()],
            vec![9007199254740992i64.into(), 9007199254740992.0.into()],
            vec![9007199254740993i64.into(), decimal("9007199254740993")],
            vec![decimal("9007199254740993.5")],
            vec![9007199254740994.0.into()],
            vec![i64::MAX.into(), decimal("9223372036854775807")],
            vec![decimal("9223372036854775807.5")],
            vec![9223372036854775808.0.into(), decimal("9223372036854775808")],
            vec![1e22.into(), decimal("1E+22")],
            vec![decimal("1E+23")],
            vec![f64::MAX.into()],
            vec![decimal("1E+400")],
            vec![f64::INFINITY.into(), decimal("Infinity")],
            vec!["".into(), Value::Symbol("".into())],
            vec!["a".into(), Value::Symbol("a".into())],
            vec!["a\0".into()],
            vec!["aa".into()],
            vec!["é".into()],
            vec![Value::Document(doc! {})],
            vec![Value::Document(doc! {"b": 1})],
            vec![Value::Document(doc! {"b": 1, "a": 1}), Value::Document(doc! {"b": 1.0, "a": 1i64})],
            vec![Value::Document(doc! {"b": 2})],
            vec![Value::Document(doc! {"a": "x"})],
            vec![Value::Array(array![])],
            vec![Value::Array(array![1])],
            vec![Value::Array(array![1, 2])],
            vec![Value::Array(array![2])],
            vec![Value::Array(array!["a"])],
            vec![binary(0, b"")],
            vec![binary(0, b"ab")],
            vec![binary(5, b"aa")],
            vec![binary(0, b"zzzzz")],
            vec![binary(2, b"a")],
            vec![binary(0, b"zzzzzz")],
            vec![Value::ObjectId(id(1))],
            vec![Value::ObjectId(id(2))],
            vec![false.into()],
            vec![true.into()],
            vec![Value::DateTime(-5)],
            vec![Value::DateTime(5)],
            vec![Value::Timestamp(Timestamp { seconds: 1, increment: 9 })],
            vec![Value::Timestamp(Timestamp { seconds: u32::MAX, increment: 0 })],
            vec![regex("a", "")],
            vec![regex("a", "i")],
            vec![regex("ab", "")],
            vec![pointer("z", 1)],
            vec![pointer("z", 2)],
            vec![pointer("aa", 1)],
            vec![Value::JavaScript("a".into())],
            vec![Value::JavaScript("b".into())],
            vec![scope("a", doc! {})],
            vec![scope("a", doc! {"x": 1})],
            vec![scope("b", doc! {})],
            vec![Value::MaxKey],
        ]
    }

    #[test]
    fn the_ladder_ascends() {
        let ladder = ladder();
        for (left_rung, lefts) in ladder.iter().enumerate() {
            for (right_rung, rights) in ladder.iter().enumerate() {
                for left in lefts {
                    for right in rights {
                        let expected = left_rung.cmp(&right_rung);
                        assert_eq!(compare(left.as_raw(), right.as_raw()), expected, "{left:?} {right:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn identical_means_same_type_and_bytes() {
        for rung in ladder() {
            for (left_at, left) in rung.iter().enumerate() {
                for (right_at, right) in rung.iter().enumerate() {
                    assert_eq!(
                        identical(left.as_raw(), right.as_raw()),
                        left_at == right_at,
                        "{left:?} {right:?}"
                    );
                }
            }
        }
    }
}
