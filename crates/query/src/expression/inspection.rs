//! What kind of value it is, and how large.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
