//! What a filter on measurements says of the buckets that they may be in.
//!
//! Two answers, each weaker than the filter: ranges of time as ranges of the bounds, for indexes ([`times_on_buckets`]), and
//! a look at a bucket's bounds before it is unpacked ([`may_hold`]). A third is what can be asked of a bucket's meta in the
//! same words, which the stage that unpacks them does (`on_buckets`).
//!
//! Invariant: a bucket that holds a measurement which matches the filter satisfies all of them.

use std::cmp::Ordering;

use kilim_bson::{Path, RawDocument, RawValue, Value, canonical_type, compare};

use crate::filter::{Comparison, Filter, Operand, Predicate};

/// What ranges of time among a filter's conditions mean for the bounds of buckets, in which measurements are no more than
/// `span_millis` apart.
pub fn times_on_buckets(filter: &Filter, time_field: &str, span_millis: i64) -> Option<Filter> {
    let conjuncts = match filter {
        Filter::And(children) => children.as_slice(),
        one => std::slice::from_ref(one),
    };
    let bound = |side: &str, comparison, millis| Filter::Field {
        path: Path::parse(&format!("control.{side}.{time_field}")),
        predicate: Predicate::Compare(comparison, Value::DateTime(millis).into()),
    };
    let mut bounds = Vec::new();
    for conjunct in conjuncts {
        let Filter::Field { path, predicate: Predicate::Compare(comparison, operand) } = conjunct else {
            continue;
        };
        let Value::DateTime(millis) = **operand else { continue };
        if path.as_str() != time_field || time_field.contains('.') || time_field.is_empty() {
            continue;
        }
        let (before, behind) = (millis.saturating_sub(span_millis), millis.saturating_add(span_millis));
        if matches!(comparison, Comparison::Eq | Comparison::Gt | Comparison::Gte) {
            let own = if *comparison == Comparison::Eq { Comparison::Gte } else { *comparison };
            bounds.push(bound("max", own, millis));
            bounds.push(bound("min", own, before));
        }
        if matches!(comparison, Comparison::Eq | Comparison::Lt | Comparison::Lte) {
            let own = if *comparison == Comparison::Eq { Comparison::Lte } else { *comparison };
            bounds.push(bound("min", own, millis));
            bounds.push(bound("max", own, behind));
        }
    }
    (!bounds.is_empty()).then(|| Filter::all_of(bounds))
}

/// Whether a measurement of this bucket may match a filter, as far as the bounds tell. `texts_by_bytes`: whether the
/// bounds of texts are those of their bytes, not of a collation.
pub fn may_hold(
    filter: &Filter,
    bucket: RawDocument<'_>,
    meta_field: Option<&str>,
    texts_by_bytes: bool,
) -> bool {
    let control = bucket.get("control").and_then(RawValue::as_document);
    let side = |name| control.and_then(|control| control.get(name)?.as_document());
    match (side("min"), side("max")) {
        (Some(min), Some(max)) => Look { min, max, meta_field, texts_by_bytes }.may_match(filter),
        _ => true,
    }
}

struct Look<'b> {
    min: RawDocument<'b>,
    max: RawDocument<'b>,
    meta_field: Option<&'b str>,
    texts_by_bytes: bool,
}

/// What the bounds tell of a path.
enum Told<'b> {
    /// No measurement has it.
    Nothing,
    Between(RawValue<'b>, RawValue<'b>),
    /// They tell nothing.
    Unknown,
}

impl<'b> Look<'b> {
    fn may_match(&self, filter: &Filter) -> bool {
        match filter {
            Filter::False => false,
            Filter::And(children) => children.iter().all(|child| self.may_match(child)),
            Filter::Or(children) => children.iter().any(|child| self.may_match(child)),
            Filter::Field { path, predicate } => match predicate {
                Predicate::Compare(comparison, operand) => self.may_compare(path, *comparison, operand),
                Predicate::In(list) if list.regexes().is_empty() && list.collation().is_none() => {
                    list.values().iter().any(|value| {
                        let operand = Operand::from(value.clone());
                        self.may_compare(path, Comparison::Eq, &operand)
                    })
                }
                _ => true,
            },
            _ => true,
        }
    }

    fn may_compare(&self, path: &Path, comparison: Comparison, operand: &Operand) -> bool {
        let asked = operand.as_raw();
        let told = match asked {
            RawValue::Double(number) if number.is_nan() => return true,
            RawValue::String(_) if operand.collation().is_some() || !self.texts_by_bytes => return true,
            RawValue::String(_)
            | RawValue::Int32(_)
            | RawValue::Int64(_)
            | RawValue::Double(_)
            | RawValue::DateTime(_)
            | RawValue::ObjectId(_)
            | RawValue::Bool(_) => self.told(path),
            _ => return true,
        };
        let (min, max) = match told {
            Told::Nothing => return false,
            Told::Unknown => return true,
            Told::Between(min, max) => (min, max),
        };
        let kind = |value: RawValue<'_>| canonical_type(value.element_type());
        if kind(min) != kind(max) {
            return true;
        }
        // Comparisons are true within a type only.
        if kind(min) != kind(asked) {
            return false;
        }
        let (low, high) = (compare(min, asked), compare(max, asked));
        match comparison {
            Comparison::Eq => low != Ordering::Greater && high != Ordering::Less,
            Comparison::Lt => low == Ordering::Less,
            Comparison::Lte => low != Ordering::Greater,
            Comparison::Gt => high == Ordering::Greater,
            Comparison::Gte => high != Ordering::Less,
        }
    }

    fn told(&self, path: &Path) -> Told<'b> {
        let (mut min, mut max) = (RawValue::Document(self.min), RawValue::Document(self.max));
        for (at, component) in path.components().iter().enumerate() {
            // Fields without a name and the meta have no bounds.
            let unbounded =
                component.name.is_empty() || (at == 0 && Some(&*component.name) == self.meta_field);
            let (RawValue::Document(below), RawValue::Document(above), false) = (min, max, unbounded) else {
                return Told::Unknown;
            };
            (min, max) = match (below.get(&component.name), above.get(&component.name)) {
                (Some(min), Some(max)) => (min, max),
                (None, None) => return Told::Nothing,
                _ => return Told::Unknown,
            };
        }
        match (min, max) {
            (RawValue::Array(_) | RawValue::Document(_), _)
            | (_, RawValue::Array(_) | RawValue::Document(_)) => Told::Unknown,
            (min, max) => Told::Between(min, max),
        }
    }
}
