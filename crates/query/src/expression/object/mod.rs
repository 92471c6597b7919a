//! Documents and their fields.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
