//! All operators, family by family.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{
    Operator, accumulate, arithmetic, array, binding, bitwise, boolean, comparison, conditional, conversion,
    date, inspection, literal, object, set, string, trigonometry,
};

/// Every family's operators.
static FAMILIES: &[&[Operator]] = &[
    arithmetic::OPERATORS,
    trigonometry::OPERATORS,
    bitwise::OPERATORS,
    comparison::OPERATORS,
    boolean::OPERATORS,
    conditional::OPERATORS,
    literal::OPERATORS,
    conversion::OPERATORS,
    inspection::OPERATORS,
    array::OPERATORS,
    binding::OPERATORS,
    set::OPERATORS,
    object::OPERATORS,
    string::OPERATORS,
    date::OPERATORS,
    accumulate::OPERATORS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Operator>> =
    LazyLock::new(|| operators().map(|operator| (operator.name, operator)).collect());

/// Every operator, family by family.
pub fn operators() -> impl Iterator<Item = &'static Operator> {
    FAMILIES.iter().copied().flatten()
}

pub(super) fn find(name: &str) -> Option<&'static Operator> {
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_operators_have_one_name() {
        assert_eq!(operators().count(), BY_NAME.len());
    }
}
