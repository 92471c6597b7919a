//! Bits of integers.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
