//! `$cond`, `$ifNull`, `$switch`.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
