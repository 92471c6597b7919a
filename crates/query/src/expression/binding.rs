//! Operators that bind variables: `$let`, `$map`, `$filter`, `$reduce`.
//!
//! A variable's value is put on the stack as a frame, borrowed from where it was computed; what an inner
//! expression gives may borrow from it, so results are owned before the frame goes.

mod depth;
mod each;
mod let_in;
mod reduce;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};

use super::{Arguments, Call, Expression, Fold, Operator, Scope, Slot, check_variable_name};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new(
        "$let",
        "an expression with variables",
        Arguments::Special(let_in::parse),
        let_in::evaluate,
    )
    .folds(Fold::Never)
    .shown_by(let_in::show),
    Operator::new("$map", "an expression for each element", Arguments::Special(each::parse_map), each::map)
        .folds(Fold::Never)
        .shown_by(each::show_map),
    Operator::new(
        "$filter",
        "the elements that meet a condition",
        Arguments::Special(each::parse_filter),
        each::filter,
    )
    .folds(Fold::Never)
    .shown_by(each::show_filter),
    Operator::new(
        "$reduce",
        "an array folded into one value",
        Arguments::Special(reduce::parse),
        reduce::evaluate,
    )
    .folds(Fold::Never)
    .shown_by(reduce::show),
];

/// The operand's values by name, in the order of `names`.
fn parameters<'v, const COUNT: usize>(
    document: RawDocument<'v>,
    names: [&str; COUNT],
    unknown: impl Fn(&str) -> Error,
) -> Result<[Option<RawValue<'v>>; COUNT]> {
    let mut values = [None; COUNT];
    for (name, value) in document {
        let index = names.iter().position(|known| *known == name).ok_or_else(|| unknown(name))?;
        values[index] = Some(value);
    }
    Ok(values)
}

/// Parses an expression that knows one variable more.
fn parse_with(name: &str, value: RawValue<'_>, scope: &Scope<'_>) -> Result<(Expression, Slot)> {
    check_variable_name(name)?;
    let (entry, slot) = scope.bind(name);
    Ok((Expression::parse(value, &scope.with(&entry))?, slot))
}

/// The variable that a call of one binds.
fn slot(call: &Call) -> Result<Slot> {
    call.variables.first().map(|(_, slot)| *slot).ok_or_else(|| unbound(call))
}

fn unbound(call: &Call) -> Error {
    Error::bug(format!("{} binds no variable", call.operator.name))
}

/// An argument that parsing has made sure of.
fn body(call: &Call, index: usize) -> Result<&Expression> {
    call.expression(index).ok_or_else(|| Error::bug(format!("{} has no body", call.operator.name)))
}

/// A document of what is there.
fn shown<'n>(fields: impl IntoIterator<Item = (&'n str, Option<Value>)>) -> Value {
    let there = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    Value::Document(there.collect::<Document>())
}
