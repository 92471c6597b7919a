//! The list of `$in`: values sorted for a binary search, and regular expressions.

use kilim_bson::{Collator, RawValue, Value, compare_with};
use kilim_collation::{Collation, collator};

use super::operand::holds_text;
use super::{Operand, Regex};

/// Invariant: `values` are in comparison order and no two compare equal, under the collation.
#[derive(Debug, Clone, Default)]
pub struct InList {
    values: Vec<Value>,
    regexes: Vec<Regex>,
    has_null: bool,
    /// Kept only where a value holds a text.
    collation: Option<Collation>,
}

impl InList {
    pub fn new(mut values: Vec<Value>, regexes: Vec<Regex>, collation: &Option<Collation>) -> InList {
        let makes_difference = || values.iter().any(|value| holds_text(value.as_raw()));
        let collation = collation.as_ref().filter(|_| makes_difference()).cloned();
        values.sort_by(|a, b| compare_with(a.as_raw(), b.as_raw(), collator(&collation)));
        values.dedup_by(|a, b| compare_with(a.as_raw(), b.as_raw(), collator(&collation)).is_eq());
        let has_null = values.iter().any(|value| matches!(value, Value::Null));
        InList { values, regexes, has_null, collation }
    }

    /// How texts among the values compare; none where they do by their bytes, or where there are none.
    pub fn collation(&self) -> &Option<Collation> {
        &self.collation
    }

    fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
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
        let collator = self.collator();
        self.values.binary_search_by(|item| compare_with(item.as_raw(), value, collator)).is_ok()
            || self.regexes.iter().any(|regex| regex.matches(value))
    }

    pub(super) fn into_parts(self) -> (Vec<Operand>, Vec<Regex>) {
        let operand = |value| Operand::new(value, &self.collation);
        (self.values.into_iter().map(operand).collect(), self.regexes)
    }
}
