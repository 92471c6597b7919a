//! `$integral`: the area under the curve over the window, by trapezoids between neighbours.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use super::bounds::Frame;
use super::derivative::{Rate, millis_of};
use super::sum::RemovableSum;
use super::{Asked, Function, Parsed, Slide};
use crate::accumulator::Number;
use crate::expression::arithmetic::{add, divide, multiply, subtract};
use crate::expression::{Bindings, Dependencies, Env, Evaluated, Expression};

#[derive(Debug)]
struct Integral(Arc<Rate>);

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    let rate = Rate::parse(asked)?;
    let bounds = asked.bounds()?;
    let frame = bounds.frame();
    Ok((Arc::new(Integral(Arc::new(rate))), Some(bounds), frame))
}

impl Function for Integral {
    fn begin(&self, frame: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        Ok(Box::new(Area {
            rate: self.0.clone(),
            stays: frame.only_grows(),
            points: VecDeque::new(),
            len: 0,
            nans: 0,
            sum: RemovableSum::default(),
        }))
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

#[derive(Clone, Copy)]
struct Point {
    /// A number, or milliseconds.
    at: Number,
    value: Number,
}

struct Area {
    rate: Arc<Rate>,
    /// No document leaves, so only the last one is kept.
    stays: bool,
    points: VecDeque<Point>,
    len: usize,
    /// How many documents of the frame have something that is not a number in them.
    nans: usize,
    sum: RemovableSum,
}

fn is_nan(point: &Point) -> bool {
    point.at.is_nan() || point.value.is_nan()
}

/// The area between two neighbours; none where it is not a number.
fn trapezoid(left: &Point, right: &Point) -> Result<Option<Number>> {
    if is_nan(left) || is_nan(right) {
        return Ok(None);
    }
    let both = add(&left.value.into(), &right.value.into())?;
    let width = subtract(&right.at.into(), &left.at.into())?;
    // By a double, which shows in the digits of a decimal.
    Ok(Number::of_evaluated(&divide(&multiply(&both, &width)?, &2.0.into())?))
}

impl Area {
    fn point(&self, env: &Env<'_>) -> Result<Point> {
        let at = self.rate.by.evaluate(env.root);
        let value = self.rate.input.evaluate(env)?;
        let measured = match at.raw() {
            Some(RawValue::DateTime(millis)) => Some((Number::Long(millis), true)),
            raw => raw.and_then(Number::of).map(|number| (number, false)),
        };
        let (Some((at, date)), Some(value)) = (measured, Number::of_evaluated(&value)) else {
            return Err(Error::location(
                5_423_900,
                "The input value of $integral window function must be a vector of 2 value, the first value must be \
                 numeric or date type and the second must be numeric.",
            ));
        };
        match (self.rate.unit, date) {
            (Some(_), false) => {
                Err(Error::location(5_423_901, "$integral with 'unit' expects the sortBy field to be a Date"))
            }
            (None, true) => Err(Error::location(
                5_423_902,
                "$integral (with no 'unit') expects the sortBy field to be numeric",
            )),
            _ => Ok(Point { at, value }),
        }
    }
}

impl Slide for Area {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let point = self.point(env)?;
        if let Some(last) = self.points.back()
            && let Some(area) = trapezoid(last, &point)?
        {
            self.sum.add(area);
        }
        if self.stays {
            self.points.pop_back();
        }
        self.nans += usize::from(is_nan(&point));
        self.len += 1;
        self.points.push_back(point);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some(first) = self.points.pop_front() else { return Ok(()) };
        self.len -= 1;
        self.nans -= usize::from(is_nan(&first));
        if let Some(next) = self.points.front()
            && let Some(area) = trapezoid(&first, next)?
        {
            self.sum.remove(area);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        if self.len == 0 {
            return Ok(Evaluated::NULL);
        }
        if self.nans > 0 {
            return Ok(f64::NAN.into());
        }
        let total: Evaluated<'_> = self.sum.total().into();
        match self.rate.unit {
            None => Ok(total),
            Some(unit) => Ok(divide(&total, &millis_of(unit).into())?.into_owned()),
        }
    }

    fn bytes(&self) -> usize {
        self.points.len() * size_of::<Point>()
    }
}
