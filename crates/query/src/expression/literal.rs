//! Values that are taken as they are.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
