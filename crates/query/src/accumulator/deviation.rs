//! `$stdDevPop` and `$stdDevSamp` in one pass: count, mean, and the sum of squared distances from it.
//!
//! Every number changes the mean by its share of the distance, which keeps the squares small and so
//! exact. Merging weighs the two means by their counts.

use kilim_bson::{RawValue, Value, array};

/// The state of a standard deviation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deviation {
    count: i64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl Deviation {
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        if distance != 0.0 {
            self.mean += distance / self.count as f64;
            self.squares += distance * (value - self.mean);
        }
    }

    pub fn merge(&mut self, other: Deviation) {
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        if distance != 0.0 && count > 0 {
            let (own, others) = (self.count as f64, other.count as f64);
            self.mean = (own * self.mean + others * other.mean) / count as f64;
            self.squares += distance * distance * (own * others / count as f64);
        }
        self.squares += other.squares;
        self.count = count;
    }

    /// The deviation of all there is; null of nothing.
    pub fn population(&self) -> RawValue<'static> {
        self.over(self.count)
    }

    /// The deviation of what this is a sample of; null of fewer than two.
    pub fn sample(&self) -> RawValue<'static> {
        self.over(self.count - 1)
    }

    fn over(&self, count: i64) -> RawValue<'static> {
        if count <= 0 { RawValue::Null } else { RawValue::Double((self.squares / count as f64).sqrt()) }
    }

    /// `[count, mean, squares]`.
    pub(super) fn to_value(self) -> Value {
        Value::Array(array![self.count, self.mean, self.squares])
    }

    pub(super) fn from_value(stored: RawValue<'_>) -> Option<Deviation> {
        let mut stored = stored.as_array()?.iter();
        match (stored.next()?, stored.next()?, stored.next()?) {
            (RawValue::Int64(count), RawValue::Double(mean), RawValue::Double(squares)) => {
                Some(Deviation { count, mean, squares })
            }
            _ => None,
        }
    }
}
