//! Sums, products, rounding, roots and logarithms of numbers and dates.

mod number;
mod summation;

pub(crate) use number::{Number, Pair};
pub(crate) use summation::{DoubleDouble, Summation};

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
