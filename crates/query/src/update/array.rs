//! What the array operators share: building arrays, finding values in them, reading whole numbers.

use kilim_bson::{Array, Collator, RawValue, Value, Writer, compare_with};

pub(super) fn array_of<'v>(values: impl Iterator<Item = RawValue<'v>>) -> Value {
    let mut writer = Writer::new();
    for (index, value) in values.enumerate() {
        writer.append_index(index, value);
    }
    Value::Array(Array::from_document(writer.finish()))
}

/// Whether one of `values` compares equal.
pub(super) fn contains<'v>(
    mut values: impl Iterator<Item = RawValue<'v>>,
    wanted: RawValue<'_>,
    collator: Option<&dyn Collator>,
) -> bool {
    values.any(|value| compare_with(value, wanted, collator).is_eq())
}

/// A whole number of any numeric type that fits 64 bits.
pub(super) fn long_of(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Int32(int) => Some(i64::from(int)),
        RawValue::Int64(long) => Some(long),
        RawValue::Double(double) => {
            let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&double);
            (in_range && double.fract() == 0.0).then_some(double as i64)
        }
        RawValue::Decimal128(decimal) => decimal.to_i64_exact(),
        _ => None,
    }
}
