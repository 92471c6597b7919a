//! Which documents a window function sees: `window: {documents: […]}` and `window: {range: […], unit}`.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::failed;
use crate::expression::arithmetic::add;
use crate::expression::date::{Unit, shift};
use crate::expression::{Evaluated, Expression, Number, Scope};
use crate::filter::number::exact_i64;
use crate::sort::Sort;
use crate::text;

/// One end of a window as it was written.
#[derive(Debug, Clone, PartialEq)]
enum Bound<T> {
    Unbounded,
    Current,
    At(T),
}

/// A window as explain shows it.
#[derive(Debug, Clone)]
pub struct Bounds {
    window: Window,
}

#[derive(Debug, Clone)]
enum Window {
    Documents(Bound<i32>, Bound<i32>),
    Range(Bound<Value>, Bound<Value>, Option<Unit>),
}

/// The documents that a function sees, from the current one.
#[derive(Debug, Clone)]
pub enum Frame {
    /// By their places in the partition.
    Documents { lower: DocumentBound, upper: DocumentBound },
    /// By the values of the field that the stage sorts by.
    Range(Box<RangeBounds>),
    /// All up to the current one, and as many behind it as the function needs to know its value.
    UntilKnown,
}

/// So many places from the current document; none for the end of the partition.
pub type DocumentBound = Option<i64>;

#[derive(Debug, Clone)]
pub struct RangeBounds {
    pub lower: RangeBound,
    pub upper: RangeBound,
    /// The field is a date, and bounds count this.
    pub unit: Option<Unit>,
}

#[derive(Debug, Clone)]
pub enum RangeBound {
    Unbounded,
    /// The current document, not those that have its value.
    Current,
    /// So far from the current document's value.
    At(Value),
}

impl RangeBounds {
    /// The value so far from another.
    pub fn reach(&self, place: &Evaluated<'_>, distance: &Value) -> Result<Value> {
        if let (Some(unit), Some(RawValue::DateTime(millis)), Some(amount)) =
            (self.unit, place.raw(), exact_i64(distance.as_raw()))
        {
            return shift(millis, unit, amount).map(Value::DateTime);
        }
        let reached = add(place, &Evaluated::Raw(distance.as_raw()))?;
        Ok(reached.into_value().unwrap_or(Value::Null))
    }
}

impl Frame {
    /// Everything up to the current document.
    pub(super) const UP_TO_CURRENT: Frame = Frame::Documents { lower: None, upper: Some(0) };

    /// From how many documents one value comes at most, with those between them and the current one; none where nothing says so.
    pub fn documents(&self) -> Option<u64> {
        match self {
            Frame::Documents { lower: Some(lower), upper: Some(upper) } => {
                Some((*upper).max(0).abs_diff((*lower).min(0)) + 1)
            }
            // What has entered a frame that only grows is not asked for again.
            Frame::Documents { lower: None, upper: Some(upper) } => Some((*upper).max(0) as u64 + 1),
            _ => None,
        }
    }

    /// Whether documents only come and never leave.
    pub fn only_grows(&self) -> bool {
        match self {
            Frame::Documents { lower, .. } => lower.is_none(),
            Frame::Range(bounds) => matches!(bounds.lower, RangeBound::Unbounded),
            Frame::UntilKnown => true,
        }
    }
}

