//! Sums that do not depend on the order of what is added, nearly.
//!
//! Ints, longs and doubles go into a sum of two doubles, the second holding what rounding took from the
//! first, so about 106 bits are kept. Decimals have a sum of their own. `$add`, `$sum` and `$avg` share it.
//!
//! Invariant: each step rounds as mongod's does, so the same numbers in the same order give the same bits.

use kilim_bson::{Array, Decimal128, RawValue, array};

use super::number::Number;

/// A sum with what it lost by rounding beside it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DoubleDouble {
    sum: f64,
    lost: f64,
    /// The plain sum: says which infinity or NaN it is once `sum` is NaN.
    special: f64,
}

/// A sum of numbers of any type, as wide as the widest of them.
#[derive(Debug, Clone, Copy)]
pub struct Summation {
    binary: DoubleDouble,
    decimal: Decimal128,
    widest: Widest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Widest {
    Int,
    Long,
    Double,
    Decimal,
}

const LONG_LIMIT: f64 = 9_223_372_036_854_775_808.0;

impl DoubleDouble {
    #[inline]
    pub fn add_double(&mut self, value: f64) {
        self.special += value;
        // What was lost joins the newcomer first, so that both are seen by the sum. This step is exact only
        // where the newcomer is the larger; mongod's is too.
        let (value, lost) = quick_two_sum(value, self.lost);
        let (sum, rest) = two_sum(self.sum, value);
        self.sum = sum;
        self.lost = rest + lost;
    }

    pub fn add_long(&mut self, value: i64) {
        // Halves of 32 bits are exact as doubles.
        let high = value / (1 << 32) * (1 << 32);
        self.add_double((value - high) as f64);
        self.add_double(high as f64);
    }

    pub fn to_f64(self) -> f64 {
        if self.sum.is_nan() { self.special } else { self.sum }
    }

    /// Both parts with all their digits.
    pub fn to_decimal(self) -> Decimal128 {
        if !self.sum.is_finite() {
            return Decimal128::from_f64(self.special);
        }
        Decimal128::from_f64_all_digits(self.sum).add(Decimal128::from_f64_all_digits(self.lost))
    }

    /// Takes in what another has summed.
    pub fn merge(&mut self, other: DoubleDouble) {
        let special = self.special + other.special;
        self.add_double(other.sum);
        self.add_double(other.lost);
        self.special = special;
    }

    /// The sum and what it lost.
    pub fn parts(self) -> (f64, f64) {
        if self.sum.is_nan() { (self.special, 0.0) } else { (self.sum, self.lost) }
    }

    /// None where the sum is outside of a long.
    pub fn to_i64(self) -> Option<i64> {
        let DoubleDouble { sum, lost, .. } = self;
        if sum == LONG_LIMIT {
            // Only just too large: what was lost may bring it back.
            return (lost < 0.0).then(|| round_half_away(lost).wrapping_sub(i64::MIN));
        }
        let fits = sum > -LONG_LIMIT && sum < LONG_LIMIT || sum == -LONG_LIMIT && lost >= 0.0;
        fits.then(|| {
            let whole = round_half_away(sum);
            whole.wrapping_add(round_half_away((sum - whole as f64) + lost))
        })
    }
}

impl Default for Summation {
    fn default() -> Summation {
        Summation::new()
    }
}

impl Summation {
    pub fn new() -> Summation {
        Summation { binary: DoubleDouble::default(), decimal: Decimal128::ZERO, widest: Widest::Int }
    }

    #[inline]
    pub fn add(&mut self, number: Number) {
        let width = match number {
            Number::Int(value) => {
                self.binary.add_double(f64::from(value));
                return;
            }
            Number::Long(value) => {
                self.binary.add_long(value);
                Widest::Long
            }
            Number::Double(value) => {
                self.binary.add_double(value);
                Widest::Double
            }
            Number::Decimal(value) => {
                self.decimal = self.decimal.add(value);
                Widest::Decimal
            }
        };
        self.widest = self.widest.max(width);
    }

    /// Takes in what another has summed.
    pub fn merge(&mut self, other: Summation) {
        self.binary.merge(other.binary);
        if other.widest == Widest::Decimal {
            self.decimal = self.decimal.add(other.decimal);
        }
        self.widest = self.widest.max(other.widest);
    }

    /// All of it, to be stored: `[widest type, sum, lost, plain sum, decimal sum]`.
    pub fn to_array(&self) -> Array {
        let DoubleDouble { sum, lost, special } = self.binary;
        array![self.widest as i32, sum, lost, special, self.decimal]
    }

