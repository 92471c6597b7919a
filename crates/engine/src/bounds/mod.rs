//! From one predicate to the intervals of index keys that can satisfy it.
//!
//! Bounds may be wider than the predicate, never narrower: [`Tightness`] says whether the record must be
//! looked at again. What an index stores decides that. It has one key an array element, `null` for a
//! missing field and `undefined` for an empty array, so `null`, arrays and negations over arrays cannot be
//! decided on keys alone.

use kilim_bson::{ElementType, RawValue, Value};
use kilim_query::filter::{Comparison, InList, Predicate, Regex, TypeSet};

mod bracket;
mod interval;
mod regex_prefix;
mod texts;

pub use interval::{Cut, Endpoint, Interval, IntervalList};
pub(crate) use texts::{Texts, is_collatable, may_hold_texts};

/// How much the bounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tightness {
    /// A key is in the bounds exactly if its value satisfies the predicate.
    Exact,
    /// The predicate must be tested again, but the key is enough for it.
    InexactCovered,
    /// The record must be fetched to know.
    InexactFetch,
}

#[derive(Debug, Clone)]
pub struct Bounds {
    pub intervals: IntervalList,
    pub tightness: Tightness,
}

/// What the index says about the path that the predicate is on.
#[derive(Debug, Clone, Copy)]
pub struct PartTraits<'a> {
    /// How the index's texts are to the query's.
    pub texts: Texts<'a>,
    /// Some component of the path met an array.
    pub multikey: bool,
    /// The path has several components, so that an array on the way may lead to no value at all.
    pub dotted: bool,
    /// Documents that lack all of the index's fields are not in it.
    pub sparse: bool,
    /// The index has this part only.
    pub single: bool,
    /// The predicate is about one array element, inside `$elemMatch`.
    pub element: bool,
}

/// The bounds of a predicate; `None` where the index cannot serve it.
pub fn bounds_of(predicate: &Predicate, part: PartTraits<'_>) -> Option<Bounds> {
    if !part.texts.allow(predicate) {
        return None;
    }
    match predicate {
        Predicate::Compare(comparison, value) => compare(*comparison, value, part),
        Predicate::Expr(comparison, value) => expr(*comparison, value, part),
        Predicate::In(list) => in_list(list, part),
        Predicate::Regex(regex) => Some(regex_bounds(regex, part)),
        Predicate::Exists => {
            let exact = part.sparse && part.single && !part.multikey;
            let tightness = if exact { Tightness::Exact } else { Tightness::InexactFetch };
            Some(Bounds { intervals: IntervalList::full(), tightness })
        }
        Predicate::Type(types) => Some(type_bounds(*types, part)),
        Predicate::Mod { .. } => Some(Bounds {
            intervals: IntervalList::one(bracket::all_of(ElementType::Double)),
            tightness: Tightness::InexactCovered,
        }),
        Predicate::ElemMatchValue(predicates) => elem_match_value(predicates, part),
        Predicate::Not(negated) => not(negated, part),
        Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::Bits(_) => None,
        Predicate::All(_) | Predicate::Geo(_) | Predicate::Near(_) => None,
    }
}

fn exact(intervals: IntervalList) -> Bounds {
    Bounds { intervals, tightness: Tightness::Exact }
}

fn inexact(intervals: IntervalList) -> Bounds {
    Bounds { intervals, tightness: Tightness::InexactFetch }
}

/// `undefined` stands for an empty array, whose elements equal nothing, yet old data may hold it as a value.
fn null_points() -> IntervalList {
    IntervalList::union_of(vec![Interval::point(Value::Undefined), Interval::point(Value::Null)])
}

fn compare(comparison: Comparison, value: &Value, part: PartTraits<'_>) -> Option<Bounds> {
    match value {
        // A missing field equals null, and a sparse index may lack its document.
        Value::Null | Value::Undefined => match comparison {
            Comparison::Lt | Comparison::Gt => Some(exact(IntervalList::empty())),
            _ if part.sparse && !part.element => None,
            _ => Some(inexact(null_points())),
        },
        Value::MinKey | Value::MaxKey if comparison != Comparison::Eq => keys(comparison, value, part),
        Value::MinKey | Value::MaxKey => Some(exact(IntervalList::point(value.clone()))),
        Value::Array(_) => Some(inexact(array_bounds(comparison, value, part.texts))),
        value if is_nan(value) => Some(exact(match comparison {
            Comparison::Lt | Comparison::Gt => IntervalList::empty(),
            _ => IntervalList::point(value.clone()),
        })),
        value => {
            let bracket = bracket::comparable_with(value.element_type())?;
            let interval = match comparison {
                Comparison::Eq => part.texts.point(value),
                Comparison::Lt => Interval::new(bracket.low, part.texts.before(value)),
                Comparison::Lte => Interval::new(bracket.low, part.texts.after(value)),
                Comparison::Gt => Interval::new(part.texts.after(value), bracket.high),
                Comparison::Gte => Interval::new(part.texts.before(value), bracket.high),
            };
            Some(exact(IntervalList::one(interval)))
        }
    }
}

