//! Dates and time zones.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
