//! `$covariancePop` and `$covarianceSamp`: how two numbers vary together over the window.
//!
//! A pair that comes or goes changes the sum of products by its distance from the one mean without it and from the
//! other mean with it, so nothing is computed anew.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::Result;

use super::bounds::Frame;
use super::sum::RemovableSum;
use super::{Asked, Function, Parsed, Slide, unknown_argument};
use crate::accumulator::Number;
use crate::expression::arithmetic::{divide, multiply, subtract};
use crate::expression::{Bindings, Env, Evaluated, Expression};

#[derive(Debug)]
struct Covariance {
    input: Arc<Expression>,
    sample: bool,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    asked.check_others(unknown_argument)?;
    let bounds = asked.bounds()?;
    let input = Arc::new(asked.expression(asked.operand)?);
    let frame = bounds.frame();
    let covariance = Covariance { input, sample: asked.name == "$covarianceSamp" };
    Ok((Arc::new(covariance), Some(bounds), frame))
}

impl Function for Covariance {
    fn begin(&self, frame: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        Ok(Box::new(Together {
            input: self.input.clone(),
            sample: self.sample,
            stays: frame.only_grows(),
            pairs: VecDeque::new(),
            count: 0,
            specials: 0,
            left: RemovableSum::default(),
            right: RemovableSum::default(),
            products: RemovableSum::default(),
        }))
    }

    fn operand(&self) -> Value {
        self.input.to_value()
    }

    fn expressions(&self) -> Vec<&Expression> {
        vec![&self.input]
    }
}

type Pair = (Number, Number);

struct Together {
    input: Arc<Expression>,
    sample: bool,
    /// No document leaves, so pairs are not kept.
    stays: bool,
    pairs: VecDeque<Option<Pair>>,
    /// Pairs of which both are finite.
    count: i64,
    /// Pairs of which one is not.
    specials: i64,
    left: RemovableSum,
    right: RemovableSum,
    /// Products of distances, and what is not finite.
    products: RemovableSum,
}

fn is_finite(number: Number) -> bool {
    match number {
        Number::Double(value) => value.is_finite(),
        Number::Decimal(value) => !value.is_nan() && !value.is_infinite(),
        Number::Int(_) | Number::Long(_) => true,
    }
}

fn difference(left: Number, right: Evaluated<'_>) -> Result<Evaluated<'static>> {
    Ok(subtract(&left.into(), &right)?.into_owned())
}

impl Together {
    /// The mean of a sum; zero of nothing.
    fn mean(&self, sum: &RemovableSum) -> Result<Evaluated<'static>> {
        match self.count {
            0 => Ok(0.into()),
            count => Ok(divide(&sum.total().into(), &(count as f64).into())?.into_owned()),
        }
    }

    fn special(&mut self, (left, right): Pair, by: i64) -> bool {
        if is_finite(left) && is_finite(right) {
            return false;
        }
        self.specials += by;
        for number in [left, right].into_iter().filter(|number| !is_finite(*number)) {
            if by > 0 { self.products.add(number) } else { self.products.remove(number) }
        }
        true
    }

    fn add(&mut self, pair: Pair) -> Result<()> {
        if self.special(pair, 1) {
            return Ok(());
        }
        let (left, right) = pair;
        let from_left = difference(left, self.mean(&self.left)?)?;
        self.count += 1;
        self.left.add(left);
        self.right.add(right);
        let from_right = difference(right, self.mean(&self.right)?)?;
        if let Some(product) = Number::of_evaluated(&multiply(&from_left, &from_right)?) {
            self.products.add(product);
        }
        Ok(())
    }

    fn remove(&mut self, pair: Pair) -> Result<()> {
        if self.special(pair, -1) {
            return Ok(());
        }
        let (left, right) = pair;
        let from_right = difference(right, self.mean(&self.right)?)?;
        self.count -= 1;
        self.left.remove(left);
        self.right.remove(right);
        let from_left = difference(left, self.mean(&self.left)?)?;
        if let Some(product) = Number::of_evaluated(&multiply(&from_left, &from_right)?) {
            self.products.remove(product);
        }
        // Nothing is left that rounding could have left something of.
        if self.count == 0 {
            self.products = RemovableSum::default();
        }
        Ok(())
    }
}

impl Slide for Together {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let input = self.input.clone();
        let value = input.evaluate(env)?;
        let mut elements = value.as_array().into_iter().flat_map(|array| array.iter());
        let pair = match (elements.next(), elements.next(), elements.next()) {
            (Some(left), Some(right), None) => both(left, right),
            _ => None,
        };
        if let Some(pair) = pair {
            self.add(pair)?;
        }
        if !self.stays {
            self.pairs.push_back(pair);
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        match self.pairs.pop_front() {
            Some(Some(pair)) => self.remove(pair),
            _ => Ok(()),
        }
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let over = if self.sample { self.count - 1 } else { self.count };
        if over <= 0 {
            return Ok(Evaluated::NULL);
        }
        // One pair varies with nothing, whatever else is in the frame.
        if self.count == 1 {
            return Ok(0.0.into());
        }
        if self.specials > 0 {
            return Ok(self.products.total().into());
        }
        Ok(divide(&self.products.total().into(), &(over as f64).into())?.into_owned())
    }

    fn bytes(&self) -> usize {
        self.pairs.len() * size_of::<Option<Pair>>()
    }
}

fn both(left: RawValue<'_>, right: RawValue<'_>) -> Option<Pair> {
    Some((Number::of(left)?, Number::of(right)?))
}
