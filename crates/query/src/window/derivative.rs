//! `$derivative`: the mean rate of change between the first and the last document of the window.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::bounds::{Frame, unit_of};
use super::{Asked, Function, Parsed, Slide, failed};
use crate::expression::arithmetic::{divide, multiply, subtract};
use crate::expression::date::{Measure, Unit};
use crate::expression::{Bindings, Dependencies, Env, Evaluated, Expression, FieldPath};

/// The operand of `$derivative` and `$integral`.
#[derive(Debug)]
pub(super) struct Rate {
    pub input: Arc<Expression>,
    pub unit: Option<Unit>,
    pub by: FieldPath,
}

impl Rate {
    pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Rate> {
        let name = asked.name;
        if asked.sort.is_none() {
            return Err(failed(format!("{name} requires a sortBy")));
        }
        let by =
            asked.sort_path().ok_or_else(|| failed(format!("{name} requires a non-compound sortBy")))??;
        let RawValue::Document(operand) = asked.operand else {
            return Err(failed(format!(
                "{name} expects an object, but got a {}: {}",
                asked.operand.element_type().name(),
                crate::text::element(name, asked.operand)
            )));
        };
        let unexpected = |argument: &str| failed(format!("{name} got unexpected argument: {argument}"));
        if let Some((unknown, _)) = operand.iter().find(|(field, _)| !matches!(*field, "input" | "unit")) {
            return Err(unexpected(unknown));
        }
        let input = operand.get("input").map(|input| asked.expression(input)).transpose()?;
        let unit = unit_of(operand)?;
        let input = input.ok_or_else(|| failed(format!("{name} requires an 'input' expression")))?;
        asked.check_others(unexpected)?;
        Ok(Rate { input: Arc::new(input), unit, by })
    }

    pub(super) fn operand(&self) -> Value {
        let mut operand = Document::new();
        operand.push("input", self.input.to_value());
        if let Some(unit) = self.unit {
            operand.push("unit", unit.name());
        }
        Value::Document(operand)
    }
}

/// The milliseconds of a unit that is a week or less.
pub(super) fn millis_of(unit: Unit) -> i64 {
    const DAY: i64 = 86_400_000;
    match unit.measure() {
        Measure::Millis(millis) => millis,
        Measure::Days(days) => days * DAY,
        // Refused when it was parsed.
        Measure::Months(months) => months * 30 * DAY,
    }
}

#[derive(Debug)]
struct Derivative(Arc<Rate>);

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    let rate = Rate::parse(asked)?;
    if !asked.has_window() {
        return Err(failed("$derivative requires explicit window bounds"));
    }
    let bounds = asked.bounds()?;
    let frame = bounds.frame();
    Ok((Arc::new(Derivative(Arc::new(rate))), Some(bounds), frame))
}

impl Function for Derivative {
    fn begin(&self, frame: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        Ok(Box::new(Slope { rate: self.0.clone(), stays: frame.only_grows(), points: VecDeque::new() }))
    }

    fn operand(&self) -> Value {
        self.0.operand()
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.0.input]
    }

    fn dependencies(&self, needed: &mut Dependencies) {
        needed.field(self.0.by.as_str());
    }
}

struct Point {
    at: Evaluated<'static>,
    value: Evaluated<'static>,
}

struct Slope {
    rate: Arc<Rate>,
    /// The first document never leaves, so those between it and the last do not count.
    stays: bool,
    points: VecDeque<Point>,
}

impl Slope {
    fn check(&self, at: &Evaluated<'_>) -> Result<()> {
        let date = matches!(at.raw(), Some(RawValue::DateTime(_)));
        match self.rate.unit {
            Some(_) if !date => Err(Error::location(
                5_624_900,
                "$derivative with 'unit' expects the sortBy field to be a Date",
            )),
            None if date => {
                Err(Error::location(5_624_901, "$derivative where the sortBy is a Date requires an 'unit'"))
            }
            None if !at.raw().is_some_and(RawValue::is_number) => Err(Error::location(
                5_624_902,
                "$derivative (with no 'unit') expects the sortBy field to be numeric",
            )),
            _ => Ok(()),
        }
    }
}

impl Slide for Slope {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let at = self.rate.by.evaluate(env.root).into_owned();
        let value = self.rate.input.evaluate(env)?.into_owned();
        if self.stays && self.points.len() > 1 {
            self.points.pop_back();
        }
        self.points.push_back(Point { at, value });
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.points.pop_front();
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let (Some(first), Some(last)) = (self.points.front(), self.points.back()) else {
            return Ok(Evaluated::NULL);
        };
        self.check(&first.at)?;
        self.check(&last.at)?;
        if first.value.is_nullish() || last.value.is_nullish() {
            return Err(Error::location(5_624_903, "$derivative input must not be null or missing"));
        }
        let rise = subtract(&last.value, &first.value)?;
        let run = subtract(&last.at, &first.at)?;
        if run.raw().is_some_and(|run| kilim_bson::compare(run, RawValue::Int32(0)).is_eq()) {
            return Ok(Evaluated::NULL);
        }
        let slope = divide(&rise, &run)?;
        match self.rate.unit {
            None => Ok(slope.into_owned()),
            Some(unit) => Ok(multiply(&slope, &millis_of(unit).into())?.into_owned()),
        }
    }

    fn bytes(&self) -> usize {
        self.points.len() * size_of::<Point>()
    }
}
