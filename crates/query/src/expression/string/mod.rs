//! Texts.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
