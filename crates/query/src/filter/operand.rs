//! What a comparison compares with: a value, and how its texts compare.
//!
//! Invariant: a collation is kept only where the value holds a text, so one that is there makes a difference.

use std::ops::Deref;

use kilim_bson::{Collator, RawValue, Value};
use kilim_collation::{Collation, collator};

#[derive(Debug, Clone)]
pub struct Operand {
    value: Value,
    collation: Option<Collation>,
}

impl Operand {
    pub fn new(value: Value, collation: &Option<Collation>) -> Operand {
        let collation = collation.as_ref().filter(|_| holds_text(value.as_raw())).cloned();
        Operand { value, collation }
    }

    /// How its texts compare; none where they do by their bytes, or where there are none.
    pub fn collation(&self) -> &Option<Collation> {
        &self.collation
    }

    pub(super) fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    pub fn into_value(self) -> Value {
        self.value
    }
}

impl Deref for Operand {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// As the simple collation compares.
impl From<Value> for Operand {
    fn from(value: Value) -> Operand {
        Operand { value, collation: None }
    }
}

/// Whether a collation can make a difference to how a value compares.
pub fn holds_text(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(_) | RawValue::Symbol(_) => true,
        RawValue::Document(document) => document.iter().any(|(_, value)| holds_text(value)),
        RawValue::Array(array) => array.iter().any(holds_text),
        _ => false,
    }
}
