//! `$densify`: documents for the gaps in a sequence of numbers or dates.
//!
//! As on mongod it becomes a `$sort` and the stage proper, which walks the sequence step by step and makes a document
//! wherever none stands.

use std::sync::Arc;

use kilim_bson::{Collator, Document, RawArray, RawDocument, RawValue, Value, Writer, compare};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::field::{missing, specification, unknown, wrong_type};
use super::{Behaviour, Beyond, Context, SortBy, Stage};
use crate::expression::arithmetic::{add, subtract};
use crate::expression::date::{Unit, shift};
use crate::expression::{Dependencies, Evaluated, FieldPath, Number};
use crate::filter::number::exact_i64;
use crate::sort::Sort;

/// Makes documents for the gaps in a sequence that comes in order.
#[derive(Debug, Clone)]
pub struct Densify {
    pub field: FieldPath,
    /// Each partition is a sequence of its own.
    pub partition_by: Vec<FieldPath>,
    pub step: Step,
    pub bounds: Bounds,
    collation: Option<Collation>,
}

/// How far apart documents are to be.
#[derive(Debug, Clone)]
pub struct Step {
    size: Value,
    /// What it counts, where the field is a date.
    pub unit: Option<Unit>,
}

#[derive(Debug, Clone)]
pub enum Bounds {
    /// From the least to the greatest value of all partitions.
    Full,
    /// From the least to the greatest value of each partition.
    Partition,
    /// From the first to the second, which is not part of it.
    Between(Value, Value),
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = specification(name, value)?;
    let (mut field, mut partition_by, mut range) = (None, Vec::new(), None);
    for (option, value) in spec {
        let path = format!("{name}.{option}");
        match (option, value) {
            ("partitionByFields", RawValue::Null) => {
                return Err(Error::location(
                    10065,
                    "invalid parameter: expected an object (partitionByFields)",
                ));
            }
            ("field" | "range", RawValue::Null | RawValue::Undefined) => {}
            ("field", RawValue::String(path)) => field = Some(path),
            ("field", value) => return Err(wrong_type(&path, value, "type 'string'")),
            ("partitionByFields", RawValue::Array(fields)) => {
                for (at, field) in fields.iter().enumerate() {
                    let RawValue::String(field) = field else {
                        return Err(wrong_type(&format!("{path}.{at}"), field, "type 'string'"));
                    };
                    partition_by.push(field);
                }
            }
            ("partitionByFields", value) => return Err(wrong_type(&path, value, "type 'array'")),
            ("range", RawValue::Document(spec)) => range = Some(parse_range(&path, spec)?),
            ("range", value) => return Err(wrong_type(&path, value, "type 'object'")),
            _ => return Err(unknown(&path)),
        }
    }
    let field = field.ok_or_else(|| missing(&format!("{name}.field")))?;
    let (step, bounds) = range.ok_or_else(|| missing(&format!("{name}.range")))?;
    let (step, bounds) = check_range(step, bounds, partition_by.is_empty())?;
    let field = FieldPath::parse(field)?;
    let partition_by = partition_by.into_iter().map(FieldPath::parse).collect::<Result<Vec<_>>>()?;
    let collation = context.scope.collation().clone();
    let stage = Densify { field, partition_by, step, bounds, collation };
    let sort = Arc::new(Sort::parse_in(stage.order().as_raw(), context.scope)?);
    out.push(Stage::Sort(SortBy::new(sort)));
    out.push(Stage::Densify(Arc::new(stage)));
    Ok(())
}

type Range<'a> = (Step, RawValue<'a>);

fn parse_range<'a>(path: &str, spec: RawDocument<'a>) -> Result<Range<'a>> {
    let (mut step, mut bounds, mut unit) = (None, None, None);
    for (option, value) in spec {
        let path = format!("{path}.{option}");
        match (option, value) {
            ("bounds", value) => bounds = Some(value),
            ("step" | "unit", RawValue::Null | RawValue::Undefined) => {}
            ("step", value) if value.is_number() => step = Some(value.to_value()),
            ("step", value) => {
                return Err(wrong_type(&path, value, "types '[int, decimal, double, long']"));
            }
            ("unit", RawValue::String(name)) => {
                unit = Some(Unit::parse(name).ok_or_else(|| {
                    Error::user(ErrorCode::FailedToParse, format!("unknown time unit value: {name}"))
                })?);
            }
            ("unit", value) => return Err(wrong_type(&path, value, "type 'string'")),
            _ => return Err(unknown(&path)),
        }
    }
    let size = step.ok_or_else(|| missing(&format!("{path}.step")))?;
    let bounds = bounds.ok_or_else(|| missing(&format!("{path}.bounds")))?;
    Ok((Step { size, unit }, bounds))
}

