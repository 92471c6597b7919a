//! `$literal`, and `$const`, which is its other name: a value as it is written.

use kilim_error::Result;

use super::Arguments::Special;
use super::{Call, Env, Evaluated, Expression, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$literal", "a value as it is written", Special(parse), evaluate),
    Operator::new("$const", "a value as it is written", Special(parse), evaluate),
];

fn parse(
    _operator: &'static Operator,
    operand: kilim_bson::RawValue<'_>,
    _scope: &super::Scope<'_>,
) -> Result<Expression> {
    Ok(Expression::Constant(operand.to_value()))
}

/// Never called: parsing leaves no call behind.
fn evaluate<'a>(_call: &'a Call, _env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(Evaluated::Missing)
}
