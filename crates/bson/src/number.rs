//! Numbers of all four types compared by their exact value.
//!
//! Nothing is rounded on the way: `2⁵³ + 1` differs from the double next to it, the decimal `0.1` from
//! the double `0.1`. NaN is below every number and equal to itself.

use std::cmp::Ordering;

use crate::decimal::compare_decimal_to_double;
use crate::{Decimal128, RawValue};

/// Compares two numbers; the caller has checked that they are.
pub(crate) fn compare_numbers(left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    use RawValue::{Decimal128 as Decimal, Double, Int32};
    match (left, right) {
        (Int32(left), Int32(right)) => left.cmp(&right),
        (Double(left), Double(right)) => compare_doubles(left, right),
        (Decimal(left), Decimal(right)) => left.compare(right),
        (Decimal(left), Double(right)) => compare_decimal_to_double(left, right),
        (Double(left), Decimal(right)) => compare_decimal_to_double(right, left).reverse(),
        (Decimal(left), right) => left.compare(Decimal128::from(whole(right))),
        (left, Decimal(right)) => Decimal128::from(whole(left)).compare(right),
        (Double(left), right) => compare_int_to_double(whole(right), left).reverse(),
        (left, Double(right)) => compare_int_to_double(whole(left), right),
        (left, right) => whole(left).cmp(&whole(right)),
    }
}

fn whole(value: RawValue<'_>) -> i64 {
    match value {
        RawValue::Int32(value) => value.into(),
        RawValue::Int64(value) => value,
        _ => unreachable!("the other types are matched before"),
    }
}

pub(crate) fn compare_doubles(left: f64, right: f64) -> Ordering {
    // NaN compares with nothing, so what is left is decided by who is one.
    left.partial_cmp(&right).unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

pub(crate) fn compare_int_to_double(left: i64, right: f64) -> Ordering {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if right.is_nan() || right < -LIMIT {
        Ordering::Greater
    } else if right >= LIMIT {
        Ordering::Less
    } else {
        let truncated = right.trunc();
        left.cmp(&(truncated as i64)).then_with(|| compare_doubles(truncated, right))
    }
}
