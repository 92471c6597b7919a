//! `$getField`, `$setField` and `$unsetField`: one field by its whole name, in which dots and dollars mean nothing.
//!
//! The arguments are the name, the document and, for `$setField`, the value. `$unsetField` is `$setField` of nothing.

use kilim_bson::{RawDocument, RawValue, Value, Writer, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::memory::check_bytes;
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Scope, table};

/// The codes for a name that is no constant text; the two families have their own.
struct NameErrors {
    reference: i32,
    not_constant: i32,
    not_text: i32,
}

const GET: NameErrors = NameErrors { reference: 5_654_600, not_constant: 5_654_601, not_text: 5_654_602 };
const SET: NameErrors = NameErrors { reference: 4_161_108, not_constant: 4_161_106, not_text: 4_161_107 };

/// The name of the field, which must be known before any document is.
fn parse_name(
    operator: &Operator,
    written: RawValue<'_>,
    errors: &NameErrors,
    scope: &Scope<'_>,
) -> Result<Expression> {
    check_name(operator, written, Expression::parse(written, scope)?, errors)
}

fn check_name(
    operator: &Operator,
    written: RawValue<'_>,
    name: Expression,
    errors: &NameErrors,
) -> Result<Expression> {
    let operator = operator.name;
    if let Some(path) = written.as_str().and_then(|text| text.strip_prefix('$')) {
        let path = match path.strip_prefix('$') {
            Some(variable) => variable.to_owned(),
            None => format!("CURRENT.{path}"),
        };
        return Err(Error::location(
            errors.reference,
            format!(
                "'${path}' is a field path reference which is not allowed in this context. \
                 Did you mean {{$literal: '${path}'}}?"
            ),
        ));
    }
    let Expression::Constant(value) = &name else {
        return Err(Error::location(
            errors.not_constant,
            format!("{operator} requires 'field' to evaluate to a constant, but got a non-constant argument"),
        ));
    };
    if !matches!(value, Value::String(_)) {
        let found = value.element_type().name();
        return Err(Error::location(
            errors.not_text,
            format!("{operator} requires 'field' to evaluate to type String, but got {found}"),
        ));
    }
    Ok(name)
}

fn name_of(call: &Call) -> Result<&str> {
    match call.expression(0) {
        Some(Expression::Constant(Value::String(name))) => Ok(name),
        _ => Err(Error::bug(format!("{} without a name", call.operator.name))),
    }
}

fn required(operator: &Operator, parameter: &str, code: i32) -> Error {
    Error::location(code, format!("{} requires '{parameter}' to be specified", operator.name))
}

fn unknown(operator: &Operator, parameter: &str, code: i32) -> Error {
    Error::location(code, format!("{} found an unknown argument: {parameter}", operator.name))
}

pub(super) fn parse_get(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let (name, input) = match operand {
        RawValue::Document(document) if !is_call(document) => {
            let (mut name, mut input) = (None, None);
            for (parameter, value) in document {
                match parameter {
                    "field" => name = Some((value, Expression::parse(value, scope)?)),
                    "input" => input = Some(Expression::parse(value, scope)?),
                    _ => return Err(unknown(operator, parameter, 3_041_701)),
                }
            }
            let (written, name) = name.ok_or_else(|| required(operator, "field", 3_041_702))?;
            let input = input.ok_or_else(|| required(operator, "input", 3_041_703))?;
            (check_name(operator, written, name, &GET)?, input)
        }
        // The name alone asks the document at hand.
        name => (parse_name(operator, name, &GET, scope)?, scope.variable("CURRENT")?),
    };
    Ok(Expression::Call(Box::new(Call::new(operator, vec![Some(name), Some(input)]))))
}

fn is_call(document: RawDocument<'_>) -> bool {
    document.iter().next().is_some_and(|(name, _)| name.starts_with('$'))
}

pub(super) fn get<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let name = name_of(call)?;
    Ok(match call.argument(1, env)? {
        Evaluated::Raw(RawValue::Document(document)) => document.get(name).into(),
        Evaluated::Owned(Value::Document(document)) => Evaluated::from(document.get(name)).into_owned(),
        input if input.is_nullish() => match input {
            Evaluated::Missing => Evaluated::Missing,
            _ => Evaluated::NULL,
        },
        _ => Evaluated::Missing,
    })
}

pub(super) fn show_get(call: &Call) -> Value {
    let part = |index| call.expression(index).map(Expression::to_value);
    doc! {"field": part(0), "input": part(1)}.into()
}

pub(super) fn parse_set(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    parse_change(operator, operator, operand, true, scope)
}

pub(super) fn parse_unset(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let set = table::find("$setField").unwrap_or(operator);
    parse_change(operator, set, operand, false, scope)
}

/// `written` is in the messages, `meant` is what runs.
fn parse_change(
    written: &'static Operator,
    meant: &'static Operator,
    operand: RawValue<'_>,
    with_value: bool,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        return Err(Error::location(
            4_161_100,
            format!("{} only supports an object as its argument", written.name),
        ));
    };
    let (mut name, mut input, mut value) = (None, None, None);
    for (parameter, given) in document {
        match parameter {
            "field" => name = Some((given, Expression::parse(given, scope)?)),
            "input" => input = Some(Expression::parse(given, scope)?),
            "value" if with_value => value = Some(Expression::parse(given, scope)?),
            _ => return Err(unknown(written, parameter, 4_161_101)),
        }
    }
    let (given, name) = name.ok_or_else(|| required(written, "field", 4_161_102))?;
    if with_value && value.is_none() {
        return Err(required(written, "value", 4_161_103));
    }
    let input = input.ok_or_else(|| required(written, "input", 4_161_109))?;
    let name = check_name(written, given, name, &SET)?;
    if name.as_constant().and_then(|name| name.as_raw().as_str()).is_some_and(|name| name.contains('\0')) {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("{} requires 'field' not to contain a null byte", written.name),
        ));
    }
    let value = value.unwrap_or(Expression::Missing);
    Ok(Expression::Call(Box::new(Call::new(meant, vec![Some(name), Some(input), Some(value)]))))
}

pub(super) fn set<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let name = name_of(call)?;
    let input = call.argument(1, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(document) = input.as_document() else {
        return Err(Error::location(4_161_105, "$setField requires 'input' to evaluate to type Object"));
    };
    let value = call.argument(2, env)?;
    let mut value = value.raw();
    let mut out = Writer::with_capacity(document.as_bytes().len() + 32);
    let mut fields = document.iter();
    while let Some((known, _, bytes)) = fields.next_with_bytes() {
        if known != name {
            out.append_elements(bytes);
        } else if let Some(value) = value.take() {
            out.append(name, value);
        }
    }
    if let Some(value) = value {
        out.append(name, value);
    }
    check_bytes(out.len())?;
    Ok(out.finish().into())
}

pub(super) fn show_set(call: &Call) -> Value {
    let part = |index| call.expression(index).map(Expression::to_value);
    doc! {"field": part(0), "input": part(1), "value": part(2)}.into()
}
