//! `$reduce`: an array folded into one value, which is `$$value` while each element is `$$this`.

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use super::depth::Watch;
use super::{body, parameters, shown, unbound};
use crate::expression::memory::{Mark, payload};
use crate::expression::show::show as show_value;
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Scope};

pub(super) fn parse(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        let found = operand.element_type().name();
        return Err(Error::location(
            40_075,
            format!("$reduce requires an object as an argument, found: {found}"),
        ));
    };
    let unknown = |name: &str| Error::location(40_076, format!("$reduce found an unknown argument: {name}"));
    let [input, initial, inner] = parameters(document, ["input", "initialValue", "in"], unknown)?;
    let missing =
        |name: &str, code| Error::location(code, format!("$reduce requires '{name}' to be specified"));
    let input = input.map(|input| Expression::parse(input, scope)).transpose()?;
    let initial = initial.map(|initial| Expression::parse(initial, scope)).transpose()?;
    let (this, this_slot) = scope.bind("this");
    let within = scope.with(&this);
    let (value, value_slot) = within.bind("value");
    let inner = inner.map(|inner| Expression::parse(inner, &within.with(&value))).transpose()?;
    let input = input.ok_or_else(|| missing("input", 40_077))?;
    let initial = initial.ok_or_else(|| missing("initialValue", 40_078))?;
    let inner = inner.ok_or_else(|| missing("in", 40_079))?;
    let variables = vec![("this".into(), this_slot), ("value".into(), value_slot)];
    let arguments = vec![Some(input), Some(initial), Some(inner)];
    Ok(Expression::Call(Box::new(Call::binding(operator, arguments, variables))))
}

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = input.as_array() else {
        let found = show_value(input.raw_or_null());
        return Err(Error::location(
            40_080,
            format!("$reduce requires that 'input' be an array, found: {found}"),
        ));
    };
    let [(_, this_slot), (_, value_slot)] = &*call.variables else { return Err(unbound(call)) };
    let inner = body(call, 2)?;
    let mut watch = Watch::new(inner);
    let mut value = call.argument(1, env)?;
    let mark = Mark::here();
    for element in elements.iter() {
        env.tick()?;
        let this = env.frame(*this_slot, Some(element));
        let within = env.with(&this);
        let so_far = within.frame(*value_slot, value.raw());
        let next = inner.evaluate(&within.with(&so_far))?.into_owned();
        watch.check_step(&next)?;
        mark.holds(payload(next.raw_or_null()));
        value = next;
    }
    watch.check_end(&value)?;
    Ok(value)
}

pub(super) fn show(call: &Call) -> Value {
    let part = |index| call.expression(index).map(Expression::to_value);
    shown([("input", part(0)), ("initialValue", part(1)), ("in", part(2))])
}
