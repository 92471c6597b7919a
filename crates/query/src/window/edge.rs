//! `$first` and `$last`: the value of the document at one end of the window. Nothing stays nothing, and an empty window
//! gives null.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::Value;
use kilim_error::Result;

use super::bounds::Frame;
use super::{Asked, Function, Parsed, Slide, failed};
use crate::accumulator::payload;
use crate::expression::{Bindings, Env, Evaluated, Expression};

#[derive(Debug)]
struct Edge {
    input: Arc<Expression>,
    last: bool,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    asked.check_others(|name| failed(format!("{} got unexpected argument: {name}", asked.name)))?;
    let bounds = asked.bounds()?;
    let input = Arc::new(asked.expression(asked.operand)?);
    let frame = bounds.frame();
    Ok((Arc::new(Edge { input, last: asked.name == "$last" }), Some(bounds), frame))
}

impl Function for Edge {
    fn begin(&self, frame: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        let input = self.input.clone();
        Ok(match self.last {
            true => Box::new(Last { input, len: 0, value: None }),
            false => Box::new(First { input, stays: frame.only_grows(), values: VecDeque::new(), bytes: 0 }),
        })
    }

    fn operand(&self) -> Value {
        self.input.to_value()
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.input]
    }
}

struct First {
    input: Arc<Expression>,
    /// The first document never leaves, so nothing behind it counts.
    stays: bool,
    values: VecDeque<Option<Value>>,
    bytes: usize,
}

impl Slide for First {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        if self.stays && !self.values.is_empty() {
            return Ok(());
        }
        let value = self.input.evaluate(env)?.into_value();
        self.bytes += bytes_of(&value);
        self.values.push_back(value);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(value) = self.values.pop_front() {
            self.bytes -= bytes_of(&value);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(self.values.front().map_or(Evaluated::NULL, shown))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

struct Last {
    input: Arc<Expression>,
    /// How many documents are in the frame.
    len: usize,
    value: Option<Value>,
}

impl Slide for Last {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        self.value = self.input.evaluate(env)?.into_value();
        self.len += 1;
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.len -= 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(if self.len == 0 { Evaluated::NULL } else { shown(&self.value) })
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.value)
    }
}

fn shown(value: &Option<Value>) -> Evaluated<'_> {
    value.as_ref().map(Value::as_raw).into()
}

fn bytes_of(value: &Option<Value>) -> usize {
    size_of::<Option<Value>>() + value.as_ref().map_or(0, |value| payload(value.as_raw()))
}
