//! `$stdDevPop` and `$stdDevSamp` over a frame that numbers leave.
//!
//! A number that comes or goes changes the sum of squared distances by its share of the distance from the mean, so
//! nothing is computed anew. What is not finite makes the value null while it is in the frame; mongod counts it all the
//! same, and so does this.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_error::Result;

use super::Slide;
use crate::accumulator::{Accumulator, DoubleDouble, Kind, Number};
use crate::expression::{Env, Evaluated};

pub(super) struct SlidingDeviation {
    accumulator: Arc<Accumulator>,
    numbers: VecDeque<Option<f64>>,
    count: i64,
    not_finite: i64,
    sum: DoubleDouble,
    /// Sum of the squared distances from the mean.
    squares: DoubleDouble,
}

impl SlidingDeviation {
    pub(super) fn new(accumulator: Arc<Accumulator>) -> SlidingDeviation {
        SlidingDeviation {
            accumulator,
            numbers: VecDeque::new(),
            count: 0,
            not_finite: 0,
            sum: DoubleDouble::default(),
            squares: DoubleDouble::default(),
        }
    }

    fn change(&mut self, value: f64, by: i64) {
        if !value.is_finite() {
            self.count += by;
            self.not_finite += by;
            return;
        }
        let before = self.count;
        let distance = before as f64 * value - self.sum.to_f64();
        self.count += by;
        self.sum.add_double(value * by as f64);
        if self.count == 0 {
            self.squares = DoubleDouble::default();
        } else if before != 0 {
            self.squares.add_double(distance * distance * by as f64 / (self.count as f64 * before as f64));
        }
    }
}

impl Slide for SlidingDeviation {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = Number::of_evaluated(&self.accumulator.input.evaluate(env)?).map(Number::to_f64);
        if let Some(value) = value {
            self.change(value, 1);
        }
        self.numbers.push_back(value);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(value)) = self.numbers.pop_front() {
            self.change(value, -1);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let sample = self.accumulator.kind == Kind::StdDevSamp;
        let over = if sample { self.count - 1 } else { self.count };
        if self.not_finite > 0 || over == 0 {
            return Ok(Evaluated::NULL);
        }
        let squares = self.squares.to_f64();
        // Rounding can leave a little less than nothing, and what was not finite and is gone leaves more.
        if squares < 0.0 || !sample && self.count == 1 {
            self.squares = DoubleDouble::default();
            return Ok(0.into());
        }
        Ok((squares / over as f64).sqrt().into())
    }

    fn bytes(&self) -> usize {
        self.numbers.len() * size_of::<Option<f64>>()
    }
}
