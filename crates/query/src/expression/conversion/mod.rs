//! Conversion between types: `$convert`, and the operators that name their target, such as `$toInt`.
//!
//! The latter are parsed into a `$convert`, so there is one way to convert and one way to show it. `onError`
//! takes over where a value cannot be converted, but not where evaluating its input fails.

mod number;
mod number_text;
mod target;

use kilim_bson::{ObjectId, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use self::target::Target;
use super::Arguments::{Named as ByName, Special};
use super::{Call, Env, Evaluated, Expression, Named, Operator, Parameter, Scope, date, table};
use crate::filter::number::short;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$convert", "a value in another type", ByName(&PARAMETERS), convert)
        .prepared_by(prepare_target),
    Operator::new("$toBool", "as a boolean", Special(parse_shorthand), convert),
    Operator::new("$toDate", "as a date", Special(parse_shorthand), convert),
    Operator::new("$toDecimal", "as a decimal", Special(parse_shorthand), convert),
    Operator::new("$toDouble", "as a double", Special(parse_shorthand), convert),
    Operator::new("$toInt", "as an int", Special(parse_shorthand), convert),
    Operator::new("$toLong", "as a long", Special(parse_shorthand), convert),
    Operator::new("$toObjectId", "as an ObjectId", Special(parse_shorthand), convert),
    Operator::new("$toString", "as a string", Special(parse_shorthand), convert),
];

const INPUT: usize = 0;
const TO: usize = 1;
const ON_ERROR: usize = 2;
const ON_NULL: usize = 3;

static PARAMETERS: Named = Named {
    parameters: &[
        Parameter::required("input"),
        Parameter::required("to"),
        Parameter::optional("onError"),
        Parameter::optional("onNull"),
    ],
    not_an_object: |_, operand| {
        let found = operand.element_type().name();
        let message = format!("$convert expects an object of named arguments but found: {found}");
        Error::user(ErrorCode::FailedToParse, message)
    },
    unknown: |_, name| {
        Error::user(ErrorCode::FailedToParse, format!("$convert found an unknown argument: {name}"))
    },
    missing: |_, name| {
        Error::user(ErrorCode::FailedToParse, format!("Missing '{name}' parameter to $convert"))
    },
};

/// `{$toInt: x}` is `{$convert: {input: x, to: "int"}}`.
fn parse_shorthand(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let input = match operand {
        RawValue::Array(list) => {
            let mut elements = list.iter();
            match (elements.next(), elements.next()) {
                (Some(input), None) => input,
                _ => {
                    let message = format!("{} requires a single argument, got {}", operator.name, list.len());
                    return Err(Error::location(50_723, message));
                }
            }
        }
        input => input,
    };
    let input = Expression::parse(input, scope)?;
    let to = match operator.name {
        "$toBool" => "bool",
        "$toDate" => "date",
        "$toDecimal" => "decimal",
        "$toDouble" => "double",
        "$toInt" => "int",
        "$toLong" => "long",
        "$toObjectId" => "objectId",
        _ => "string",
    };
    let convert = table::find("$convert").expect("it stands in the table of this file");
    let arguments = vec![Some(input), Some(Expression::Constant(to.into())), None, None];
    Ok(Expression::Call(Box::new(Call::new(convert, arguments))))
}

/// A target that is constant is looked up once; if it is none, each evaluation says so.
fn prepare_target(call: &mut Call) -> Result<()> {
    if let Some(Expression::Constant(to)) = call.expression(TO)
        && let Ok(Some(target)) = Target::parse(&Evaluated::Raw(to.as_raw()))
    {
        call.prepare(target);
    }
    Ok(())
}

fn convert<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let target = match call.prepared::<Target>() {
        Some(target) => Some(*target),
        None => Target::parse(&call.argument(TO, env)?)?,
    };
    let input = call.argument(INPUT, env)?;
    if input.is_nullish() {
        return if call.is_given(ON_NULL) { call.argument(ON_NULL, env) } else { Ok(Evaluated::NULL) };
    }
    let Some(target) = target else { return Ok(Evaluated::NULL) };
    match to_target(input, target) {
        Err(Error::User(error)) if error.code == ErrorCode::ConversionFailure && call.is_given(ON_ERROR) => {
            call.argument(ON_ERROR, env)
        }
        converted => converted,
    }
}

