//! The list of `$in`: values sorted for a binary search, and regular expressions.

use std::cmp::Ordering;

use kilim_bson::{RawValue, Value, compare};

use super::Regex;

/// Invariant: `values` are in comparison order and no two compare equal.
#[derive(Debug, Clone, Default)]
pub struct InList {
    values: Vec<Value>,
    regexes: Vec<Regex>,
    has_null: bool,
}

impl InList {
    pub fn new(mut values: Vec<Value>, regexes: Vec<Regex>) -> InList {
        values.sort_by(|a, b| compare(a.as_raw(), b.as_raw()));
        values.dedup_by(|a, b| compare(a.as_raw(), b.as_raw()) == Ordering::Equal);
        let has_null = values.iter().any(|value| matches!(value, Value::Null));
        InList { values, regexes, has_null }
    }

    /// Sorted, without duplicates.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn regexes(&self) -> &[Regex] {
        &self.regexes
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.regexes.is_empty()
    }

    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// Whether a single value, or a missing one, is in the list.
    pub fn contains(&self, value: Option<RawValue<'_>>) -> bool {
        let Some(value) = value.filter(|value| !matches!(value, RawValue::Undefined)) else {
            return self.has_null;
        };
        self.values.binary_search_by(|item| compare(item.as_raw(), value)).is_ok()
            || self.regexes.iter().any(|regex| regex.matches(value))
    }

    pub(super) fn into_parts(self) -> (Vec<Value>, Vec<Regex>) {
        (self.values, self.regexes)
    }
}