impl Bounds {
    /// Reads a `window`; without one it is the whole partition.
    pub(super) fn parse(window: Option<RawValue<'_>>, scope: &Scope<'_>) -> Result<Bounds> {
        let whole = Bounds { window: Window::Documents(Bound::Unbounded, Bound::Unbounded) };
        let Some(window) = window else { return Ok(whole) };
        let RawValue::Document(window) = window else {
            return Err(failed("'window' field must be an object"));
        };
        let (documents, range, unit) = (window.get("documents"), window.get("range"), window.get("unit"));
        let known = |name: &str| matches!(name, "documents" | "range" | "unit");
        if window.iter().any(|(name, _)| !known(name)) {
            return Err(failed(
                "'window' field can only contain 'documents' as the only argument or 'range' with an optional 'unit' \
                 field",
            ));
        }
        if documents.is_some() && range.is_some() {
            return Err(failed("Window bounds can specify either 'documents' or 'unit', not both."));
        }
        if unit.is_some() && range.is_none() {
            return Err(failed("Window bounds can only specify 'unit' with range-based bounds."));
        }
        let window = match (documents, range) {
            (Some(documents), _) => {
                let [lower, upper] = pair("documents", documents)?;
                let number = |value: RawValue<'_>| {
                    let number = exact_i64(value).and_then(|number| i32::try_from(number).ok());
                    number.ok_or_else(|| failed("Numeric document-based bounds must be an integer"))
                };
                let (lower, upper) = (bound(lower, scope, number)?, bound(upper, scope, number)?);
                check_order(place(&lower), place(&upper), || shown(&lower, &upper, |n| n.to_string()))?;
                Window::Documents(lower, upper)
            }
            (None, Some(range)) => {
                let unit = unit.map(parse_unit).transpose()?;
                let [lower, upper] = pair("range", range)?;
                let number = |value: RawValue<'_>| match unit {
                    Some(_) => exact_i64(value)
                        .map(|amount| Number::int_or_long(amount).to_value())
                        .ok_or_else(|| failed("With 'unit', range-based bounds must be an integer")),
                    None if value.is_number() => Ok(value.to_value()),
                    None => Err(failed("Range-based bounds expression must be a number")),
                };
                let (lower, upper) = (bound(lower, scope, number)?, bound(upper, scope, number)?);
                check_values(&lower, &upper)?;
                Window::Range(lower, upper, unit)
            }
            (None, None) => return Ok(whole),
        };
        Ok(Bounds { window })
    }

    /// Refuses a window that needs another sort than the stage has.
    pub(super) fn check_sort(&self, sort: Option<&Sort>) -> Result<()> {
        match &self.window {
            Window::Documents(Bound::Unbounded, Bound::Unbounded) => Ok(()),
            // A sort by nothing is one.
            Window::Documents(..) if sort.is_none() => {
                Err(Error::location(5_339_901, "Document-based bounds require a sortBy"))
            }
            Window::Documents(..) => Ok(()),
            Window::Range(..) if sort.is_none_or(|sort| sort.parts().len() != 1) => {
                Err(Error::location(5_339_902, "Range-based bounds require sortBy a single field"))
            }
            Window::Range(..) => Ok(()),
        }
    }

    pub(super) fn frame(&self) -> Frame {
        match &self.window {
            Window::Documents(lower, upper) => {
                let end = |bound: &Bound<i32>| match bound {
                    Bound::Unbounded => None,
                    Bound::Current => Some(0),
                    Bound::At(places) => Some(i64::from(*places)),
                };
                Frame::Documents { lower: end(lower), upper: end(upper) }
            }
            Window::Range(lower, upper, unit) => {
                let end = |bound: &Bound<Value>| match bound {
                    Bound::Unbounded => RangeBound::Unbounded,
                    Bound::Current => RangeBound::Current,
                    Bound::At(distance) => RangeBound::At(distance.clone()),
                };
                Frame::Range(Box::new(RangeBounds { lower: end(lower), upper: end(upper), unit: *unit }))
            }
        }
    }

    pub(super) fn to_document(&self) -> Document {
        fn list<T>(lower: &Bound<T>, upper: &Bound<T>, number: impl Fn(&T) -> Value) -> Value {
            let end = |bound: &Bound<T>| match bound {
                Bound::Unbounded => Value::from("unbounded"),
                Bound::Current => Value::from("current"),
                Bound::At(at) => number(at),
            };
            Value::Array([end(lower), end(upper)].into_iter().collect())
        }
        match &self.window {
            Window::Documents(lower, upper) => {
                [("documents", list(lower, upper, |places| Value::Int32(*places)))].into_iter().collect()
            }
            Window::Range(lower, upper, unit) => {
                let mut document: Document =
                    [("range", list(lower, upper, Value::clone))].into_iter().collect();
                if let Some(unit) = unit {
                    document.push("unit", unit.name());
                }
                document
            }
        }
    }
}

