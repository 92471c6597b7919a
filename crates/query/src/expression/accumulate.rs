//! Accumulators over the elements of an array.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
