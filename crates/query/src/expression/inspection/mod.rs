//! Questions about a value rather than computations with it: its type, its size, the parts of a timestamp,
//! its key in a hashed index. Beside them `$rand` and `$meta`, which ask about no value at all, and
//! server-side JavaScript, which is refused.

mod hashed_key;
mod meta;

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

pub use hashed_key::hashed_key;
pub(crate) use meta::check_available;

use super::Arguments::{Exactly, Special};
use super::{Call, Env, Evaluated, Expression, Fold, Operator, Scope};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$type", "the name of a value's type", Exactly(1), |call, env| {
        Ok(RawValue::String(call.argument(0, env)?.type_name()).into())
    }),
    Operator::new("$isNumber", "whether a value is a number", Exactly(1), |call, env| {
        Ok(call.argument(0, env)?.raw().is_some_and(RawValue::is_number).into())
    }),
    Operator::new("$binarySize", "the bytes of a string or binary value", Exactly(1), binary_size),
    Operator::new("$bsonSize", "the bytes of a document", Exactly(1), bson_size),
    Operator::new("$tsSecond", "the seconds of a timestamp", Exactly(1), |call, env| {
        timestamp_part(call, env, 5_687_301, |time| time.seconds)
    }),
    Operator::new("$tsIncrement", "the increment of a timestamp", Exactly(1), |call, env| {
        timestamp_part(call, env, 5_687_302, |time| time.increment)
    }),
    Operator::new(
        "$toHashedIndexKey",
        "the key of a value in a hashed index",
        Special(parse_hashed_key),
        |call, env| Ok(hashed_key(call.argument(0, env)?.raw_or_null()).into()),
    )
    .shown_by(|call| call.expression(0).map_or(kilim_bson::Value::Null, Expression::to_value)),
    Operator::new("$rand", "a random double from zero up to one", Special(parse_rand), |_, _| {
        Ok(rand::random::<f64>().into())
    })
    .folds(Fold::Never)
    .shown_by(|_| kilim_bson::Document::new().into()),
    meta::META,
    Operator::new("$function", "refused: server-side JavaScript", Special(refuse_javascript), never),
    Operator::new("$accumulator", "refused: server-side JavaScript", Special(refuse_javascript), never),
];

fn binary_size<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    let bytes = match value.raw() {
        Some(RawValue::String(text)) => text.len(),
        // The old kind of binary carries its length a second time.
        Some(RawValue::Binary { subtype: 2, bytes }) => bytes.len() + 4,
        Some(RawValue::Binary { bytes, .. }) => bytes.len(),
        _ if value.is_nullish() => return Ok(Evaluated::NULL),
        _ => {
            let message =
                format!("$binarySize requires a string or BinData argument, found: {}", value.type_name());
            return Err(Error::location(51_276, message));
        }
    };
    size(bytes)
}

fn bson_size<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    match value.raw() {
        Some(RawValue::Document(document)) => size(document.as_bytes().len()),
        _ if value.is_nullish() => Ok(Evaluated::NULL),
        _ => {
            let message = format!("$bsonSize requires a document input, found: {}", value.type_name());
            Err(Error::location(31_393, message))
        }
    }
}

fn size(bytes: usize) -> Result<Evaluated<'static>> {
    let bytes = i32::try_from(bytes).map_err(|_| Error::bug("a value is larger than BSON can be"))?;
    Ok(bytes.into())
}

fn timestamp_part<'a>(
    call: &'a Call,
    env: &Env<'a>,
    code: i32,
    part: fn(kilim_bson::Timestamp) -> u32,
) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    match value.raw() {
        Some(RawValue::Timestamp(time)) => Ok(i64::from(part(time)).into()),
        _ if value.is_nullish() => Ok(Evaluated::NULL),
        _ => {
            let message = format!(
                " Argument to {} must be a timestamp, but is {}",
                call.operator.name,
                value.type_name()
            );
            Err(Error::location(code, message))
        }
    }
}

/// The operand is the value itself, an array too.
fn parse_hashed_key(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let value = Expression::parse(operand, scope)?;
    Ok(Expression::Call(Box::new(Call::new(operator, vec![Some(value)]))))
}

fn parse_rand(operator: &'static Operator, operand: RawValue<'_>, _scope: &Scope<'_>) -> Result<Expression> {
    match operand.as_container() {
        None => Err(Error::location(10_065, "invalid parameter: expected an object ($rand)")),
        Some(arguments) if !arguments.is_empty() => {
            Err(Error::location(3_040_501, "$rand does not currently accept arguments"))
        }
        Some(_) => Ok(Expression::Call(Box::new(Call::new(operator, Vec::new())))),
    }
}

fn refuse_javascript(
    operator: &'static Operator,
    _operand: RawValue<'_>,
    _scope: &Scope<'_>,
) -> Result<Expression> {
    let message = format!("{} needs server-side JavaScript, which is not supported", operator.name);
    Err(Error::user(ErrorCode::CommandNotSupported, message))
}

/// Parsing has refused the operator.
fn never<'a>(_call: &'a Call, _env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(Evaluated::Missing)
}