    /// What [`Summation::to_array`] stored; none if this is something else.
    pub fn from_array(stored: RawValue<'_>) -> Option<Summation> {
        let mut stored = stored.as_array()?.iter();
        let double = |value| match value {
            Some(RawValue::Double(value)) => Some(value),
            _ => None,
        };
        let widest = match stored.next()? {
            RawValue::Int32(0) => Widest::Int,
            RawValue::Int32(1) => Widest::Long,
            RawValue::Int32(2) => Widest::Double,
            RawValue::Int32(3) => Widest::Decimal,
            _ => return None,
        };
        let (sum, lost) = (double(stored.next())?, double(stored.next())?);
        let binary = DoubleDouble { sum, lost, special: double(stored.next())? };
        match stored.next()? {
            RawValue::Decimal128(decimal) => Some(Summation { binary, decimal, widest }),
            _ => None,
        }
    }

    /// Milliseconds of a date, which widen nothing.
    pub fn add_date(&mut self, millis: i64) {
        self.binary.add_long(millis);
    }

    pub fn is_decimal(&self) -> bool {
        self.widest == Widest::Decimal
    }

    pub fn binary(&self) -> DoubleDouble {
        self.binary
    }

    pub fn to_decimal(&self) -> Decimal128 {
        self.decimal.add(self.binary.to_decimal())
    }

    /// As narrow as the operands allow: ints give a long where they must, longs a double.
    pub fn total(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.to_decimal()),
            Widest::Double => Number::Double(self.binary.to_f64()),
            whole => match self.binary.to_i64() {
                Some(value) if whole == Widest::Int => Number::int_or_long(value),
                Some(value) => Number::Long(value),
                None => Number::Double(self.binary.to_f64()),
            },
        }
    }
}

/// A rounded sum, and what rounding took from it: exactly, if the left is the larger.
#[inline]
fn quick_two_sum(left: f64, right: f64) -> (f64, f64) {
    let sum = left + right;
    (sum, right - (sum - left))
}

/// A rounded sum, and exactly what rounding took from it.
#[inline]
fn two_sum(left: f64, right: f64) -> (f64, f64) {
    let sum = left + right;
    let right_part = sum - left;
    let left_part = sum - right_part;
    (sum, (left - left_part) + (right - right_part))
}

/// The nearest whole number, halves away from zero; the caller knows it to be in range.
fn round_half_away(value: f64) -> i64 {
    value.round() as i64
}

#[cfg(test)]
mod tests {
    use kilim_bson::Value;

    use super::*;

    fn total(numbers: &[Number]) -> String {
        let mut sum = Summation::new();
        numbers.iter().for_each(|number| sum.add(*number));
        format!("{:?}", sum.total())
    }

    #[test]
    fn sums_are_as_mongod_gives_them() {
        use Number::{Double, Int, Long};
        assert_eq!(total(&[]), "Int(0)");
        assert_eq!(total(&[Int(i32::MAX), Int(1)]), "Long(2147483648)");
        assert_eq!(total(&[Long(i64::MAX), Int(1), Int(-2)]), "Long(9223372036854775806)");
        assert_eq!(total(&[Long(i64::MAX), Int(1)]), "Double(9.223372036854776e18)");
        assert_eq!(total(&[Long(i64::MIN)]), "Long(-9223372036854775808)");
        assert_eq!(total(&[Double(0.1), Double(0.2), Double(0.3)]), "Double(0.6)");
        assert_eq!(total(&[Double(1e16), Double(1.0), Double(1.0)]), "Double(1.0000000000000002e16)");
        // What was lost stays beside a sum that became zero.
        assert_eq!(total(&[Double(1e16), Double(1.0), Double(-1e16)]), "Double(0.0)");
        assert_eq!(total(&[Double(f64::INFINITY), Double(f64::NEG_INFINITY)]), "Double(NaN)");
    }

    #[test]
    fn sums_survive_storage_and_merge() {
        use Number::{Decimal, Double, Int, Long};
        let numbers = [
            Int(3),
            Long(i64::MAX),
            Double(0.1),
            Decimal(Decimal128::parse("1.10").expect("a decimal")),
            Long(-5),
            Int(7),
        ];
        let sum_of = |numbers: &[Number]| {
            let mut sum = Summation::new();
            numbers.iter().for_each(|number| sum.add(*number));
            let stored = Value::Array(sum.to_array());
            Summation::from_array(stored.as_raw()).expect("what was stored")
        };
        for at in 0..=numbers.len() {
            let mut merged = sum_of(&numbers[..at]);
            merged.merge(sum_of(&numbers[at..]));
            assert_eq!(
                merged.total().to_value().as_raw().element_type(),
                kilim_bson::ElementType::Decimal128
            );
            let (Decimal(merged), Decimal(whole)) = (merged.total(), sum_of(&numbers).total()) else {
                panic!("a decimal makes a sum decimal");
            };
            assert!(merged.subtract(whole).abs().to_f64() < 1e-15, "{merged} {whole}");
        }
    }
}
