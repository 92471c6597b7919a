//! Sums, products, rounding, roots and logarithms of numbers and dates.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
