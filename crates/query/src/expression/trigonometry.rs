//! Angles.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
