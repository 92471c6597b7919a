//! From one type to another.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