fn check_range(step: Step, bounds: RawValue<'_>, whole: bool) -> Result<(Step, Bounds)> {
    if compare(step.size.as_raw(), RawValue::Int32(0)).is_le() {
        return Err(Error::location(
            5_733_401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    let whole_number = exact_i64(step.size.as_raw());
    if step.unit.is_some() && whole_number.is_none() {
        return Err(Error::location(
            6_586_400,
            "The step parameter in a range statement must be a whole number when densifying a date range",
        ));
    }
    let bounds = match bounds {
        RawValue::String("full") => Bounds::Full,
        RawValue::String("partition") if whole => {
            return Err(Error::location(
                5_733_408,
                "One cannot specify the bounds as 'partition' without specifying a non-empty array of \
                 partitionByFields. You may have meant to specify 'full' bounds.",
            ));
        }
        RawValue::String("partition") => Bounds::Partition,
        RawValue::String(_) => {
            return Err(Error::location(5_946_802, "Bounds string must either be 'full' or 'partition'"));
        }
        RawValue::Array(between) => parse_between(&step, between)?,
        _ => {
            return Err(Error::location(
                5_733_404,
                "The bounds in a range statement must be the string 'full', 'partition', or an ascending array of two \
                 numbers or two dates",
            ));
        }
    };
    Ok((step, bounds))
}

fn parse_between(step: &Step, between: RawArray<'_>) -> Result<Bounds> {
    let mut ends = between.iter();
    let (Some(lower), Some(upper), None) = (ends.next(), ends.next(), ends.next()) else {
        return Err(Error::location(
            5_733_403,
            "A bounding array in a range statement must have exactly two elements",
        ));
    };
    let is_date = |value: RawValue<'_>| matches!(value, RawValue::DateTime(_));
    let refuse = |code, message: &str| Err(Error::location(code, message.to_owned()));
    // Before their types are looked at.
    if compare(lower, upper).is_gt() {
        return refuse(
            5_733_402,
            "A bounding array must be an ascending array of either two dates or two numbers",
        );
    }
    if !is_date(lower) && !lower.is_number() {
        return refuse(5_946_800, "Explicit bounds must be numeric or dates");
    }
    if lower.is_number() && step.unit.is_some() {
        return refuse(5_733_409, "Numeric bounds may not have unit parameter");
    }
    if is_date(lower) != is_date(upper) || lower.is_number() != upper.is_number() {
        return refuse(5_733_406, "A bounding array must contain either both dates or both numeric types");
    }
    if is_date(lower) && step.unit.is_none() {
        return refuse(5_733_410, "A bounding array of dates must specify a unit");
    }
    if lower.is_number() {
        let same = |value: RawValue<'_>| value.element_type() == step.size.as_raw().element_type();
        if !same(lower) || !same(upper) {
            return refuse(5_876_900, "Upper bound, lower bound, and step must all have the same type");
        }
    }
    Ok(Bounds::Between(lower.to_value(), upper.to_value()))
}

impl Step {
    /// The place one step on.
    pub fn after(&self, place: &Value) -> Result<Value> {
        self.moved(place, 1)
    }

    /// The place one step back.
    pub fn before(&self, place: &Value) -> Result<Value> {
        self.moved(place, -1)
    }

    /// Whether a place lies so many whole steps from another. mongod asks this of doubles in a given range, where a sum
    /// of steps may be the place and the remainder of the division still not be nothing.
    pub fn leads_to(&self, from: &Value, place: &Value) -> Option<bool> {
        let double = |value: &Value| match value {
            Value::Double(value) => Some(*value),
            _ => None,
        };
        let (from, size) = (double(from)?, double(&self.size)?);
        let place = Number::of(place.as_raw())?.to_f64();
        Some((place - from) % size == 0.0)
    }

    fn moved(&self, place: &Value, direction: i64) -> Result<Value> {
        let raw = |value: &Value| -> Evaluated<'static> { Evaluated::Owned(value.clone()) };
        if let (Some(unit), Value::DateTime(millis)) = (self.unit, place) {
            let amount = exact_i64(self.size.as_raw()).unwrap_or(0);
            return shift(*millis, unit, amount.saturating_mul(direction)).map(Value::DateTime);
        }
        // What is counted by ones and the like, without a look at all the types there are.
        let plain = match (place, &self.size) {
            (Value::Int32(place), Value::Int32(size)) if direction == 1 => {
                place.checked_add(*size).map(Value::Int32)
            }
            (Value::Int64(place), Value::Int64(size)) if direction == 1 => {
                place.checked_add(*size).map(Value::Int64)
            }
            _ => None,
        };
        if let Some(moved) = plain {
            return Ok(moved);
        }
        let moved = match direction {
            1 => add(&raw(place), &raw(&self.size))?,
            _ => subtract(&raw(place), &raw(&self.size))?,
        };
        Ok(moved.into_value().unwrap_or(Value::Null))
    }
}

impl Densify {
    /// How texts of partitions compare.
    pub fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// The order in which documents must come. Partitions of one common range come mixed.
    pub(super) fn order(&self) -> Document {
        let mut by = Document::new();
        if !matches!(self.bounds, Bounds::Full) {
            for field in &self.partition_by {
                if by.get(field.as_str()).is_none() {
                    by.push(field.as_str(), 1);
                }
            }
        }
        if by.get(self.field.as_str()).is_none() {
            by.push(self.field.as_str(), 1);
        }
        by
    }

    /// Whether documents leave it in the order in which they come.
    pub(super) fn keeps_order(&self) -> bool {
        match self.bounds {
            Bounds::Full => self.partition_by.is_empty(),
            Bounds::Partition => true,
            Bounds::Between(..) => self.partition_by.is_empty(),
        }
    }

    /// Refuses what is no place in the sequence.
    pub fn check(&self, value: RawValue<'_>) -> Result<()> {
        let refuse = |found: &str, has: &str| {
            Err(Error::location(
                6_053_600,
                format!("Encountered {found} densify value in collection when step {has} a date unit."),
            ))
        };
        match (value, self.step.unit) {
            (RawValue::DateTime(_), None) => refuse("date", "does not have"),
            (RawValue::DateTime(_), Some(_)) => Ok(()),
            (value, Some(_)) if value.is_number() => refuse("numeric", "has"),
            (value, None) if value.is_number() => Ok(()),
            _ => Err(Error::location(5_733_201, "Densify field type must be numeric or a date")),
        }
    }

    /// Refuses to make documents that would have the field twice.
    pub fn check_makes(&self) -> Result<()> {
        match self.partition_by.iter().any(|field| field.names().starts_with(self.field.names())) {
            true => {
                Err(Error::location(5_733_306, "DocGenerator cannot include field that is being densified"))
            }
            false => Ok(()),
        }
    }

    /// What the documents made for a partition have beside their places: the fields that it goes by, of one of its rows.
    pub fn frame_of(&self, row: RawDocument<'_>) -> Document {
        let empty = Document::new();
        self.partition_by
            .iter()
            .fold(empty, |frame, field| with(frame.as_raw(), field.names(), field.evaluate(row).raw()))
    }

    /// The document that stands at a place of a partition with this frame.
    pub fn made(&self, frame: RawDocument<'_>, place: &Value) -> Document {
        match self.field.names() {
            [name] if frame.get(name).is_none() => {
                let mut out = Writer::with_capacity(frame.as_bytes().len() + name.len() + 32);
                out.append_elements(frame.elements());
                out.append(name, place.as_raw());
                out.finish()
            }
            names => with(frame, names, Some(place.as_raw())),
        }
    }
}

/// A document with a value at a path; what stands in the way gives way.
fn with(document: RawDocument<'_>, names: &[Box<str>], value: Option<RawValue<'_>>) -> Document {
    let Some((name, rest)) = names.split_first() else { return document.to_document() };
    let value = match rest {
        [] => value.map(RawValue::to_value),
        rest => {
            let below = document.get(name).and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
            Some(Value::Document(with(below, rest, value)))
        }
    };
    let mut changed = Document::new();
    for (other, kept) in document.iter().filter(|(other, _)| **other != **name) {
        changed.push(other, kept.to_value());
    }
    if let Some(value) = value {
        changed.push(name, value);
    }
    changed
}

impl Behaviour for Densify {
    fn to_document(&self) -> Document {
        let mut stage = Document::new();
        stage.push("field", self.field.as_str());
        let fields = self.partition_by.iter().map(|field| Value::from(field.as_str()));
        stage.push("partitionByFields", Value::Array(fields.collect()));
        let mut range = Document::new();
        range.push("step", self.step.size.clone());
        range.push(
            "bounds",
            match &self.bounds {
                Bounds::Full => Value::from("full"),
                Bounds::Partition => Value::from("partition"),
                Bounds::Between(lower, upper) => {
                    Value::Array([lower.clone(), upper.clone()].into_iter().collect())
                }
            },
        );
        if let Some(unit) = self.step.unit {
            range.push("unit", unit.name());
        }
        stage.push("range", range);
        [("$_internalDensify", Value::Document(stage))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        needed.field(self.field.as_str());
        self.partition_by.iter().for_each(|field| needed.field(field.as_str()));
        Beyond::Later
    }
}
