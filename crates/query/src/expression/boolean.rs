//! `$and`, `$or`, `$not`.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