/// The value is neither missing nor null.
fn to_target<'a>(value: Evaluated<'a>, target: Target) -> Result<Evaluated<'a>> {
    let raw = value.raw_or_null();
    Ok(match (target, raw) {
        (Target::Double, RawValue::Double(_))
        | (Target::String, RawValue::String(_))
        | (Target::ObjectId, RawValue::ObjectId(_))
        | (Target::Bool, RawValue::Bool(_))
        | (Target::Date, RawValue::DateTime(_))
        | (Target::Int, RawValue::Int32(_))
        | (Target::Long, RawValue::Int64(_))
        | (Target::Decimal, RawValue::Decimal128(_)) => value,
        (Target::Bool, _) => value.to_bool().into(),
        (Target::String, _) => to_string(raw)?.into(),
        (Target::ObjectId, RawValue::String(text)) => {
            Evaluated::Raw(RawValue::ObjectId(parse_object_id(text)?))
        }
        (Target::Date, _) => Evaluated::Raw(RawValue::DateTime(to_date(raw)?)),
        (Target::Int, _) => number::to_int(raw)?.into(),
        (Target::Long, _) => number::to_long(raw)?.into(),
        (Target::Double, _) => number::to_double(raw)?.into(),
        (Target::Decimal, _) => number::to_decimal(raw)?.into(),
        (Target::ObjectId | Target::Other(_), _) => return Err(unsupported(raw, target.name())),
    })
}

fn to_string(value: RawValue<'_>) -> Result<String> {
    Ok(match value {
        RawValue::Int32(number) => number.to_string(),
        RawValue::Int64(number) => number.to_string(),
        RawValue::Double(number) if number.is_nan() => "NaN".to_owned(),
        RawValue::Double(f64::INFINITY) => "Infinity".to_owned(),
        RawValue::Double(f64::NEG_INFINITY) => "-Infinity".to_owned(),
        RawValue::Double(number) => short(number),
        RawValue::Decimal128(number) => number.to_string(),
        RawValue::Bool(value) => value.to_string(),
        RawValue::ObjectId(id) => id.to_string(),
        RawValue::DateTime(millis) => date::format_iso(millis)?,
        _ => return Err(unsupported(value, "string")),
    })
}

fn to_date(value: RawValue<'_>) -> Result<i64> {
    match value {
        RawValue::Int64(millis) => Ok(millis),
        RawValue::Double(_) | RawValue::Decimal128(_) => number::to_long(value),
        RawValue::String(text) => date::parse(text),
        RawValue::ObjectId(id) => {
            let [a, b, c, d, ..] = id.to_bytes();
            // Signed, as MongoDB reads it.
            Ok(i64::from(i32::from_be_bytes([a, b, c, d])) * 1000)
        }
        RawValue::Timestamp(time) => Ok(i64::from(time.seconds) * 1000),
        _ => Err(unsupported(value, "date")),
    }
}

fn parse_object_id(text: &str) -> Result<ObjectId> {
    let failed = |why: String| {
        Err(failure(format!("Failed to parse objectId '{text}' in $convert with no onError value: {why}")))
    };
    if text.len() != 24 {
        return failed(format!(
            "Invalid string length for parsing to OID, expected 24 but found {}",
            text.len()
        ));
    }
    if let Some(wrong) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return failed(format!("Invalid character found in hex string: {wrong}"));
    }
    match ObjectId::parse_hex(text) {
        Some(id) => Ok(id),
        None => failed("not hexadecimal".to_owned()),
    }
}

fn unsupported(value: RawValue<'_>, target: &str) -> Error {
    failure(format!(
        "Unsupported conversion from {} to {target} in $convert with no onError value",
        value.element_type().name()
    ))
}

/// What `onError` catches.
fn failure(message: String) -> Error {
    Error::user(ErrorCode::ConversionFailure, message)
}
