//! What a filter on measurements says of the buckets that they may be in.
//!
//! Two answers, each weaker than the filter: conditions on the bounds of buckets, for indexes ([`OnBounds`]), and a look at
//! a bucket's bounds before it is unpacked ([`may_hold`]). A third is what can be asked of a bucket's meta in the same
//! words, which the stage that unpacks them does (`on_buckets`).
//!
//! Invariant: a bucket that holds a measurement which matches the filter satisfies all of them.

use std::cmp::Ordering;

use kilim_bson::{Path, RawDocument, RawValue, Value, canonical_type, compare};
use kilim_collation::Collation;

use super::keys::{DATA, MAX, MIN};
use super::{META, TimeSeries};
use crate::filter::{Comparison, Filter, InList, Operand, Predicate, TypeSet};

/// Makes conditions on the bounds of buckets of conditions on measurements.
pub struct OnBounds<'a> {
    pub time_field: &'a str,
    pub meta_field: Option<&'a str>,
    /// How far apart the measurements of a bucket are at most. None where the conditions are to outlive that, as those of
    /// a partial index do.
    pub span_millis: Option<i64>,
    /// Paths of measured values which in each bucket are of one type, and never arrays: an index is over them.
    pub measured: &'a [Path],
    /// Paths of places that an index is over.
    pub places: &'a [Path],
    /// How the bounds of texts compare.
    pub collation: &'a Option<Collation>,
}

impl OnBounds<'_> {
    /// What a filter on measurements says of their bounds; none where that is nothing.
    pub fn weaker(&self, filter: &Filter) -> Option<Filter> {
        match filter {
            Filter::And(children) => {
                let told: Vec<Filter> = children.iter().filter_map(|child| self.weaker(child)).collect();
                (!told.is_empty()).then(|| Filter::all_of(told))
            }
            Filter::Or(children) => {
                let told: Option<Vec<Filter>> = children.iter().map(|child| self.weaker(child)).collect();
                told.map(Filter::Or)
            }
            Filter::Field { path, predicate } => self.of_path(path, predicate),
            _ => None,
        }
    }

    /// What the filter of a partial index says of bounds, or a path of which it asks what bounds do not tell.
    pub fn complete<'f>(&self, filter: &'f Filter) -> Result<Filter, &'f str> {
        let all = |children: &'f [Filter]| -> Result<Vec<Filter>, &'f str> {
            children.iter().map(|child| self.complete(child)).collect()
        };
        match filter {
            Filter::True => Ok(Filter::True),
            Filter::And(children) => Ok(Filter::And(all(children)?)),
            Filter::Or(children) => Ok(Filter::Or(all(children)?)),
            Filter::Field { path, predicate } => self.of_path(path, predicate).ok_or(path.as_str()),
            _ => Err(""),
        }
    }

    fn of_path(&self, path: &Path, predicate: &Predicate) -> Option<Filter> {
        if let Some(path) = in_meta(self.meta_field, path.as_str()) {
            // A search for what is near is for the planner to see where it stands.
            let is_near = matches!(predicate, Predicate::Near(_));
            return (!is_near)
                .then(|| Filter::Field { path: Path::parse(&path), predicate: predicate.clone() });
        }
        let is_plain = path.components().iter().all(|part| !part.name.is_empty() && part.index.is_none());
        if path.as_str() == self.time_field && is_plain && path.components().len() == 1 {
            return self.of_time(predicate);
        }
        if let Predicate::Geo(geo) = predicate
            && self.places.contains(path)
        {
            let predicate = Predicate::Geo(geo.asked_of_buckets(path.as_str()));
            return Some(condition(DATA, path.as_str(), predicate));
        }
        match is_plain && self.measured.contains(path) {
            true => self.of_measured(path.as_str(), predicate),
            false => None,
        }
    }

    fn of_time(&self, predicate: &Predicate) -> Option<Filter> {
        let Predicate::Compare(comparison, operand) = predicate else { return None };
        let Value::DateTime(millis) = **operand else { return None };
        let (from, to) = ends(*comparison);
        let mut told = Vec::new();
        let mut bound = |side, comparison, millis| {
            told.push(condition(side, self.time_field, compared(comparison, Value::DateTime(millis))));
        };
        if let Some(from) = from {
            bound(MAX, from, millis);
            self.span_millis.iter().for_each(|span| bound(MIN, from, millis.saturating_sub(*span)));
        }
        if let Some(to) = to {
            bound(MIN, to, millis);
            self.span_millis.iter().for_each(|span| bound(MAX, to, millis.saturating_add(*span)));
        }
        Some(Filter::all_of(told))
    }

    /// A bucket in which a value satisfies the predicate has values of its type only, so comparisons of its bounds need not
    /// look at other types. The bound on the other side is there too, which lets an index be read by it.
    fn of_measured(&self, path: &str, predicate: &Predicate) -> Option<Filter> {
        let is_there = |side| condition(side, path, Predicate::Exists);
        let told = match predicate {
            Predicate::Exists => vec![is_there(MIN), is_there(MAX)],
            Predicate::Compare(comparison, operand) if self.tells(operand) => {
                let (from, to) = ends(*comparison);
                let largest =
                    from.map(|from| condition(MAX, path, Predicate::Compare(from, operand.clone())));
                let smallest =
                    to.map_or_else(|| vec![is_there(MIN)], |to| smallest(path, to, operand.clone()));
                smallest.into_iter().chain([largest.unwrap_or_else(|| is_there(MAX))]).collect()
            }
            // What an expression compares is not of one type. What is missing is less than anything.
            Predicate::Expr(comparison, operand) if self.tells(operand) => {
                let (from, to) = match comparison {
                    Comparison::Lt | Comparison::Lte => return None,
                    comparison => ends(*comparison),
                };
                let side =
                    |side, comparison| condition(side, path, Predicate::Expr(comparison, operand.clone()));
                to.map(|to| side(MIN, to)).into_iter().chain(from.map(|from| side(MAX, from))).collect()
            }
            Predicate::In(list) => self.of_list(path, list)?,
            _ => return None,
        };
        Some(Filter::all_of(told))
    }

    /// The values of a list lie between its smallest and its largest, if they are of one type.
    fn of_list(&self, path: &str, list: &InList) -> Option<Vec<Filter>> {
        let values = list.values();
        let operand = |value: &Value| Operand::new(value.clone(), list.collation());
        let kind = |value: &Value| canonical_type(value.element_type());
        let first = values.first()?;
        let is_told = list.regexes().is_empty()
            && values.iter().all(|value| kind(value) == kind(first) && self.tells(&operand(value)));
        // The list is in the order of bytes, its bounds are to be in that of a collation.
        if !is_told || (list.collation().is_some() && matches!(first, Value::String(_))) {
            return None;
        }
        let by_value = |one: &&Value, other: &&Value| compare(one.as_raw(), other.as_raw());
        let (least, most) = (values.iter().min_by(by_value)?, values.iter().max_by(by_value)?);
        let mut told = smallest(path, Comparison::Lte, operand(most));
        told.push(condition(MAX, path, Predicate::Compare(Comparison::Gte, operand(least))));
        Some(told)
    }

    /// Whether bounds tell of values that compare with this one.
    fn tells(&self, operand: &Operand) -> bool {
        match operand.as_raw() {
            RawValue::Double(number) => !number.is_nan(),
            RawValue::String(_) => operand.collation() == self.collation,
            RawValue::Int32(_)
            | RawValue::Int64(_)
            | RawValue::DateTime(_)
            | RawValue::ObjectId(_)
            | RawValue::Bool(_) => true,
            _ => false,
        }
    }
}

