//! One value kept out of many, in a place that is used again.

use std::cmp::Ordering;

use kilim_bson::{Collator, RawValue, Value, compare_with};

/// Puts a value where another may be, reusing a text's memory; how many bytes the place grew.
pub(super) fn keep(place: &mut Option<Value>, value: RawValue<'_>) -> isize {
    let before = place.as_ref().map_or(0, |kept| payload(kept.as_raw()));
    match (place.as_mut(), value) {
        (Some(Value::String(kept)), RawValue::String(text)) => {
            kept.clear();
            kept.push_str(text);
        }
        _ => *place = Some(value.to_value()),
    }
    payload(value) as isize - before as isize
}

/// Keeps the value if it stands on that side of the one kept. The first of equals stays.
pub(super) fn keep_extreme(
    place: &mut Option<Value>,
    value: RawValue<'_>,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) -> isize {
    match place {
        Some(kept) if compare_with(value, kept.as_raw(), collator) != wanted => 0,
        _ => keep(place, value),
    }
}

/// Bytes that a value owns beside its place.
pub(crate) fn payload(value: RawValue<'_>) -> usize {
    match value {
        RawValue::String(text) | RawValue::Symbol(text) | RawValue::JavaScript(text) => text.len(),
        RawValue::Document(document) => document.as_bytes().len(),
        RawValue::Array(array) => array.as_bytes().len(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        RawValue::Regex { pattern, options } => pattern.len() + options.len(),
        RawValue::DbPointer { namespace, .. } => namespace.len(),
        RawValue::JavaScriptWithScope { code, scope } => code.len() + scope.as_bytes().len(),
        _ => 0,
    }
}
