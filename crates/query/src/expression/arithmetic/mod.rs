//! Sums, products, rounding, roots and logarithms of numbers and dates.

mod number;
mod summation;

pub use number::Number;
pub(crate) use number::Pair;
pub use summation::{DoubleDouble, Summation};

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