/// A comparison of `$expr`: in the order of all values, where a missing field stands below null. Arrays are
/// compared whole, of which keys say nothing. The `$expr` beside it does what the keys cannot.
fn expr(comparison: Comparison, value: &Value, part: PartTraits<'_>) -> Option<Bounds> {
    if part.multikey {
        return None;
    }
    let below = |high| Interval::new(Cut::before(Value::MinKey), high);
    let above = |low| Interval::new(low, Cut::after(Value::MaxKey));
    // A sparse index may lack documents without the field, which are less than anything but MinKey.
    let takes_missing = match comparison {
        Comparison::Eq => false,
        Comparison::Lt | Comparison::Lte => !matches!(value, Value::MinKey),
        Comparison::Gt | Comparison::Gte => matches!(value, Value::MinKey),
    };
    if takes_missing && part.sparse {
        return None;
    }
    Some(exact(match (comparison, value) {
        (Comparison::Eq, Value::Null) => null_points(),
        (Comparison::Eq, value) => IntervalList::one(part.texts.point(value)),
        // The key of a missing field is null.
        (Comparison::Lt, Value::Null) => IntervalList::one(below(Cut::after(Value::Null))),
        (Comparison::Lt, value) => IntervalList::one(below(part.texts.before(value))),
        (Comparison::Lte, value) => IntervalList::one(below(part.texts.after(value))),
        (Comparison::Gt, value) => IntervalList::one(above(part.texts.after(value))),
        (Comparison::Gte, value) => IntervalList::one(above(part.texts.before(value))),
    }))
}

/// MinKey and MaxKey compare with values of every type, missing ones included.
fn keys(comparison: Comparison, value: &Value, part: PartTraits<'_>) -> Option<Bounds> {
    let interval = match comparison {
        Comparison::Lt => Interval::new(Cut::before(Value::MinKey), Cut::before(value.clone())),
        Comparison::Lte => Interval::new(Cut::before(Value::MinKey), Cut::after(value.clone())),
        Comparison::Gt => Interval::new(Cut::after(value.clone()), Cut::after(Value::MaxKey)),
        _ => Interval::new(Cut::before(value.clone()), Cut::after(Value::MaxKey)),
    };
    let list = IntervalList::one(interval);
    let all = !list.is_empty() && !list.is_point();
    if all && part.sparse && !part.element {
        return None;
    }
    // An array of MinKeys is itself greater than MinKey, though none of its keys is.
    if all && part.multikey && !list.is_full() {
        return None;
    }
    if all && part.multikey && part.dotted {
        return Some(inexact(list));
    }
    Some(exact(list))
}

/// An array is compared whole, and as an element of an outer array. Whole, it is found by its first element.
fn array_bounds(comparison: Comparison, value: &Value, texts: Texts<'_>) -> IntervalList {
    let Value::Array(array) = value else { return IntervalList::full() };
    let first = array.as_raw().iter().next().map(RawValue::to_value);
    let whole = texts.point(value);
    match (comparison, first) {
        (Comparison::Eq, first) => {
            let first = texts.point(&first.unwrap_or(Value::Undefined));
            IntervalList::union_of(vec![first, whole])
        }
        (_, None) => IntervalList::full(),
        (Comparison::Lt | Comparison::Lte, Some(first)) => {
            let high = texts.after(&first).max(whole.high);
            IntervalList::one(Interval::new(Cut::before(Value::MinKey), high))
        }
        (Comparison::Gt | Comparison::Gte, Some(first)) => {
            let low = texts.before(&first).min(whole.low);
            IntervalList::one(Interval::new(low, Cut::after(Value::MaxKey)))
        }
    }
}

fn in_list(list: &InList, part: PartTraits<'_>) -> Option<Bounds> {
    let mut intervals = Vec::with_capacity(list.values().len());
    let mut tightness = Tightness::Exact;
    for value in list.values() {
        let bounds = compare(Comparison::Eq, value, part)?;
        tightness = tightness.max(bounds.tightness);
        intervals.extend_from_slice(bounds.intervals.intervals());
    }
    for regex in list.regexes() {
        let bounds = regex_bounds(regex, part);
        tightness = tightness.max(bounds.tightness);
        intervals.extend_from_slice(bounds.intervals.intervals());
    }
    Some(Bounds { intervals: IntervalList::union_of(intervals), tightness })
}

