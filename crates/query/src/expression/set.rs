//! Arrays as sets.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
