//! `$let`: variables for one expression. They do not see each other.
//!
//! The call's arguments are the variables' values, in order, then the body.

use std::cell::OnceCell;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::{body, parameters, shown};
use crate::expression::{
    Call, Entry, Env, Evaluated, Expression, Frame, Operator, Scope, check_variable_name,
};

pub(super) fn parse(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        return Err(Error::location(16_874, "$let only supports an object as its argument"));
    };
    let unknown = |name: &str| Error::location(16_875, format!("Unrecognized parameter to $let: {name}"));
    let [vars, inner] = parameters(document, ["vars", "in"], unknown)?;
    let vars = vars.ok_or_else(|| Error::location(16_876, "Missing 'vars' parameter to $let"))?;
    let inner = inner.ok_or_else(|| Error::location(16_877, "Missing 'in' parameter to $let"))?;
    let vars = match vars {
        RawValue::Document(vars) => vars,
        RawValue::Array(vars) => vars.as_document(),
        _ => return Err(Error::location(10_065, "invalid parameter: expected an object (vars)")),
    };
    let mut definitions: Vec<(&str, Expression)> = Vec::new();
    for (name, value) in vars {
        check_variable_name(name)?;
        let value = Expression::parse(value, scope)?;
        // Of two with one name the last counts.
        match definitions.iter().position(|(known, _)| *known == name) {
            Some(known) => definitions[known].1 = value,
            None if definitions.len() < VARIABLES_MAX => definitions.push((name, value)),
            None => {
                let message = format!("$let cannot bind more than {VARIABLES_MAX} variables");
                return Err(Error::user(ErrorCode::BadValue, message));
            }
        }
    }
    let (inner, variables) = {
        let entries: Vec<OnceCell<Entry<'_>>> = definitions.iter().map(|_| OnceCell::new()).collect();
        let mut variables = Vec::with_capacity(definitions.len());
        let mut within = *scope;
        for ((name, _), cell) in definitions.iter().zip(&entries) {
            let (entry, slot) = within.bind(name);
            within = within.with(cell.get_or_init(|| entry));
            variables.push(((*name).into(), slot));
        }
        (Expression::parse(inner, &within)?, variables)
    };
    if variables.is_empty() {
        return Ok(inner);
    }
    let values = definitions.into_iter().map(|(_, value)| value);
    let arguments = values.chain([inner]).map(Some).collect();
    Ok(Expression::Call(Box::new(Call::binding(operator, arguments, variables))))
}

/// Variables of one `$let`. Names are sought in turn, here and while parsing.
const VARIABLES_MAX: usize = 1000;

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let inner = body(call, call.variables.len())?;
    if let [(_, slot)] = &*call.variables {
        let value = call.argument(0, env)?;
        let frame = env.frame(*slot, value.raw());
        return Ok(inner.evaluate(&env.with(&frame))?.into_owned());
    }
    let values = call.each(env).take(call.variables.len()).collect::<Result<Vec<_>>>()?;
    let frames: Vec<OnceCell<Frame<'_>>> = values.iter().map(|_| OnceCell::new()).collect();
    let mut within = *env;
    for (((_, slot), value), cell) in call.variables.iter().zip(&values).zip(&frames) {
        let frame = within.frame(*slot, value.raw());
        within = within.with(cell.get_or_init(|| frame));
    }
    Ok(inner.evaluate(&within)?.into_owned())
}

pub(super) fn show(call: &Call) -> Value {
    let values = call.arguments.iter().flatten().map(Expression::to_value);
    let vars = call.variables.iter().map(|(name, _)| &**name).zip(values).collect::<Document>();
    let inner = call.expression(call.variables.len()).map(Expression::to_value);
    shown([("vars", Some(vars.into())), ("in", inner)])
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;
    use crate::expression::{Bindings, Variables};

    #[test]
    fn many_variables_are_bound_and_more_are_refused() {
        let variables = Variables::default();
        let vars = |count: usize| -> Document {
            let names: Vec<String> = (0..count).map(|index| format!("v{index}")).collect();
            names.iter().enumerate().map(|(index, name)| (&**name, Value::Int32(index as i32))).collect()
        };
        let parse = |count| {
            let operand = doc! {"$let": {"vars": (vars(count)), "in": ["$$v0", "$$v999", "$a"]}};
            Expression::parse_document(operand.as_raw(), &Scope::new(&variables))
        };
        let document = doc! {"a": "x"};
        let env = Env::new(document.as_raw(), Bindings::none());
        let expression = parse(VARIABLES_MAX).unwrap().optimised().unwrap();
        let value = expression.evaluate(&env).unwrap();
        let expected = kilim_bson::array![0, 999, "x"];
        assert_eq!(value.as_array(), Some(expected.as_raw()));
        assert_eq!(parse(VARIABLES_MAX + 1).unwrap_err().code(), ErrorCode::BadValue);
    }
}
