//! Accumulators from BSON, with mongod's errors.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::best::Order;
use super::table::{self, Form};
use super::{Accumulator, Kind, Number};
use crate::expression::show::show;
use crate::expression::{Env, Evaluated, Expression, Scope};
use crate::filter::number::short;
use crate::text;

impl Accumulator {
    /// Reads what stands under an output field: `{$sum: "$a"}`.
    pub fn parse(field: &str, value: RawValue<'_>, scope: &Scope<'_>) -> Result<Accumulator> {
        if field.contains('.') {
            return Err(Error::location(40235, format!("The field name '{field}' cannot contain '.'")));
        }
        if field.starts_with('$') && value.as_document().is_some() {
            return Err(Error::location(
                40236,
                format!("The field name '{field}' cannot be an operator name"),
            ));
        }
        let mut operators = value.as_document().unwrap_or(RawDocument::empty()).iter();
        let Some((name, operand)) = operators.next().filter(|(name, _)| name.starts_with('$')) else {
            return Err(Error::location(40234, format!("The field '{field}' must be an accumulator object")));
        };
        if operators.next().is_some() {
            return Err(Error::location(40238, format!("The field '{field}' must specify one accumulator")));
        }
        if let RawValue::Array(_) = operand {
            return Err(Error::location(40237, format!("The {name} accumulator is a unary operator")));
        }
        Accumulator::parse_named(name, operand, scope)
    }

