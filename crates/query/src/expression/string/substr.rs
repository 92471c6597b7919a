//! Parts of a text and its length, in bytes or in code points.

use kilim_bson::{RawValue, Rounding};
use kilim_error::{Error, Result};

use super::coerce::into_text;
use super::part;
use crate::expression::array::integral;
use crate::expression::parse::parse_list;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Scope, table};
use crate::filter::number::{short, truncated_i64};

pub(super) fn len_bytes<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    Ok((text_of(call, &value, 34_473)?.len() as i32).into())
}

pub(super) fn len_code_points<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    Ok((text_of(call, &value, 34_471)?.chars().count() as i32).into())
}

fn text_of<'v>(call: &Call, value: &'v Evaluated<'_>, code: i32) -> Result<&'v str> {
    value.as_str().ok_or_else(|| {
        let (name, found) = (call.operator.name, value.type_name());
        Error::location(code, format!("{name} requires a string argument, found: {found}"))
    })
}

/// `$substr` is an old name of `$substrBytes`, which alone messages and explain know.
pub(super) fn parse_old(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let operator = table::find("$substrBytes").unwrap_or(operator);
    let arguments = parse_list(operator, operand, scope)?;
    Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
}

pub(super) fn bytes<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    let start = call.argument(1, env)?;
    let count = call.argument(2, env)?;
    let input = into_text(input)?;
    check_number("$substrBytes:  starting index", 16_034, &start)?;
    check_number("$substrBytes:  length", 16_035, &count)?;
    let start = coerced_i64(start.raw_or_null())?;
    let count = coerced_i64(count.raw_or_null())?;
    let text = input.as_str().unwrap_or_default();
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::location(
            50_752,
            format!("$substrBytes:  starting index must be non-negative (got: {start})"),
        ));
    };
    let start = start.min(text.len());
    // A negative length means all the rest.
    let end = usize::try_from(count).map_or(text.len(), |count| start.saturating_add(count).min(text.len()));
    if !text.is_char_boundary(start) {
        return Err(Error::location(
            28_656,
            "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.",
        ));
    }
    if !text.is_char_boundary(end) {
        return Err(Error::location(
            28_657,
            "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.",
        ));
    }
    Ok(part(input, start..end))
}

/// A number without its fraction; a decimal is rounded, and counts as the smallest number where it is too large.
fn coerced_i64(value: RawValue<'_>) -> Result<i64> {
    match value {
        RawValue::Decimal128(number) => {
            let rounded = RawValue::Decimal128(number.round_to_whole(Rounding::HalfEven));
            Ok(truncated_i64(rounded).and_then(Result::ok).unwrap_or(i64::MIN))
        }
        RawValue::Double(number) => truncated_i64(value).and_then(Result::ok).ok_or_else(|| {
            Error::location(31_109, format!("Can't coerce out of range value {} to long", short(number)))
        }),
        number => Ok(truncated_i64(number).and_then(Result::ok).unwrap_or_default()),
    }
}

fn check_number(what: &str, code: i32, value: &Evaluated<'_>) -> Result<()> {
    if value.raw().is_some_and(RawValue::is_number) {
        return Ok(());
    }
    let found = value.type_name();
    Err(Error::location(code, format!("{what} must be a numeric type (is BSON type {found})")))
}

pub(super) fn code_points<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    let start = call.argument(1, env)?;
    let count = call.argument(2, env)?;
    let input = into_text(input)?;
    let start = code_point_number("starting index", 34_450, &start)?;
    let count = code_point_number("length", 34_452, &count)?;
    if count < 0 {
        return Err(Error::location(34_454, "$substrCP: length must be a nonnegative integer."));
    }
    if start < 0 {
        return Err(Error::location(34_455, "$substrCP: the starting index must be nonnegative integer."));
    }
    let text = input.as_str().unwrap_or_default();
    let start = byte_of(text, start as usize);
    let end = start + byte_of(&text[start..], count as usize);
    Ok(part(input, start..end))
}

/// Where a code point begins; the end of the text where it has too few.
fn byte_of(text: &str, code_point: usize) -> usize {
    text.char_indices().nth(code_point).map_or(text.len(), |(byte, _)| byte)
}

fn code_point_number(what: &str, code: i32, value: &Evaluated<'_>) -> Result<i32> {
    check_number(&format!("$substrCP: {what}"), code, value)?;
    let value = value.raw_or_null();
    integral(value).ok_or_else(|| {
        let found = show(value);
        Error::location(
            code + 1,
            format!("$substrCP: {what} cannot be represented as a 32-bit integral value: {found}"),
        )
    })
}
