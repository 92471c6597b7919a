//! `$min` and `$max` over a frame that values leave.
//!
//! A value that is worse than one behind it can never be the answer, so only those better than all behind them are
//! kept: the first of them is the answer. Of equal values mongod shows the oldest as the least and the newest as the
//! greatest.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{Value, compare_with};
use kilim_error::Result;

use super::Slide;
use crate::accumulator::{Accumulator, Kind, payload};
use crate::expression::{Env, Evaluated};

pub(super) struct SlidingExtreme {
    accumulator: Arc<Accumulator>,
    /// Values that may be the answer, with the place at which each came.
    best: VecDeque<(u64, Value)>,
    entered: u64,
    left: u64,
    bytes: usize,
}

impl SlidingExtreme {
    pub(super) fn new(accumulator: Arc<Accumulator>) -> SlidingExtreme {
        SlidingExtreme { accumulator, best: VecDeque::new(), entered: 0, left: 0, bytes: 0 }
    }

    /// Whether the newcomer, which compares so to a value before it, makes that one useless.
    fn is_useless(&self, newcomer: Ordering) -> bool {
        match self.accumulator.kind {
            Kind::Min => newcomer.is_lt(),
            _ => newcomer.is_ge(),
        }
    }
}

impl Slide for SlidingExtreme {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let accumulator = self.accumulator.clone();
        let value = accumulator.input.evaluate(env)?;
        let place = self.entered;
        self.entered += 1;
        if value.is_nullish() {
            return Ok(());
        }
        let raw = value.raw_or_null();
        while let Some((_, last)) = self.best.back()
            && self.is_useless(compare_with(raw, last.as_raw(), accumulator.collator()))
        {
            if let Some((_, gone)) = self.best.pop_back() {
                self.bytes -= payload(gone.as_raw());
            }
        }
        self.bytes += payload(raw);
        self.best.push_back((place, raw.to_value()));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some((_, gone)) = self.best.pop_front_if(|(place, _)| *place == self.left) {
            self.bytes -= payload(gone.as_raw());
        }
        self.left += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(self.best.front().map_or(Evaluated::NULL, |(_, value)| Evaluated::Raw(value.as_raw())))
    }

    fn bytes(&self) -> usize {
        self.bytes + self.best.len() * size_of::<(u64, Value)>()
    }
}
