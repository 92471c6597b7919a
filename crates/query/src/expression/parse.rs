//! From BSON to the tree, with mongod's errors.

use std::collections::HashSet;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::{Arguments, Call, Expression, Named, Operator, Scope, table};
use crate::text;

impl Expression {
    /// Parses any operand. The tree is as written: see [`Expression::optimised`].
    pub fn parse(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
        match value {
            RawValue::String(text) => match text.strip_prefix('$') {
                None => Ok(Expression::Constant(value.to_value())),
                Some("") => Err(Error::location(16_872, "'$' by itself is not a valid FieldPath")),
                Some(rest) => match rest.strip_prefix('$') {
                    Some(variable) => scope.variable(variable),
                    None => scope.field(rest),
                },
            },
            RawValue::Document(document) => Expression::parse_document(document, scope),
            RawValue::Array(array) => {
                let elements = array.iter().map(|element| Expression::parse(element, scope));
                Ok(Expression::Array(elements.collect::<Result<_>>()?))
            }
            _ => Ok(Expression::Constant(value.to_value())),
        }
    }

    /// A document: a call of an operator, or a literal whose fields are expressions.
    pub fn parse_document(document: RawDocument<'_>, scope: &Scope<'_>) -> Result<Expression> {
        if let Some((name, operand)) = document.iter().next()
            && name.starts_with('$')
        {
            if document.iter().nth(1).is_some() {
                let message = format!(
                    "An object representing an expression must have exactly one field: {}",
                    text::document(document)
                );
                return Err(Error::location(15_983, message));
            }
            return Expression::parse_call(name, operand, scope);
        }
        let mut fields: Vec<(Box<str>, Expression)> = Vec::new();
        let mut known = HashSet::new();
        for (name, value) in document {
            check_field_name(name)?;
            if !known.insert(name) {
                return Err(Error::location(
                    16_406,
                    format!("duplicate field name specified in object literal: {}", text::document(document)),
                ));
            }
            fields.push((name.into(), Expression::parse(value, scope)?));
        }
        Ok(Expression::Object(fields))
    }

    /// `{name: operand}` where the name begins with `$`.
    pub fn parse_call(name: &str, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
        let Some(operator) = table::find(name) else {
            return Err(Error::user(
                ErrorCode::InvalidPipelineOperator,
                format!("Unrecognized expression '{name}'"),
            ));
        };
        let arguments = match operator.arguments {
            Arguments::Special(parse) => {
                return Ok(match parse(operator, operand, scope)? {
                    Expression::Call(call) => Expression::Call(Box::new(call.under(scope.collation()))),
                    other => other,
                });
            }
            Arguments::Named(named) => parse_named(operator, named, operand, scope)?,
            Arguments::Exactly(_) | Arguments::Between(..) | Arguments::Any => {
                parse_list(operator, operand, scope)?
            }
        };
        Ok(Expression::Call(Box::new(Call::new(operator, arguments).under(scope.collation()))))
    }
}

/// Refuses what a literal document cannot have for a field.
pub fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(15_998, "FieldPath field names may not be empty strings."));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            16_410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    if name.contains('.') {
        return Err(Error::location(
            16_412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        ));
    }
    Ok(())
}

/// A list of operands, or one that stands for itself.
pub fn parse_list(
    operator: &Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Option<Expression>>> {
    let arguments: Vec<_> = match operand {
        RawValue::Array(list) => {
            list.iter().map(|value| Expression::parse(value, scope).map(Some)).collect::<Result<_>>()?
        }
        value => vec![Some(Expression::parse(value, scope)?)],
    };
    let (name, count) = (operator.name, arguments.len());
    match operator.arguments {
        Arguments::Exactly(wanted) if count != wanted => Err(Error::location(
            16_020,
            format!("Expression {name} takes exactly {wanted} arguments. {count} were passed in."),
        )),
        Arguments::Between(least, most) if !(least..=most).contains(&count) => Err(Error::location(
            28_667,
            format!(
                "Expression {name} takes at least {least} arguments, and at most {most}, but {count} were passed in."
            ),
        )),
        _ => Ok(arguments),
    }
}

/// Operands by name, in the order of the parameters.
pub fn parse_named(
    operator: &Operator,
    named: &Named,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Option<Expression>>> {
    let RawValue::Document(document) = operand else {
        return Err((named.not_an_object)(operator, operand));
    };
    let mut arguments: Vec<Option<Expression>> = named.parameters.iter().map(|_| None).collect();
    for (name, value) in document {
        let Some(index) = named.parameters.iter().position(|parameter| parameter.name == name) else {
            return Err((named.unknown)(operator, name));
        };
        arguments[index] = Some(Expression::parse(value, scope)?);
    }
    for (parameter, argument) in named.parameters.iter().zip(&arguments) {
        if parameter.required && argument.is_none() {
            return Err((named.missing)(operator, parameter.name));
        }
    }
    Ok(arguments)
}
