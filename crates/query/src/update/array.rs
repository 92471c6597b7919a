//! What the array operators share: building arrays, finding values in them, reading whole numbers.

use std::collections::HashSet;

use kilim_bson::{Array, Collator, RawValue, Value, Writer, compare_with, encode_value_with};
use kilim_error::Result;

use crate::interrupt;

pub(super) fn array_of<'v>(values: impl Iterator<Item = RawValue<'v>>) -> Value {
    let mut writer = Writer::new();
    for (index, value) in values.enumerate() {
        writer.append_index(index, value);
    }
    Value::Array(Array::from_document(writer.finish()))
}

/// Values that others are sought among. Few are compared one by one; many are hashed by their sort keys, which are equal
/// where values compare equal, so that two long lists do not take the product of their lengths.
#[derive(Debug, Default)]
pub(super) struct Members {
    keys: HashSet<Box<[u8]>>,
}

/// So many are compared one by one.
pub(super) const COMPARED_MAX: usize = 8;

impl Members {
    pub(super) fn of<'v>(
        values: impl Iterator<Item = RawValue<'v>>,
        collator: Option<&dyn Collator>,
    ) -> Result<Members> {
        let mut members = Members::default();
        for value in values {
            members.insert(value, collator)?;
        }
        Ok(members)
    }

    /// Whether the value is new.
    pub(super) fn insert(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> Result<bool> {
        interrupt::tick()?;
        Ok(self.keys.insert(key_of(value, collator).into()))
    }

    pub(super) fn contains(&self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> bool {
        self.keys.contains(&key_of(value, collator)[..])
    }
}

fn key_of(value: RawValue<'_>, collator: Option<&dyn Collator>) -> Vec<u8> {
    let mut key = Vec::new();
    encode_value_with(&mut key, value, false, collator);
    key
}

/// Whether one of `values` compares equal.
pub(super) fn contains<'v>(
    mut values: impl Iterator<Item = RawValue<'v>>,
    wanted: RawValue<'_>,
    collator: Option<&dyn Collator>,
) -> bool {
    values.any(|value| !interrupt::goes_on(1) || compare_with(value, wanted, collator).is_eq())
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
