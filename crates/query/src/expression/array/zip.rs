//! `$zip`: elements of several arrays side by side.
//!
//! The call's arguments are the inputs, then the defaults; [`Shape`] says how many are which.

use kilim_bson::{Array, RawArray, RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::Building;
use crate::expression::show::show as show_value;
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Scope};

struct Shape {
    inputs: usize,
    longest: bool,
}

pub(super) fn parse(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        let found = operand.element_type().name();
        return Err(Error::location(
            34_460,
            format!("$zip only supports an object as an argument, found {found}"),
        ));
    };
    let (mut inputs, mut defaults, mut longest) = (Vec::new(), Vec::new(), false);
    for (parameter, value) in document {
        match parameter {
            "inputs" => inputs = parse_expressions(parameter, value, 34_461, scope)?,
            "defaults" => defaults = parse_expressions(parameter, value, 34_462, scope)?,
            "useLongestLength" => {
                // mongod names the type of the operand here, not of the parameter.
                longest = value.as_bool().ok_or_else(|| {
                    Error::location(34_463, "useLongestLength must be a bool, found object")
                })?;
            }
            _ => return Err(Error::location(34_464, format!("$zip found an unknown argument: {parameter}"))),
        }
    }
    if inputs.is_empty() {
        return Err(Error::location(34_465, "$zip requires at least one input array"));
    }
    if !longest && !defaults.is_empty() {
        return Err(Error::location(34_466, "cannot specify defaults unless useLongestLength is true"));
    }
    if !defaults.is_empty() && defaults.len() != inputs.len() {
        return Err(Error::location(34_467, "defaults and inputs must have the same length"));
    }
    let shape = Shape { inputs: inputs.len(), longest };
    inputs.append(&mut defaults);
    let mut call = Call::new(operator, inputs);
    call.prepare(shape);
    Ok(Expression::Call(Box::new(call)))
}

fn parse_expressions(
    parameter: &str,
    value: RawValue<'_>,
    code: i32,
    scope: &Scope<'_>,
) -> Result<Vec<Option<Expression>>> {
    let RawValue::Array(list) = value else {
        let found = value.element_type().name();
        return Err(Error::location(
            code,
            format!("{parameter} must be an array of expressions, found {found}"),
        ));
    };
    list.iter().map(|value| Expression::parse(value, scope).map(Some)).collect()
}

fn shape(call: &Call) -> Result<&Shape> {
    call.prepared().ok_or_else(|| Error::bug("$zip without its shape"))
}

pub(super) fn show(call: &Call) -> Value {
    let (inputs, longest) =
        shape(call).map_or((call.arguments.len(), false), |shape| (shape.inputs, shape.longest));
    let shown = |arguments: &[Option<Expression>]| {
        arguments.iter().flatten().map(Expression::to_value).collect::<Array>()
    };
    let (inputs, defaults) = call.arguments.split_at(inputs);
    doc! {"inputs": shown(inputs), "defaults": shown(defaults), "useLongestLength": longest}.into()
}

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Shape { inputs: count, longest } = *shape(call)?;
    let mut inputs = Vec::with_capacity(count);
    for argument in call.each(env).take(count) {
        let argument = argument?;
        if argument.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        if argument.as_array().is_none() {
            let found = show_value(argument.raw_or_null());
            return Err(Error::location(
                34_468,
                format!("$zip found a non-array expression in input: {found}"),
            ));
        }
        inputs.push(argument);
    }
    let mut arrays: Vec<_> =
        inputs.iter().filter_map(Evaluated::as_array).map(|array: RawArray<'_>| array.iter()).collect();
    let lengths = inputs.iter().filter_map(Evaluated::as_array).map(RawArray::len);
    let (most, least) = (lengths.clone().max().unwrap_or(0), lengths.min().unwrap_or(0));
    let rows = if longest { most } else { least };
    // Arrays of the same length need no defaults, so these cannot fail.
    let needed = if most == least { 0 } else { usize::MAX };
    let defaults = call.each(env).skip(count).take(needed).collect::<Result<Vec<_>>>()?;
    let mut zipped = Building::new();
    for _ in 0..rows {
        env.tick()?;
        zipped.try_write(|row, writer| {
            writer.open_array_at(row);
            let mut written = 0;
            for (column, array) in arrays.iter_mut().enumerate() {
                let value = match (array.next(), defaults.get(column)) {
                    (Some(value), _) => Some(value),
                    // A default that is missing leaves no element, as in mongod.
                    (None, Some(default)) => default.raw(),
                    (None, None) => Some(RawValue::Null),
                };
                if let Some(value) = value {
                    writer.append_index(written, value);
                    written += 1;
                }
            }
            writer.close();
            Ok(())
        })?;
    }
    Ok(zipped.finish())
}
