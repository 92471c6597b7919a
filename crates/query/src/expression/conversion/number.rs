//! Numbers from other numbers, booleans, dates and texts. Digits behind the point are cut off.

use std::fmt::Display;

use kilim_bson::{Decimal128, RawValue};
use kilim_error::{Error, Result};

use super::{failure, number_text, unsupported};
use crate::filter::number::short;

const LONG_LIMIT: f64 = 9_223_372_036_854_775_808.0;

pub(super) fn to_int(value: RawValue<'_>) -> Result<i32> {
    match value {
        RawValue::Bool(value) => Ok(value.into()),
        // mongod leaves the long out of its message.
        RawValue::Int64(long) => i32::try_from(long).map_err(|_| overflow("")),
        RawValue::Double(double) => {
            check_finite(double.is_nan(), double.is_infinite())?;
            let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&double);
            if fits { Ok(double as i32) } else { Err(overflow(short(double))) }
        }
        RawValue::Decimal128(decimal) => {
            check_finite(decimal.is_nan(), decimal.is_infinite())?;
            decimal.to_i32().ok_or_else(|| overflow(decimal))
        }
        RawValue::String(text) => {
            let long = number_text::parse_long(text)?;
            i32::try_from(long).map_err(|_| number_text::refused(text, "Overflow"))
        }
        _ => Err(unsupported(value, "int")),
    }
}

pub(super) fn to_long(value: RawValue<'_>) -> Result<i64> {
    match value {
        RawValue::Int32(value) => Ok(value.into()),
        RawValue::Bool(value) => Ok(value.into()),
        RawValue::DateTime(millis) => Ok(millis),
        RawValue::Double(double) => {
            check_finite(double.is_nan(), double.is_infinite())?;
            let fits = (-LONG_LIMIT..LONG_LIMIT).contains(&double);
            if fits { Ok(double as i64) } else { Err(overflow(short(double))) }
        }
        RawValue::Decimal128(decimal) => {
            check_finite(decimal.is_nan(), decimal.is_infinite())?;
            decimal.to_i64().ok_or_else(|| overflow(decimal))
        }
        RawValue::String(text) => number_text::parse_long(text),
        _ => Err(unsupported(value, "long")),
    }
}

pub(super) fn to_double(value: RawValue<'_>) -> Result<f64> {
    match value {
        RawValue::Int32(value) => Ok(value.into()),
        RawValue::Int64(value) => Ok(value as f64),
        RawValue::Bool(value) => Ok(value.into()),
        RawValue::DateTime(millis) => Ok(millis as f64),
        RawValue::Decimal128(decimal) => {
            let double = decimal.to_f64();
            let too_large = double.is_infinite() && !decimal.is_infinite();
            // A double that is not normal has lost digits, down to all of them.
            let too_small = double.abs() < f64::MIN_POSITIVE && !decimal.is_zero();
            if too_large || too_small { Err(overflow(decimal)) } else { Ok(double) }
        }
        RawValue::String(text) => number_text::parse_double(text),
        _ => Err(unsupported(value, "double")),
    }
}

pub(super) fn to_decimal(value: RawValue<'_>) -> Result<Decimal128> {
    match value {
        RawValue::Int32(value) => Ok(value.into()),
        RawValue::Int64(value) => Ok(value.into()),
        RawValue::Bool(value) => Ok(i32::from(value).into()),
        RawValue::DateTime(millis) => Ok(millis.into()),
        RawValue::Double(double) => Ok(Decimal128::from_f64(double)),
        RawValue::String(text) => number_text::parse_decimal(text),
        _ => Err(unsupported(value, "decimal")),
    }
}

fn check_finite(nan: bool, infinite: bool) -> Result<()> {
    let what = match (nan, infinite) {
        (true, _) => "NaN",
        (_, true) => "infinity",
        _ => return Ok(()),
    };
    let message =
        format!("Attempt to convert {what} value to integer type in $convert with no onError value");
    Err(failure(message))
}

fn overflow(value: impl Display) -> Error {
    failure(format!("Conversion would overflow target type in $convert with no onError value: {value}"))
}
