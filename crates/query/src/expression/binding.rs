//! Operators that bind variables: `$let`, `$map`, `$filter`, `$reduce`.

use super::Operator;

pub(super) const OPERATORS: &[Operator] = &[];
