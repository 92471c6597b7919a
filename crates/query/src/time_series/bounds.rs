//! The smallest and the largest value of a column.
//!
//! Documents and arrays are bounded field by field, as on MongoDB: the bounds of `{a: 1, b: 5}` and `{a: 3, b: 2}` are
//! `{a: 1, b: 2}` and `{a: 3, b: 5}`. Values of different types do not go into one bucket, so bounds say something. Where
//! they are in one all the same, because another program made the bucket, the bounds are `MinKey` and `MaxKey`.

use std::cmp::Ordering;

use kilim_bson::{Collator, RawDocument, RawValue, Value, Writer, canonical_type, compare_with};

/// The bounds of one field.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub min: Value,
    pub max: Value,
}

impl Bounds {
    pub fn of(value: RawValue<'_>) -> Bounds {
        Bounds { min: value.to_value(), max: value.to_value() }
    }

    /// Whether a value is of the type that these bounds speak of, and so are those within it.
    pub fn speak_of(&self, value: RawValue<'_>) -> bool {
        is_alike(self.min.as_raw(), value)
    }

    /// Whether nothing that lies between the others lies outside these.
    pub fn cover(&self, others: &Bounds, collator: Option<&dyn Collator>) -> bool {
        covers(self.min.as_raw(), others.min.as_raw(), Ordering::Greater, collator)
            && covers(self.max.as_raw(), others.max.as_raw(), Ordering::Less, collator)
    }

    /// Takes in all that lies between others, which are of the same types.
    pub fn join(&mut self, others: &Bounds, collator: Option<&dyn Collator>) {
        self.min = merged(self.min.as_raw(), others.min.as_raw(), Ordering::Less, collator);
        self.max = merged(self.max.as_raw(), others.max.as_raw(), Ordering::Greater, collator);
    }

    /// Takes in a value, whatever its type.
    pub fn include(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) {
        match self.speak_of(value) {
            true => self.include_alike(value, collator),
            false => (self.min, self.max) = (Value::MinKey, Value::MaxKey),
        }
    }

    /// Takes in a value of the type that these bounds speak of.
    pub fn include_alike(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) {
        // Most values lie within the bounds, and most bounds are numbers or dates. NaN lies within none of these.
        let lies_within = match (&self.min, value, &self.max) {
            (Value::Double(min), RawValue::Double(value), Value::Double(max)) => {
                *min <= value && value <= *max
            }
            (Value::Int32(min), RawValue::Int32(value), Value::Int32(max)) => *min <= value && value <= *max,
            (Value::Int64(min), RawValue::Int64(value), Value::Int64(max))
            | (Value::DateTime(min), RawValue::DateTime(value), Value::DateTime(max)) => {
                *min <= value && value <= *max
            }
            _ => false,
        };
        if lies_within {
            return;
        }
        match value {
            RawValue::Document(_) | RawValue::Array(_) => {
                self.min = merged(self.min.as_raw(), value, Ordering::Less, collator);
                self.max = merged(self.max.as_raw(), value, Ordering::Greater, collator);
            }
            value => {
                if compare_with(value, self.min.as_raw(), collator).is_lt() {
                    self.min = value.to_value();
                }
                if compare_with(value, self.max.as_raw(), collator).is_gt() {
                    self.max = value.to_value();
                }
            }
        }
    }
}

/// Whether a bound is not `beyond` another, field by field.
fn covers(
    bound: RawValue<'_>,
    other: RawValue<'_>,
    beyond: Ordering,
    collator: Option<&dyn Collator>,
) -> bool {
    let (own, others) = match (bound, other) {
        (RawValue::Document(own), RawValue::Document(others)) => (own, others),
        (RawValue::Array(own), RawValue::Array(others)) => (own.as_document(), others.as_document()),
        _ => return compare_with(bound, other, collator) != beyond,
    };
    others.iter().all(|(name, other)| own.get(name).is_some_and(|own| covers(own, other, beyond, collator)))
}

fn is_alike(bound: RawValue<'_>, value: RawValue<'_>) -> bool {
    match (bound, value) {
        (RawValue::Document(bound), RawValue::Document(value)) => has_alike_fields(bound, value),
        (RawValue::Array(bound), RawValue::Array(value)) => {
            has_alike_fields(bound.as_document(), value.as_document())
        }
        _ => canonical_type(bound.element_type()) == canonical_type(value.element_type()),
    }
}

fn has_alike_fields(bound: RawDocument<'_>, value: RawDocument<'_>) -> bool {
    value.iter().all(|(name, value)| bound.get(name).is_none_or(|bound| is_alike(bound, value)))
}

/// A bound with a value taken in, field by field.
fn merged(
    bound: RawValue<'_>,
    value: RawValue<'_>,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) -> Value {
    let mut out = Writer::new();
    append_merged(&mut out, "", bound, value, wanted, collator);
    let whole = out.finish();
    whole.get("").unwrap_or(RawValue::Null).to_value()
}

fn append_merged(
    out: &mut Writer,
    name: &str,
    bound: RawValue<'_>,
    value: RawValue<'_>,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) {
    let (bound, value) = match (bound, value) {
        (RawValue::Document(bound), RawValue::Document(value)) => {
            out.open_document(name);
            (bound, value)
        }
        (RawValue::Array(bound), RawValue::Array(value)) => {
            out.open_array(name);
            (bound.as_document(), value.as_document())
        }
        (bound, value) => {
            let replaces = compare_with(value, bound, collator) == wanted;
            return out.append(name, if replaces { value } else { bound });
        }
    };
    for (name, bound) in bound {
        match value.get(name) {
            Some(value) => append_merged(out, name, bound, value, wanted, collator),
            None => out.append(name, bound),
        }
    }
    for (name, value) in value.iter().filter(|(name, _)| bound.get(name).is_none()) {
        out.append(name, value);
    }
    out.close();
}
