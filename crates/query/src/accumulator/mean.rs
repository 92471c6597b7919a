//! `$avg`: a sum and how many numbers went into it.

use kilim_bson::{Decimal128, RawValue, Value};

use super::{Number, Summation};

/// The state of a mean. Mergeable and storable: whoever keeps it can take numbers in later.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    pub sum: Summation,
    pub count: i64,
}

impl Mean {
    pub fn new() -> Mean {
        Mean { sum: Summation::new(), count: 0 }
    }

    #[inline]
    pub fn add(&mut self, number: Number) {
        self.sum.add(number);
        self.count += 1;
    }

    pub fn merge(&mut self, other: Mean) {
        self.sum.merge(other.sum);
        self.count += other.count;
    }

    /// Null of no numbers, a decimal if one was among them, else a double.
    pub fn result(&self) -> RawValue<'static> {
        if self.count == 0 {
            RawValue::Null
        } else if self.sum.is_decimal() {
            RawValue::Decimal128(self.sum.to_decimal().divide(Decimal128::from(self.count)))
        } else {
            // A sum of whole numbers is exact, also where large ones cancel each other.
            let sum = match self.sum.total() {
                Number::Int(sum) => f64::from(sum),
                Number::Long(sum) => sum as f64,
                _ => self.sum.binary().to_f64(),
            };
            RawValue::Double(sum / self.count as f64)
        }
    }

    /// `[sum, count]`.
    pub(super) fn to_value(self) -> Value {
        Value::Array(kilim_bson::array![self.sum.to_array(), self.count])
    }

    pub(super) fn from_value(stored: RawValue<'_>) -> Option<Mean> {
        let mut stored = stored.as_array()?.iter();
        let sum = Summation::from_array(stored.next()?)?;
        match stored.next()? {
            RawValue::Int64(count) => Some(Mean { sum, count }),
            _ => None,
        }
    }
}

impl Default for Mean {
    fn default() -> Mean {
        Mean::new()
    }
}