/// A unit of time by its name.
fn parse_unit(unit: RawValue<'_>) -> Result<Unit> {
    let RawValue::String(name) = unit else { return Err(failed("'unit' must be a string")) };
    named_unit(name)
}

pub(super) fn named_unit(name: &str) -> Result<Unit> {
    Unit::parse(name)
        .ok_or_else(|| Error::user(ErrorCode::FailedToParse, format!("unknown time unit value: {name}")))
}

fn pair<'a>(name: &str, value: RawValue<'a>) -> Result<[RawValue<'a>; 2]> {
    let mut elements = value.as_array().into_iter().flat_map(RawArray::iter);
    match (elements.next(), elements.next(), elements.next()) {
        (Some(lower), Some(upper), None) => Ok([lower, upper]),
        _ => Err(failed(format!("Window bounds must be a 2-element array: {}", text::element(name, value)))),
    }
}

fn bound<T>(
    value: RawValue<'_>,
    scope: &Scope<'_>,
    number: impl FnOnce(RawValue<'_>) -> Result<T>,
) -> Result<Bound<T>> {
    match value {
        RawValue::String("unbounded") => Ok(Bound::Unbounded),
        RawValue::String("current") => Ok(Bound::Current),
        RawValue::String(_) => Err(failed("Window bounds must be 'unbounded', 'current', or a number.")),
        RawValue::Document(_) => {
            let expression = Expression::parse(value, scope)?.optimised()?;
            let constant = expression.as_constant();
            let constant = constant.ok_or_else(|| failed("Window bounds expression must be a constant."))?;
            number(constant.as_raw()).map(Bound::At)
        }
        value => number(value).map(Bound::At),
    }
}

fn place(bound: &Bound<i32>) -> Option<i64> {
    match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(0),
        Bound::At(place) => Some(i64::from(*place)),
    }
}

fn check_values(lower: &Bound<Value>, upper: &Bound<Value>) -> Result<()> {
    let zero = Value::Int32(0);
    let value = |bound: &Bound<Value>| match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(zero.clone()),
        Bound::At(value) => Some(value.clone()),
    };
    if let (Some(low), Some(high)) = (value(lower), value(upper))
        && kilim_bson::compare(low.as_raw(), high.as_raw()).is_gt()
    {
        return Err(order(shown(lower, upper, |value| text::value(value.as_raw()))));
    }
    Ok(())
}

fn check_order(lower: Option<i64>, upper: Option<i64>, shown: impl FnOnce() -> String) -> Result<()> {
    match (lower, upper) {
        (Some(lower), Some(upper)) if lower > upper => Err(order(shown())),
        _ => Ok(()),
    }
}

fn order(shown: String) -> Error {
    Error::location(5_339_900, format!("Lower bound must not exceed upper bound: {shown}"))
}

fn shown<T>(lower: &Bound<T>, upper: &Bound<T>, number: impl Fn(&T) -> String) -> String {
    let end = |bound: &Bound<T>| match bound {
        Bound::Unbounded => "unbounded".to_owned(),
        Bound::Current => "0".to_owned(),
        Bound::At(at) => number(at),
    };
    format!("[{}, {}]", end(lower), end(upper))
}

/// The `unit` of `$derivative` and `$integral`, in milliseconds.
pub(super) fn unit_of(operand: RawDocument<'_>) -> Result<Option<Unit>> {
    let Some(unit) = operand.get("unit") else { return Ok(None) };
    let RawValue::String(name) = unit else {
        return Err(failed(format!("unit' must be a string, but got {}", unit.element_type().name())));
    };
    let unit = named_unit(name)?;
    if matches!(unit, Unit::Month | Unit::Quarter | Unit::Year) {
        return Err(Error::location(5_490_710, "unit must be 'week' or smaller"));
    }
    Ok(Some(unit))
}
