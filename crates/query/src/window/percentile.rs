//! `$median` and `$percentile` over a frame that numbers leave: all of them stand in order, so the answer is exact.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::Value;
use kilim_error::Result;

use super::Slide;
use crate::accumulator::{Accumulator, Number, percentile_rank};
use crate::expression::{Env, Evaluated};

pub(super) struct SlidingPercentile {
    accumulator: Arc<Accumulator>,
    /// Ascending.
    sorted: Vec<f64>,
    /// What each document of the frame gave; none for what is no number.
    numbers: VecDeque<Option<f64>>,
}

impl SlidingPercentile {
    pub(super) fn new(accumulator: Arc<Accumulator>) -> SlidingPercentile {
        SlidingPercentile { accumulator, sorted: Vec::new(), numbers: VecDeque::new() }
    }

    fn place(&self, number: f64) -> usize {
        self.sorted.partition_point(|other| other.total_cmp(&number).is_lt())
    }
}

impl Slide for SlidingPercentile {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.accumulator.input.evaluate(env)?;
        let number = Number::of_evaluated(&value).map(Number::to_f64).filter(|number| !number.is_nan());
        if let Some(number) = number {
            self.sorted.insert(self.place(number), number);
        }
        self.numbers.push_back(number);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(number)) = self.numbers.pop_front() {
            self.sorted.remove(self.place(number));
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let count = self.sorted.len() as i64;
        let at = |p: f64| match count {
            0 => Value::Null,
            _ => Value::Double(self.sorted[percentile_rank(count, p) as usize]),
        };
        Ok(match self.accumulator.percentiles() {
            Some(percentiles) => Value::Array(percentiles.iter().map(|p| at(*p)).collect()).into(),
            None => at(0.5).into(),
        })
    }

    fn bytes(&self) -> usize {
        self.numbers.len() * (size_of::<Option<f64>>() + size_of::<f64>())
    }
}
