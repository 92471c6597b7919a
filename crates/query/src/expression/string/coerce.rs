//! The text that a value counts as where an operator takes more than texts.

use std::borrow::Cow;

use kilim_bson::{RawValue, Timestamp, Value, calendar};
use kilim_error::{Error, Result};

use crate::expression::Evaluated;
use crate::expression::date::format_iso;
use crate::filter::number::short;

/// As a text: numbers and dates are written out, nothing is empty; documents, arrays and the like are refused.
pub(super) fn to_text<'v>(value: &'v Evaluated<'_>) -> Result<Cow<'v, str>> {
    Ok(match value.raw() {
        None | Some(RawValue::Null | RawValue::Undefined) => Cow::Borrowed(""),
        Some(RawValue::String(text) | RawValue::Symbol(text) | RawValue::JavaScript(text)) => {
            Cow::Borrowed(text)
        }
        Some(RawValue::Double(number)) => short(number).into(),
        Some(RawValue::Int32(number)) => number.to_string().into(),
        Some(RawValue::Int64(number)) => number.to_string().into(),
        Some(RawValue::Decimal128(number)) => number.to_string().into(),
        Some(RawValue::DateTime(millis)) => format_iso(millis)
            .map_err(|error| match error {
                Error::User(mut user) => {
                    user.message =
                        format!("failed while coercing date to string :: caused by :: {}", user.message);
                    Error::User(user)
                }
                other => other,
            })?
            .into(),
        Some(RawValue::Timestamp(time)) => timestamp(time).into(),
        Some(other) => {
            let found = other.element_type().name();
            return Err(Error::location(16_007, format!("can't convert from BSON type {found} to String")));
        }
    })
}

/// The same as a value, borrowed where it is a text already.
pub(super) fn into_text(value: Evaluated<'_>) -> Result<Evaluated<'_>> {
    match value {
        Evaluated::Raw(RawValue::String(_)) | Evaluated::Owned(Value::String(_)) => Ok(value),
        other => Ok(to_text(&other)?.into_owned().into()),
    }
}

/// `Jan  1 00:00:05:6`: a moment as C's `ctime` writes it, without weekday and year, and the counter.
fn timestamp(time: Timestamp) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = i64::from(time.seconds);
    let (_, month, day) = calendar::civil(seconds / 86_400);
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let month = MONTHS[month as usize - 1];
    format!("{month} {day:>2} {hour:02}:{minute:02}:{second:02}:{}", time.increment)
}
