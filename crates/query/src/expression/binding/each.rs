//! `$map` and `$filter`: one variable that is each element in turn.

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use super::{body, parameters, parse_with, shown, slot};
use crate::expression::array::{Building, integral};
use crate::expression::memory::Mark;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Place, Scope};

/// The variable's name where none is given.
const THIS: &str = "this";

/// The name after `as`; what is no text counts as an empty one.
fn variable_name(written: Option<RawValue<'_>>) -> &str {
    written.map_or(THIS, |name| name.as_str().unwrap_or(""))
}

pub(super) fn parse_map(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        return Err(Error::location(16_878, "$map only supports an object as its argument"));
    };
    let unknown = |name: &str| Error::location(16_879, format!("Unrecognized parameter to $map: {name}"));
    let [input, name, inner] = parameters(document, ["input", "as", "in"], unknown)?;
    let input = input.ok_or_else(|| Error::location(16_880, "Missing 'input' parameter to $map"))?;
    let inner = inner.ok_or_else(|| Error::location(16_882, "Missing 'in' parameter to $map"))?;
    let input = Expression::parse(input, scope)?;
    let name = variable_name(name);
    let (inner, slot) = parse_with(name, inner, scope)?;
    let arguments = vec![Some(input), Some(inner)];
    Ok(Expression::Call(Box::new(Call::binding(operator, arguments, vec![(name.into(), slot)]))))
}

pub(super) fn map<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = input.as_array() else {
        let found = input.type_name();
        return Err(Error::location(16_883, format!("input to $map must be an array not {found}")));
    };
    let (inner, slot) = (body(call, 1)?, slot(call)?);
    let mut mapped = Building::new();
    let mark = Mark::here();
    for element in elements.iter() {
        env.tick()?;
        let frame = env.frame(slot, Some(element));
        mapped.try_write(|index, writer| {
            let place = Place::Index(index);
            if !inner.append(&env.with(&frame), place, writer)? {
                place.append(RawValue::Null, writer);
            }
            Ok(())
        })?;
        mark.holds(mapped.bytes());
    }
    Ok(mapped.finish())
}

pub(super) fn show_map(call: &Call) -> Value {
    let part = |index| call.expression(index).map(Expression::to_value);
    shown([("input", part(0)), ("as", name(call)), ("in", part(1))])
}

fn name(call: &Call) -> Option<Value> {
    call.variables.first().map(|(name, _)| Value::String(name.to_string()))
}

pub(super) fn parse_filter(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        return Err(Error::location(28_646, "$filter only supports an object as its argument"));
    };
    let unknown = |name: &str| Error::location(28_647, format!("Unrecognized parameter to $filter: {name}"));
    let [input, name, condition, limit] = parameters(document, ["input", "as", "cond", "limit"], unknown)?;
    let input = input.ok_or_else(|| Error::location(28_648, "Missing 'input' parameter to $filter"))?;
    let condition =
        condition.ok_or_else(|| Error::location(28_650, "Missing 'cond' parameter to $filter"))?;
    let input = Expression::parse(input, scope)?;
    let name = variable_name(name);
    let (condition, slot) = parse_with(name, condition, scope)?;
    let limit = limit.map(|limit| Expression::parse(limit, scope)).transpose()?;
    let arguments = vec![Some(input), Some(condition), limit];
    Ok(Expression::Call(Box::new(Call::binding(operator, arguments, vec![(name.into(), slot)]))))
}

pub(super) fn filter<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = input.as_array() else {
        let found = input.type_name();
        return Err(Error::location(28_651, format!("input to $filter must be an array not {found}")));
    };
    // Nothing is asked of a limit to nothing.
    if elements.is_empty() {
        return Ok(input);
    }
    let mut wanted = limit(call, env)?;
    let (condition, slot) = (body(call, 1)?, slot(call)?);
    let mut kept = Building::new();
    let mark = Mark::here();
    for element in elements.iter() {
        env.tick()?;
        let frame = env.frame(slot, Some(element));
        if condition.is_true(&env.with(&frame))? {
            kept.push(element)?;
            wanted -= 1;
            if wanted == 0 {
                break;
            }
        }
        mark.holds(kept.bytes());
    }
    Ok(kept.finish())
}

/// How many elements to keep at most.
fn limit(call: &Call, env: &Env<'_>) -> Result<usize> {
    let limit = match call.expression(2) {
        Some(limit) => limit.evaluate(env)?,
        None => return Ok(usize::MAX),
    };
    let value = match limit.raw() {
        None | Some(RawValue::Null | RawValue::Undefined) => return Ok(usize::MAX),
        Some(value) => value,
    };
    match integral(value) {
        Some(limit) if limit > 0 => Ok(limit as usize),
        Some(limit) => {
            Err(Error::location(327_392, format!("$filter: limit must be greater than 0: {limit}")))
        }
        None => Err(Error::location(
            327_391,
            format!("$filter: limit must be represented as a 32-bit integral value: {}", show(value)),
        )),
    }
}

pub(super) fn show_filter(call: &Call) -> Value {
    let part = |index| call.expression(index).map(Expression::to_value);
    shown([("input", part(0)), ("as", name(call)), ("cond", part(1)), ("limit", part(2))])
}
