//! `$dateAdd` and `$dateSubtract`: a date some units later or earlier.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::argument;
use super::civil::{Civil, SECONDS_PER_DAY, days_carried, days_in_month};
use super::unit::{Measure, Unit};
use super::zone::Zone;
use crate::expression::{Arguments, Call, Env, Evaluated, Named, Operator, Parameter};
use crate::filter::number::exact_i64;

pub const DATE_ADD: Operator =
    Operator::new("$dateAdd", "A date, some units of time later.", Arguments::Named(&NAMED), date_add)
        .prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE));

pub const DATE_SUBTRACT: Operator = Operator::new(
    "$dateSubtract",
    "A date, some units of time earlier.",
    Arguments::Named(&NAMED),
    date_subtract,
)
.prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE));

static NAMED: Named = Named {
    parameters: &[
        Parameter::required("startDate"),
        Parameter::required("unit"),
        Parameter::required("amount"),
        Parameter::optional("timezone"),
    ],
    not_an_object: |operator, _| {
        Error::location(5_166_400, format!("{} expects an object as its argument", operator.name))
    },
    unknown: |operator, name| {
        Error::location(
            5_166_401,
            format!(
                "Unrecognized argument to {}: {name}. Expected arguments are startDate, unit, amount, and \
                 optionally timezone.",
                operator.name
            ),
        )
    },
    missing: |operator, _| {
        Error::location(
            5_166_402,
            format!("{} requires startDate, unit, and amount to be present", operator.name),
        )
    },
};
const TIMEZONE: usize = 3;

fn date_add<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    evaluate(call, env, Ok)
}

fn date_subtract<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    evaluate(call, env, |amount| {
        amount.checked_neg().ok_or_else(|| {
            Error::location(6_045_000, format!("invalid $dateSubtract 'amount' parameter value: {amount}"))
        })
    })
}

fn evaluate<'a>(call: &'a Call, env: &Env<'a>, directed: fn(i64) -> Result<i64>) -> Result<Evaluated<'a>> {
    let name = call.operator.name;
    let (date, unit, amount) = (call.argument(0, env)?, call.argument(1, env)?, call.argument(2, env)?);
    if date.is_nullish() || unit.is_nullish() || amount.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(zone) = argument::zone(call, TIMEZONE, env)? else { return Ok(Evaluated::NULL) };
    let millis = date.raw().and_then(argument::millis).ok_or_else(|| {
        Error::location(5_166_403, format!("{name} requires startDate to be convertible to a date"))
    })?;
    let unit = unit
        .as_str()
        .ok_or_else(|| Error::location(5_166_404, format!("{name} expects string defining the time unit")))?;
    let unit = Unit::parse(unit)
        .ok_or_else(|| Error::user(ErrorCode::FailedToParse, format!("unknown time unit value: {unit}")))?;
    let amount = amount
        .raw()
        .and_then(exact_i64)
        .ok_or_else(|| Error::location(5_166_405, format!("{name} expects integer amount of time units")))?;
    let millis = shift(millis, unit, directed(amount)?, &zone)?;
    Ok(RawValue::DateTime(millis).into())
}

/// All dates there are span this many days. An amount that exceeds them leaves the range from wherever it
/// begins.
const DAYS_MAX: i64 = 213_503_982_334;

fn amount_max(unit: Unit) -> i64 {
    let years = DAYS_MAX / 365;
    match unit {
        Unit::Year => years,
        Unit::Quarter => (years + 1) * 4 - 1,
        Unit::Month => (years + 1) * 12 - 1,
        Unit::Week => DAYS_MAX / 7,
        Unit::Day => DAYS_MAX,
        Unit::Hour => (DAYS_MAX + 1) * 24 - 1,
        Unit::Minute => (DAYS_MAX + 1) * 1440 - 1,
        Unit::Second => (DAYS_MAX + 1) * SECONDS_PER_DAY - 1,
        Unit::Millisecond => i64::MAX,
    }
}

/// The date `amount` units after another. Months and days keep what the zone's clock shows, a day that the
/// month does not have becoming its last; hours and less are time passed.
pub fn shift(millis: i64, unit: Unit, amount: i64, zone: &Zone) -> Result<i64> {
    if unit == Unit::Millisecond {
        return millis.checked_add(amount).ok_or_else(|| {
            let sum = millis.wrapping_add(amount);
            Error::location(159, format!("Overflow while adding {amount}ms to {sum}ms"))
        });
    }
    if amount.unsigned_abs() > amount_max(unit).unsigned_abs() {
        let message = format!("invalid dateAdd 'amount' parameter value: {amount} {}", unit.name());
        return Err(Error::location(5_976_500, message));
    }
    // Seconds are rounded down but their fraction is counted from zero, so a date before 1970 that has one
    // comes out a second early. That is what mongod answers, and results are compared.
    let (seconds, fraction) = (millis.div_euclid(1000), millis % 1000);
    if amount == 0 {
        return to_millis(seconds, fraction);
    }
    let going = zone.going(seconds);
    let local = seconds + going.offset;
    let local = match unit.measure() {
        Measure::Millis(length) => return to_millis(seconds + amount * (length / 1000), fraction),
        Measure::Days(length) => local + amount * length * SECONDS_PER_DAY,
        Measure::Months(length) => {
            let civil = Civil::of(local);
            let month = civil.month + amount * length;
            let day = civil.day.min(days_in_month(civil.year, month));
            days_carried(civil.year, month, day) * SECONDS_PER_DAY + civil.second_of_day()
        }
    };
    // A fraction below zero belongs to the second before, which may go by another offset.
    let (local, fraction) = (local + fraction.div_euclid(1000), fraction.rem_euclid(1000));
    to_millis(zone.moment(local, going.summer), fraction)
}

fn to_millis(seconds: i64, fraction: i64) -> Result<i64> {
    i64::try_from(i128::from(seconds) * 1000 + i128::from(fraction))
        .ok()
        .filter(|millis| *millis != i64::MIN)
        .ok_or_else(|| Error::location(5_166_406, "dateAdd overflowed"))
}
