//! `$locf` and `$linearFill`: values for documents that have none.
//!
//! `$locf` carries the last value forward. `$linearFill` puts what is missing on the line between the numbers around, by
//! the distance of the sort field; at the ends of a partition, where there is a number on one side only, it gives null.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::bounds::Frame;
use super::{Asked, Function, Parsed, Slide, failed, unknown_argument};
use crate::accumulator::{Number, payload};
use crate::expression::arithmetic::{add, divide, multiply, subtract};
use crate::expression::{Bindings, Dependencies, Env, Evaluated, Expression, FieldPath};

#[derive(Debug)]
struct Fill {
    input: Arc<Expression>,
    /// By what distances are measured; none for `$locf`.
    by: Option<FieldPath>,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    if asked.has_window() {
        return Err(failed(format!("'window' field is not allowed in {}", asked.name)));
    }
    asked.check_others(unknown_argument)?;
    if asked.name == "$locf" {
        let input = Arc::new(asked.expression(asked.operand)?);
        return Ok((Arc::new(Fill { input, by: None }), None, Frame::UP_TO_CURRENT));
    }
    let Some(by) = asked.sort_path() else {
        return Err(Error::location(
            605_001,
            "$linearFill must be specified with a top level sortBy expression with exactly one element",
        ));
    };
    let input = Arc::new(asked.expression(asked.operand)?);
    Ok((Arc::new(Fill { input, by: Some(by?) }), None, Frame::UntilKnown))
}

impl Function for Fill {
    fn begin(&self, _: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        let input = self.input.clone();
        Ok(match &self.by {
            None => Box::new(Carried { input, last: Value::Null }),
            Some(by) => Box::new(Line {
                input,
                by: by.clone(),
                points: VecDeque::new(),
                known: 0,
                left: None,
                ahead: None,
                last_place: None,
                bytes: 0,
            }),
        })
    }

    fn operand(&self) -> Value {
        self.input.to_value()
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.input]
    }

    fn dependencies(&self, needed: &mut Dependencies) {
        if let Some(by) = &self.by {
            needed.field(by.as_str());
        }
    }
}

struct Carried {
    input: Arc<Expression>,
    last: Value,
}

impl Slide for Carried {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.input.evaluate(env)?;
        if !value.is_nullish()
            && let Some(value) = value.into_value()
        {
            self.last = value;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Err(Error::bug("a document leaves the frame of $locf"))
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(Evaluated::Raw(self.last.as_raw()))
    }

    fn bytes(&self) -> usize {
        size_of::<Carried>() + payload(self.last.as_raw())
    }
}

/// A document's sort value and its number.
struct Point {
    place: Evaluated<'static>,
    /// None where it is to be filled.
    value: Option<Value>,
}

struct Line {
    input: Arc<Expression>,
    by: FieldPath,
    /// The current document and those behind it, as far as they have come.
    points: VecDeque<Point>,
    /// How many of them have a value.
    known: usize,
    /// The last value at or before the current document.
    left: Option<Point>,
    /// The line from there to the next value behind the current document, once it is looked for.
    ahead: Option<Ahead>,
    /// The sort value of the document before the current one.
    last_place: Option<Evaluated<'static>>,
    bytes: usize,
}

/// Where a line leads.
enum Ahead {
    /// How much a value rises by a step of one.
    Slope(Evaluated<'static>),
    /// There is no value behind the current document.
    Nowhere,
}

impl Point {
    fn bytes(&self) -> usize {
        size_of::<Point>() + self.value.as_ref().map_or(0, |value| payload(value.as_raw()))
    }
}

impl Line {
    fn between(&mut self, place: &Evaluated<'_>) -> Result<Value> {
        let Some(left) = &self.left else { return Ok(Value::Null) };
        let from = number(left);
        let ahead = match &self.ahead {
            Some(ahead) => ahead,
            None => self.ahead.insert(match self.points.iter().find(|point| point.value.is_some()) {
                None => Ahead::Nowhere,
                Some(right) => {
                    let rise = subtract(&number(right), &from)?;
                    let run = subtract(&right.place, &left.place)?;
                    Ahead::Slope(divide(&rise, &run)?.into_owned())
                }
            }),
        };
        let Ahead::Slope(slope) = ahead else { return Ok(Value::Null) };
        if let Some(filled) = filled_plainly(&from, slope, &left.place, place) {
            return Ok(Value::Double(filled));
        }
        let distance = subtract(place, &left.place)?;
        let filled = add(&from, &multiply(slope, &distance)?)?;
        Ok(filled.into_value().unwrap_or(Value::Null))
    }
}

/// What [`Line::between`] computes, where it is all about doubles and ints: the same steps, without a look at all the types
/// that there are.
fn filled_plainly(
    from: &Evaluated<'_>,
    slope: &Evaluated<'_>,
    start: &Evaluated<'_>,
    place: &Evaluated<'_>,
) -> Option<f64> {
    let double = |value: &Evaluated<'_>| match value.raw()? {
        RawValue::Double(value) => Some(value),
        RawValue::Int32(value) => Some(f64::from(value)),
        _ => None,
    };
    let distance = match (start.raw()?, place.raw()?) {
        (RawValue::Int32(start), RawValue::Int32(place)) => (i64::from(place) - i64::from(start)) as f64,
        (RawValue::Double(start), RawValue::Double(place)) => place - start,
        _ => return None,
    };
    match slope.raw()? {
        RawValue::Double(slope) => Some(double(from)? + slope * distance),
        _ => None,
    }
}

fn number(point: &Point) -> Evaluated<'_> {
    point.value.as_ref().map(Value::as_raw).into()
}

impl Slide for Line {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.input.evaluate(env)?;
        let value = if value.is_nullish() { None } else { value.into_value() };
        let point = Point { place: self.by.evaluate(env.root).into_owned(), value };
        self.known += usize::from(point.value.is_some());
        self.bytes += point.bytes();
        self.points.push_back(point);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Err(Error::bug("a document leaves the frame of $linearFill"))
    }

    fn is_waiting(&self) -> bool {
        match self.points.front() {
            None => true,
            Some(point) => {
                point.value.is_none() && self.left.is_some() && self.ahead.is_none() && self.known == 0
            }
        }
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let Some(point) = self.points.pop_front() else { return Ok(Evaluated::NULL) };
        self.bytes -= point.bytes();
        self.known -= usize::from(point.value.is_some());
        let measured = |raw: RawValue<'_>| raw.is_number() || matches!(raw, RawValue::DateTime(_));
        if !point.place.raw().is_some_and(measured) {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!(
                    "Value of the sortBy field must be numeric or a date, but found {}",
                    point.place.type_name()
                ),
            ));
        }
        if self.last_place.as_ref().is_some_and(|last| last.compare(&point.place, None).is_eq()) {
            return Err(Error::location(6_050_106, "There can be no repeated values in the sort field"));
        }
        let value = match &point.value {
            None => {
                let filled = self.between(&point.place)?;
                self.last_place = Some(point.place);
                return Ok(Evaluated::Owned(filled));
            }
            Some(value) => value.clone(),
        };
        self.last_place = Some(point.place.clone());
        if Number::of(value.as_raw()).is_none() {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!(
                    "Value to be filled must be numeric or nullish, but found {}",
                    value.as_raw().element_type().name()
                ),
            ));
        }
        self.ahead = None;
        self.left = Some(point);
        Ok(value.into())
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
