//! `$expMovingAvg`: each number counts for a share, what was before it for the rest.
//!
//! mongod computes in decimals whatever the numbers are, and gives a double where no decimal came. So does this, or the
//! last digits would differ.

use std::sync::Arc;

use kilim_bson::{Decimal128, Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::bounds::Frame;
use super::{Asked, Function, Parsed, Slide, failed};
use crate::accumulator::Number;
use crate::expression::{Bindings, Env, Evaluated, Expression};
use crate::filter::number::exact_i64;
use crate::text;

#[derive(Debug)]
struct ExpMovingAvg {
    input: Arc<Expression>,
    weight: Weight,
}

#[derive(Debug, Clone, Copy)]
enum Weight {
    /// About so many documents count.
    N(i64),
    Alpha(Decimal128),
}

const ARGUMENTS: &str = "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' \
                         field or an 'alpha' field";

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    if asked.sort.is_none() {
        return Err(failed("$expMovingAvg requires an explicit 'sortBy'"));
    }
    let RawValue::Document(operand) = asked.operand else {
        return Err(failed("$expMovingAvg must have exactly one argument that is an object"));
    };
    if asked.description.iter().nth(1).is_some() {
        return Err(failed("$expMovingAvg must have exactly one argument that is an object"));
    }
    let (mut input, mut weight) = (None, None);
    for (name, value) in operand {
        match name {
            "input" => input = Some(asked.expression(value)?),
            "N" if weight.is_none() => weight = Some(Weight::N(parse_n(value)?)),
            "alpha" if weight.is_none() => weight = Some(Weight::Alpha(parse_alpha(value)?)),
            _ => return Err(failed(ARGUMENTS)),
        }
    }
    let (Some(input), Some(weight)) = (input, weight) else { return Err(failed(ARGUMENTS)) };
    Ok((Arc::new(ExpMovingAvg { input: Arc::new(input), weight }), None, Frame::UP_TO_CURRENT))
}

fn parse_n(value: RawValue<'_>) -> Result<i64> {
    if !value.is_number() {
        let found = value.element_type().name();
        return Err(failed(format!("'N' field must be an integer, but found type {found}")));
    }
    let n = exact_i64(value).ok_or_else(|| {
        failed(format!(
            "'N' field must be an integer, but found  {}. To use a non-integer, use the 'alpha' argument instead",
            text::element("N", value)
        ))
    })?;
    if n <= 0 {
        return Err(failed(format!("'N' must be greater than zero. Got {n}")));
    }
    Ok(n)
}

fn parse_alpha(value: RawValue<'_>) -> Result<Decimal128> {
    let number = Number::of(value).ok_or_else(|| failed("'alpha' must be a number"))?;
    let alpha = number.to_decimal();
    let (zero, one) = (Decimal128::ZERO, Decimal128::from(1));
    if alpha.is_nan() || alpha.compare(zero).is_le() || alpha.compare(one).is_ge() {
        let found = text::element("alpha", value);
        return Err(failed(format!("'alpha' must be between 0 and 1 (exclusive), found {found}")));
    }
    Ok(alpha)
}

impl Function for ExpMovingAvg {
    fn begin(&self, _: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        let alpha = match self.weight {
            Weight::N(n) => Decimal128::from(2).divide(Decimal128::from(n).add(Decimal128::from(1))),
            Weight::Alpha(alpha) => alpha,
        };
        Ok(Box::new(Average { input: self.input.clone(), alpha, average: None, decimal: false }))
    }

    fn operand(&self) -> Value {
        let mut operand = Document::new();
        match self.weight {
            Weight::N(n) => operand.push("N", n),
            Weight::Alpha(alpha) => operand.push("alpha", alpha),
        }
        operand.push("input", self.input.to_value());
        Value::Document(operand)
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.input]
    }
}

struct Average {
    input: Arc<Expression>,
    alpha: Decimal128,
    average: Option<Decimal128>,
    /// A decimal came, so the rest are decimals.
    decimal: bool,
}

impl Slide for Average {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let Some(number) = Number::of_evaluated(&self.input.evaluate(env)?) else { return Ok(()) };
        self.decimal |= matches!(number, Number::Decimal(_));
        let value = number.to_decimal();
        self.average = Some(match self.average {
            None => value,
            Some(average) => {
                let rest = Decimal128::from(1).subtract(self.alpha);
                value.multiply(self.alpha).add(average.multiply(rest))
            }
        });
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Err(Error::bug("a document leaves the frame of a moving average"))
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(match self.average {
            None => Evaluated::NULL,
            Some(average) if self.decimal => average.into(),
            Some(average) => average.to_f64().into(),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Average>()
    }
}
