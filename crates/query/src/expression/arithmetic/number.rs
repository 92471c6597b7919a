//! A number of any of the four types, and what it is in another of them.
//!
//! The types form a chain: int, long, double, decimal. An operation works in the wider type of its operands.

use kilim_bson::{Decimal128, RawValue, Value};

use crate::expression::Evaluated;

#[derive(Debug, Clone, Copy)]
pub enum Number {
    Int(i32),
    Long(i64),
    Double(f64),
    Decimal(Decimal128),
}

/// Two numbers in the wider of their types.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pair {
    Ints(i32, i32),
    Longs(i64, i64),
    Doubles(f64, f64),
    Decimals(Decimal128, Decimal128),
}

impl Number {
    /// None if the value is no number.
    #[inline]
    pub fn of(value: RawValue<'_>) -> Option<Number> {
        Some(match value {
            RawValue::Int32(value) => Number::Int(value),
            RawValue::Int64(value) => Number::Long(value),
            RawValue::Double(value) => Number::Double(value),
            RawValue::Decimal128(value) => Number::Decimal(value),
            _ => return None,
        })
    }

    pub fn of_evaluated(value: &Evaluated<'_>) -> Option<Number> {
        value.raw().and_then(Number::of)
    }

    /// An int if it fits, as sums and products of ints are.
    pub fn int_or_long(value: i64) -> Number {
        i32::try_from(value).map_or(Number::Long(value), Number::Int)
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(value) => f64::from(value),
            Number::Long(value) => value as f64,
            Number::Double(value) => value,
            Number::Decimal(value) => value.to_f64(),
        }
    }

    /// A double counts with the fifteen digits it surely holds.
    pub fn to_decimal(self) -> Decimal128 {
        match self {
            Number::Int(value) => value.into(),
            Number::Long(value) => value.into(),
            Number::Double(value) => Decimal128::from_f64(value),
            Number::Decimal(value) => value,
        }
    }

    pub fn is_nan(self) -> bool {
        match self {
            Number::Double(value) => value.is_nan(),
            Number::Decimal(value) => value.is_nan(),
            Number::Int(_) | Number::Long(_) => false,
        }
    }

    pub fn to_value(self) -> Value {
        match self {
            Number::Int(value) => Value::Int32(value),
            Number::Long(value) => Value::Int64(value),
            Number::Double(value) => Value::Double(value),
            Number::Decimal(value) => Value::Decimal128(value),
        }
    }
}

impl Pair {
    #[inline]
    pub fn of(left: Number, right: Number) -> Pair {
        use Number::{Decimal, Double, Int, Long};
        match (left, right) {
            (Decimal(_), _) | (_, Decimal(_)) => Pair::Decimals(left.to_decimal(), right.to_decimal()),
            (Double(_), _) | (_, Double(_)) => Pair::Doubles(left.to_f64(), right.to_f64()),
            (Int(left), Int(right)) => Pair::Ints(left, right),
            (Int(left), Long(right)) => Pair::Longs(left.into(), right),
            (Long(left), Int(right)) => Pair::Longs(left, right.into()),
            (Long(left), Long(right)) => Pair::Longs(left, right),
        }
    }
}

impl<'a> From<Number> for Evaluated<'a> {
    fn from(number: Number) -> Evaluated<'a> {
        match number {
            Number::Int(value) => value.into(),
            Number::Long(value) => value.into(),
            Number::Double(value) => value.into(),
            Number::Decimal(value) => value.into(),
        }
    }
}
