//! `$shift`: the value of the document some places before or behind, or a default at the ends of the partition.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::Result;

use super::bounds::Frame;
use super::{Asked, Function, Parsed, Slide, failed, unknown_argument};
use crate::accumulator::payload;
use crate::expression::{Bindings, Env, Evaluated, Expression};
use crate::filter::number::exact_i64;
use crate::text;

#[derive(Debug)]
struct Shift {
    output: Arc<Expression>,
    by: i32,
    /// What stands outside of the partition.
    outside: Option<Value>,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    if asked.sort.is_none() {
        return Err(failed("'$shift' requires a sortBy"));
    }
    if asked.has_window() {
        return Err(failed("$shift does not accept a 'window' field"));
    }
    asked.check_others(unknown_argument)?;
    let RawValue::Document(operand) = asked.operand else {
        return Err(failed("Argument to $shift must be an object"));
    };
    let (mut output, mut by, mut outside) = (None, None, None);
    for (name, value) in operand {
        match name {
            "output" => output = Some(asked.expression(value)?),
            "by" => {
                let whole = exact_i64(value).and_then(|by| i32::try_from(by).ok());
                let refuse = || {
                    let found = text::element(name, value);
                    failed(format!("'$shift:by' field must be an integer, but found  {found}"))
                };
                by = Some(whole.ok_or_else(refuse)?);
            }
            "default" => {
                let expression = asked.expression(value)?;
                let constant = expression.as_constant().cloned();
                outside = Some(
                    constant
                        .ok_or_else(|| failed("'$shift:default' expression must yield a constant value."))?,
                );
            }
            _ => return Err(failed("Unknown argument in $shift")),
        }
    }
    let output = output.ok_or_else(|| failed("$shift requires an 'output' expression."))?;
    let by = by.ok_or_else(|| failed("$shift requires 'by' as an integer value."))?;
    let place = Some(i64::from(by));
    let shift = Shift { output: Arc::new(output), by, outside };
    Ok((Arc::new(shift), None, Frame::Documents { lower: place, upper: place }))
}

impl Function for Shift {
    fn begin(&self, _: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        let outside = self.outside.clone().unwrap_or(Value::Null);
        Ok(Box::new(Shifted { output: self.output.clone(), outside, values: VecDeque::new(), bytes: 0 }))
    }

    fn operand(&self) -> Value {
        let mut operand = Document::new();
        operand.push("by", self.by);
        operand.push("output", self.output.to_value());
        operand.push("default", self.outside.clone().unwrap_or(Value::Null));
        Value::Document(operand)
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.output]
    }
}

struct Shifted {
    output: Arc<Expression>,
    outside: Value,
    /// The one value of the frame, and the next one while it comes.
    values: VecDeque<Option<Value>>,
    bytes: usize,
}

impl Slide for Shifted {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.output.evaluate(env)?.into_value();
        self.bytes = value.as_ref().map_or(0, |value| payload(value.as_raw()));
        self.values.push_back(value);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.values.pop_front();
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(match self.values.front() {
            Some(value) => value.as_ref().map(Value::as_raw).into(),
            None => Evaluated::Raw(self.outside.as_raw()),
        })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