    /// Reads the operand of an accumulator of that name.
    pub(crate) fn parse_named(name: &str, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Accumulator> {
        let definition = table::find(name)
            .ok_or_else(|| Error::location(15952, format!("unknown group operator '{name}'")))?;
        let accumulator = Accumulator::parse_operand(definition.form, operand, scope)?;
        Ok(Accumulator { collation: scope.collation().clone(), ..accumulator })
    }

    fn parse_operand(form: Form, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Accumulator> {
        match form {
            Form::Value(kind) => Ok(Accumulator::new(kind, expression(operand, scope)?)),
            Form::Count => match operand {
                RawValue::Document(nothing) if nothing.is_empty() => Ok(Accumulator::count()),
                _ => Err(Error::user(ErrorCode::TypeMismatch, "$count takes no arguments, i.e. $count:{}")),
            },
            Form::Counted(kind) => parse_counted(kind, operand, scope),
            Form::Sorted(kind) => parse_sorted(kind, operand, scope),
            Form::Ranked(kind) => {
                let code = if kind == Kind::Median { 7436100 } else { 7429703 };
                let (input, percentiles) = parse_percentile(kind.name(), code, operand, scope)?;
                let accumulator = Accumulator::new(kind, input.optimised()?);
                Ok(Accumulator { percentiles: percentiles.into(), ..accumulator })
            }
            Form::JavaScript => Err(Error::user(
                ErrorCode::NotImplemented,
                "$accumulator is not supported: Kilim does not run server-side JavaScript",
            )),
        }
    }
}

fn expression(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    Ok(Expression::parse(value, scope)?.optimised_if_it_can_be())
}

/// The operand of `$firstN` and its kin is no document.
pub(crate) fn refuse_n_operand(name: &str, operand: RawValue<'_>) -> Error {
    let code = if matches!(name, "$minN" | "$maxN") { 5787900 } else { 5787801 };
    not_an_object(code, name, operand)
}

fn not_an_object(code: i32, name: &str, operand: RawValue<'_>) -> Error {
    Error::location(code, format!("specification must be an object; found {}", text::element(name, operand)))
}

fn parse_counted(kind: Kind, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Accumulator> {
    let RawValue::Document(operand) = operand else {
        return Err(refuse_n_operand(kind.name(), operand));
    };
    let (mut n, mut input) = (None, None);
    for (name, value) in operand {
        match name {
            "n" => n = Some(expression(value, scope)?),
            "input" => input = Some(expression(value, scope)?),
            _ => return Err(Error::location(5787901, format!("Unknown argument for 'n' operator: {name}"))),
        }
    }
    let n = n.ok_or_else(|| Error::location(5787906, "Missing value for 'n'"))?;
    let input = input.ok_or_else(|| Error::location(5787907, "Missing value for 'input'"))?;
    Ok(Accumulator { n: Some(n), ..Accumulator::new(kind, input) })
}

fn parse_sorted(kind: Kind, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Accumulator> {
    let RawValue::Document(operand) = operand else {
        return Err(not_an_object(5788001, kind.name(), operand));
    };
    let several = matches!(kind, Kind::TopN | Kind::BottomN);
    let (mut n, mut output, mut order) = (None, None, None);
    for (name, value) in operand {
        match (name, value) {
            ("n", _) if several => n = Some(expression(value, scope)?),
            ("output", _) => output = Some(value),
            ("sortBy", RawValue::Document(by)) => order = Some(by),
            // As on MongoDB, an array is a document whose fields are its indexes.
            ("sortBy", RawValue::Array(by)) => order = Some(by.as_document()),
            ("sortBy", _) => {
                return Err(Error::location(10065, "invalid parameter: expected an object (sortBy)"));
            }
            _ => {
                let message = format!("Unknown argument to {} '{name}'", kind.name());
                return Err(Error::location(5788002, message));
            }
        }
    }
    if several && n.is_none() {
        return Err(Error::location(5788003, "Missing value for 'n'"));
    }
    let output = output.ok_or_else(|| Error::location(5788004, "Missing value for 'output'"))?;
    let order = order.ok_or_else(|| Error::location(5788005, "Missing value for 'sortBy'"))?;
    // In mongod's order: what is wrong with the output is told last.
    let (order, output) = (Order::parse(order, scope)?, expression(output, scope)?);
    Ok(Accumulator { n, order: Some(Arc::new(order)), ..Accumulator::new(kind, output) })
}

/// The operand of `$median` or `$percentile`: its input as written, and which percentiles are wanted. The
/// code is that of an operand that is no document.
pub(crate) fn parse_percentile(
    name: &str,
    code: i32,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<(Expression, Vec<f64>)> {
    let RawValue::Document(document) = operand else {
        return Err(not_an_object(code, name, operand));
    };
    let percentile = name == "$percentile";
    let known = |field: &str| matches!(field, "input" | "method") || percentile && field == "p";
    if let Some((unknown, _)) = document.iter().find(|(field, _)| !known(field)) {
        return Err(Error::location(40415, format!("BSON field '{name}.{unknown}' is an unknown field.")));
    }
    let get = |field: &str| {
        let missing = || format!("BSON field '{name}.{field}' is missing but a required field");
        document.get(field).ok_or_else(|| Error::location(40414, missing()))
    };
    let input = get("input")?;
    let p = if percentile { Some(get("p")?) } else { None };
    let method = get("method")?;
    let RawValue::String(method) = method else {
        let message = format!(
            "BSON field '{name}.method' is the wrong type '{}', expected type 'string'",
            method.element_type().name()
        );
        return Err(Error::user(ErrorCode::TypeMismatch, message));
    };
    let percentiles = p.map_or(Ok(vec![0.5]), |p| percentiles(p, scope))?;
    if method != "approximate" {
        return Err(Error::user(
            ErrorCode::BadValue,
            "Currently only 'approximate' can be used as a percentile 'method'.",
        ));
    }
    Ok((Expression::parse(input, scope)?, percentiles))
}

fn percentiles(p: RawValue<'_>, scope: &Scope<'_>) -> Result<Vec<f64>> {
    let folded = expression(p, scope)?;
    let Some(constant) = folded.as_constant() else {
        return Err(Error::location(
            7750300,
            format!(
                "The $percentile 'p' field must be an array of constant values, but found value: {}.",
                text::value(p)
            ),
        ));
    };
    let refuse = |code, found: String| {
        let wanted = "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: ";
        Error::location(code, format!("{wanted}{found}"))
    };
    let constant = constant.as_raw();
    let Some(list) = constant.as_array().filter(|list| !list.is_empty()) else {
        return Err(refuse(7750301, show(constant)));
    };
    let percentile = |value| match Number::of(value).map(Number::to_f64) {
        None => Err(refuse(7750302, show(value))),
        Some(p) if !(0.0..=1.0).contains(&p) => Err(refuse(7750303, short(p))),
        Some(p) => Ok(p),
    };
    list.iter().map(percentile).collect()
}

/// How many values are kept, from an expression.
pub(super) fn evaluate_n(n: &Expression, env: &Env<'_>) -> Result<u64> {
    check_n(&n.evaluate(env)?)
}

/// How many values are kept: a whole number above zero, of any numeric type.
pub(crate) fn check_n(value: &Evaluated<'_>) -> Result<u64> {
    let shown = || value.raw().map_or("MISSING".to_owned(), show);
    let not_whole = |code, shown: String| {
        Error::location(code, format!("Value for 'n' must be of integral type, but found {shown}"))
    };
    let number = Number::of_evaluated(value).ok_or_else(|| not_whole(5787902, shown()))?;
    let out_of_range =
        |shown: String| Error::location(31109, format!("Can't coerce out of range value {shown} to long"));
    let n = match number {
        Number::Int(n) => i64::from(n),
        Number::Long(n) => n,
        Number::Double(n) if n.is_nan() || n.abs() >= 9_223_372_036_854_775_808.0 => {
            return Err(out_of_range(short(n)));
        }
        Number::Double(n) if n.fract() != 0.0 => return Err(not_whole(5787903, short(n))),
        Number::Double(n) => n as i64,
        Number::Decimal(n) => {
            let exact = n.to_i64_exact().filter(|exact| n.to_i64() == Some(*exact));
            exact.ok_or_else(|| not_whole(5787903, shown()))?
        }
    };
    u64::try_from(n)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Error::location(5787908, format!("'n' must be greater than 0, found {n}")))
}