/// A regular expression matches strings, and values that are the same regular expression.
fn regex_bounds(regex: &Regex, part: PartTraits<'_>) -> Bounds {
    let itself = Interval::point(Value::Regex {
        pattern: regex.pattern().to_owned(),
        options: regex.options().to_owned(),
    });
    let strings = bracket::all_of(ElementType::String);
    if part.texts.collation.is_some() {
        // A collation's keys do not begin as texts do, nor can one be matched.
        return inexact(IntervalList::union_of(vec![strings, itself]));
    }
    let (strings, tightness) = match regex_prefix::prefix_of(regex.pattern(), regex.options()) {
        Some(prefix) => {
            let low = Cut::before(prefix.text.as_str().into());
            let high = regex_prefix::end_of(&prefix.text).map_or(strings.high, |end| Cut::before(end.into()));
            let tightness = if prefix.exact { Tightness::Exact } else { Tightness::InexactCovered };
            (Interval::new(low, high), tightness)
        }
        None => (strings, Tightness::InexactCovered),
    };
    Bounds { intervals: IntervalList::union_of(vec![strings, itself]), tightness }
}

fn type_bounds(types: TypeSet, part: PartTraits<'_>) -> Bounds {
    if types.contains(ElementType::Array) {
        // Keys are elements: an array itself is in none of them, unless nested.
        return inexact(IntervalList::full());
    }
    let numbers = [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];
    let all_numbers = numbers.iter().all(|&kind| types.contains(kind));
    let mut tightness = Tightness::Exact;
    let mut intervals = Vec::new();
    for kind in types.types() {
        intervals.push(bracket::all_of(kind));
        tightness = tightness.max(match kind {
            ElementType::Null | ElementType::Undefined => Tightness::InexactFetch,
            // Types that share their place in the order with others.
            ElementType::String | ElementType::Symbol if part.texts.collation.is_some() => {
                Tightness::InexactFetch
            }
            ElementType::String | ElementType::Symbol => Tightness::InexactCovered,
            kind if numbers.contains(&kind) && !all_numbers => Tightness::InexactCovered,
            _ => Tightness::Exact,
        });
    }
    Bounds { intervals: IntervalList::union_of(intervals), tightness }
}

/// All predicates are about one element, which has one key: here bounds do intersect.
fn elem_match_value(predicates: &[Predicate], part: PartTraits<'_>) -> Option<Bounds> {
    let element = PartTraits { multikey: false, element: true, ..part };
    let mut intervals: Option<IntervalList> = None;
    for predicate in predicates {
        let Some(bounds) = bounds_of(predicate, element) else { continue };
        intervals = Some(match intervals {
            Some(sofar) => sofar.intersection(&bounds.intervals),
            None => bounds.intervals,
        });
    }
    intervals.map(inexact)
}

fn not(negated: &Predicate, part: PartTraits<'_>) -> Option<Bounds> {
    if let Predicate::Exists = negated {
        return (!part.sparse || part.element).then(|| inexact(IntervalList::point(Value::Null)));
    }
    let equals_null = |value: &Value| matches!(value, Value::Null | Value::Undefined);
    let has_null = match negated {
        Predicate::Compare(Comparison::Lt | Comparison::Gt, _) => false,
        Predicate::Compare(_, value) => equals_null(value),
        Predicate::In(list) if list.regexes().is_empty() => list.values().iter().any(equals_null),
        _ => return None,
    };
    // A sparse index lacks the documents without the field, all of which match, unless null is refused.
    if part.sparse && !part.element && !has_null {
        return None;
    }
    // `[null, 1]` has a key other than null and still equals null, as does `[]`.
    if has_null && part.multikey {
        return None;
    }
    let values: &[Value] = match negated {
        Predicate::Compare(_, value) => std::slice::from_ref(&**value),
        Predicate::In(list) => list.values(),
        _ => &[],
    };
    if values.iter().any(|value| matches!(value, Value::Array(_))) {
        return None;
    }
    let Bounds { mut intervals, tightness } = bounds_of(negated, PartTraits { sparse: false, ..part })?;
    // Bounds that are too wide would have a complement that is too narrow.
    if tightness != Tightness::Exact && !has_null {
        return None;
    }
    if has_null {
        let both = Interval::new(Cut::before(Value::Undefined), Cut::after(Value::Null));
        intervals = intervals.union(IntervalList::one(both));
    }
    let tightness = if part.multikey { Tightness::InexactFetch } else { Tightness::Exact };
    Some(Bounds { intervals: intervals.complement(), tightness })
}

fn is_nan(value: &Value) -> bool {
    match value {
        Value::Double(number) => number.is_nan(),
        Value::Decimal128(number) => number.is_nan(),
        _ => false,
    }
}
