//! `$sum` and `$avg` over a frame that numbers leave.
//!
//! A number leaves by adding its opposite to a sum of two doubles. What is not finite is counted instead, and so are
//! doubles and decimals, because the total is only as wide as what is still in the frame.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::Decimal128;
use kilim_error::Result;

use super::Slide;
use crate::accumulator::{Accumulator, Kind, Number, Summation};
use crate::expression::{Env, Evaluated};

/// A sum that numbers can be taken out of.
#[derive(Debug, Clone, Default)]
pub(super) struct RemovableSum {
    sum: Summation,
    decimals: i64,
    doubles: i64,
    nans: i64,
    infinities: i64,
    negative_infinities: i64,
}

impl RemovableSum {
    pub(super) fn add(&mut self, number: Number) {
        self.change(number, 1);
    }

    pub(super) fn remove(&mut self, number: Number) {
        self.change(number, -1);
    }

    fn change(&mut self, number: Number, by: i64) {
        match number {
            // An int is one step of the sum and a long is two, which shows in what rounding leaves.
            Number::Int(value) => {
                let signed = i64::from(value) * by;
                self.sum.add(i32::try_from(signed).map_or(Number::Long(signed), Number::Int));
            }
            Number::Long(i64::MIN) if by < 0 => {
                self.sum.add(Number::Long(i64::MAX));
                self.sum.add(Number::Long(1));
            }
            Number::Long(value) => self.sum.add(Number::Long(value * by)),
            Number::Double(value) => {
                self.doubles += by;
                if value.is_finite() {
                    self.sum.add(Number::Double(if by < 0 { -value } else { value }));
                } else {
                    self.count_special(value, by);
                }
            }
            Number::Decimal(value) => {
                self.decimals += by;
                if value.is_nan() || value.is_infinite() {
                    self.count_special(value.to_f64(), by);
                } else {
                    self.sum.add(Number::Decimal(if by < 0 { value.negate() } else { value }));
                }
            }
        }
    }

    fn count_special(&mut self, value: f64, by: i64) {
        match value {
            value if value.is_nan() => self.nans += by,
            f64::INFINITY => self.infinities += by,
            _ => self.negative_infinities += by,
        }
    }

    fn special(&self) -> Option<f64> {
        match (self.nans, self.infinities, self.negative_infinities) {
            (0, 0, 0) => None,
            (0, 1.., 0) => Some(f64::INFINITY),
            (0, 0, 1..) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    pub(super) fn total(&self) -> Number {
        match self.special() {
            Some(special) if self.decimals > 0 => Number::Decimal(Decimal128::from_f64(special)),
            Some(special) => Number::Double(special),
            None => self.narrowed(),
        }
    }

    /// The sum in the widest type that is still in the frame. What is wider has left, but the sum was kept in it, so it
    /// is converted, as on mongod.
    fn narrowed(&self) -> Number {
        const LONG_LIMIT: f64 = 9_223_372_036_854_775_808.0;
        let total = match self.sum.total() {
            Number::Decimal(total) if self.decimals == 0 => Number::Double(total.to_f64()),
            total => total,
        };
        match total {
            Number::Double(total) if self.doubles == 0 && (-LONG_LIMIT..LONG_LIMIT).contains(&total) => {
                Number::int_or_long(total as i64)
            }
            Number::Long(total) => Number::int_or_long(total),
            total => total,
        }
    }
}

pub(super) struct SlidingSum {
    accumulator: Arc<Accumulator>,
    sum: RemovableSum,
    /// What each document of the frame gave; none for what is no number.
    numbers: VecDeque<Option<Number>>,
    /// How many of them are numbers.
    count: i64,
}

impl SlidingSum {
    pub(super) fn new(accumulator: Arc<Accumulator>) -> SlidingSum {
        SlidingSum { accumulator, sum: RemovableSum::default(), numbers: VecDeque::new(), count: 0 }
    }
}

impl Slide for SlidingSum {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let number = Number::of_evaluated(&self.accumulator.input.evaluate(env)?);
        if let Some(number) = number {
            self.sum.add(number);
            self.count += 1;
        }
        self.numbers.push_back(number);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(number)) = self.numbers.pop_front() {
            self.sum.remove(number);
            self.count -= 1;
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let total = self.sum.total();
        Ok(match (self.accumulator.kind, total) {
            (Kind::Sum, total) => total.into(),
            _ if self.count == 0 => Evaluated::NULL,
            (_, Number::Decimal(total)) => total.divide(Decimal128::from(self.count)).into(),
            (_, total) => (total.to_f64() / self.count as f64).into(),
        })
    }

    fn bytes(&self) -> usize {
        self.numbers.len() * size_of::<Option<Number>>()
    }
}
