//! `$round` and `$trunc`, to a place behind or before the point.

use kilim_bson::{Decimal128, Rounding};
use kilim_error::{Error, Result};

use super::{Number, only_numbers, out_of_long_range};
use crate::expression::{Call, Env, Evaluated};

/// Places that can be asked for.
const PLACES_MIN: i32 = -20;
const PLACES_MAX: i32 = 100;

pub(super) fn round<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    evaluate(call, env, Rounding::HalfEven, f64::round_ties_even)
}

pub(super) fn trunc<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    evaluate(call, env, Rounding::TowardZero, f64::trunc)
}

fn evaluate<'a>(
    call: &'a Call,
    env: &Env<'a>,
    rounding: Rounding,
    to_whole: fn(f64) -> f64,
) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    if value.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(number) = Number::of_evaluated(&value) else {
        return Err(only_numbers(51_081, call.operator, &value));
    };
    let name = call.operator.name;
    let places = if call.is_given(1) {
        let place = call.argument(1, env)?;
        if place.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        parse_places(name, &place)?
    } else {
        0
    };
    let rounded = match number {
        Number::Int(value) if places < 0 => {
            let rounded = round_whole(value.into(), places, rounding).unwrap_or_default();
            // Upwards an int becomes a long; downwards mongod lets it wrap around.
            if rounded > i64::from(i32::MAX) { Number::Long(rounded) } else { Number::Int(rounded as i32) }
        }
        Number::Long(value) if places < 0 => {
            Number::Long(round_whole(value, places, rounding).ok_or_else(|| {
                let message = format!(
                    "invalid conversion from Decimal128 result in {name} resulting from arguments: [{value}, {places}]"
                );
                Error::location(51_080, message)
            })?)
        }
        Number::Double(value) if places == 0 || !value.is_finite() => Number::Double(to_whole(value)),
        Number::Double(value) => {
            Number::Double(Decimal128::from_f64_all_digits(value).round(places, rounding).to_f64())
        }
        Number::Decimal(value) => Number::Decimal(value.round(places, rounding)),
        whole => whole,
    };
    Ok(rounded.into())
}

fn parse_places(name: &str, place: &Evaluated<'_>) -> Result<i32> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let not_whole =
        || Error::location(51_082, format!("precision argument to  {name} must be a integral value"));
    let whole = match Number::of_evaluated(place) {
        None => {
            let message = format!("can't convert from BSON type {} to long", place.type_name());
            return Err(Error::location(16_004, message));
        }
        Some(Number::Int(value)) => Some(i64::from(value)),
        Some(Number::Long(value)) => Some(value),
        Some(Number::Double(value)) if !(-LIMIT..LIMIT).contains(&value) => {
            return Err(out_of_long_range(value));
        }
        Some(Number::Double(value)) => (value == value.trunc()).then_some(value as i64),
        Some(Number::Decimal(value)) => value.to_i64_exact(),
    };
    let places = whole.and_then(|value| i32::try_from(value).ok()).ok_or_else(not_whole)?;
    if !(PLACES_MIN..=PLACES_MAX).contains(&places) {
        let message = format!(
            "cannot apply {name} with precision value {places} value must be in [{PLACES_MIN}, {PLACES_MAX}]"
        );
        return Err(Error::location(51_083, message));
    }
    Ok(places)
}

/// A whole number rounded to tens, hundreds and so on; none if that leaves a long's range.
fn round_whole(value: i64, places: i32, rounding: Rounding) -> Option<i64> {
    Decimal128::from(value).round(places, rounding).to_i64()
}