impl TimeSeries {
    /// The conditions on bounds that conditions on measurements give, with an index over these paths.
    pub fn on_bounds<'a>(&'a self, measured: &'a [Path], collation: &'a Option<Collation>) -> OnBounds<'a> {
        OnBounds {
            time_field: &self.time_field,
            meta_field: self.meta_field.as_deref(),
            span_millis: Some(self.span_millis()),
            measured,
            places: &[],
            collation,
        }
    }
}

/// What a path within the meta is called in a bucket.
pub(super) fn in_meta(meta_field: Option<&str>, path: &str) -> Option<String> {
    let rest = path.strip_prefix(meta_field?)?;
    (rest.is_empty() || rest.starts_with('.')).then(|| format!("{META}{rest}"))
}

fn condition(side: &str, path: &str, predicate: Predicate) -> Filter {
    Filter::Field { path: Path::parse(&format!("{side}{path}")), predicate }
}

/// What the smallest value of a bucket satisfies if some value is less than an operand, or equal to it. It may be NaN, which
/// sorts before all numbers and compares with none.
fn smallest(path: &str, comparison: Comparison, operand: Operand) -> Vec<Filter> {
    let of_numbers = matches!(*operand, Value::Int32(_) | Value::Int64(_) | Value::Double(_));
    let opposite = match comparison {
        Comparison::Lt => Comparison::Gte,
        _ => Comparison::Gt,
    };
    match of_numbers {
        true => vec![
            condition(MIN, path, Predicate::Not(Box::new(Predicate::Compare(opposite, operand)))),
            condition(MIN, path, Predicate::Type(TypeSet::numbers())),
        ],
        false => vec![condition(MIN, path, Predicate::Compare(comparison, operand))],
    }
}

fn compared(comparison: Comparison, value: Value) -> Predicate {
    Predicate::Compare(comparison, value.into())
}

/// How the largest and how the smallest of some values compare with an operand if one of them compares so.
fn ends(comparison: Comparison) -> (Option<Comparison>, Option<Comparison>) {
    match comparison {
        Comparison::Eq => (Some(Comparison::Gte), Some(Comparison::Lte)),
        Comparison::Gt | Comparison::Gte => (Some(comparison), None),
        Comparison::Lt | Comparison::Lte => (None, Some(comparison)),
    }
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
