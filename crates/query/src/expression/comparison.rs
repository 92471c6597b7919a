//! Comparisons in MongoDB's order.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
