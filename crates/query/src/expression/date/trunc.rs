//! `$dateTrunc`: the beginning of the unit, or of the bin of units, in which a date lies.

use kilim_bson::{RawValue, calendar};
use kilim_error::{Error, Result};

use super::add::shift;
use super::argument::{self, missing, only_an_object};
use super::civil::{Civil, SECONDS_PER_DAY, weekday};
use super::diff::{StartOfWeek, parse_unit, zone};
use super::unit::{Measure, Unit};
use super::zone::Zone;
use crate::expression::{Arguments, Call, Env, Evaluated, Named, Operator, Parameter, show};
use crate::filter::number::exact_i64;

pub const DATE_TRUNC: Operator = Operator::new(
    "$dateTrunc",
    "A date, rounded down to a unit of time or to a bin of them.",
    Arguments::Named(&NAMED),
    evaluate,
)
.prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE));

static NAMED: Named = Named {
    parameters: &[
        Parameter::required("date"),
        Parameter::required("unit"),
        Parameter::optional("binSize"),
        Parameter::optional("timezone"),
        Parameter::optional("startOfWeek"),
    ],
    not_an_object: |operator, _| only_an_object(5_439_007, operator),
    unknown: |operator, name| {
        Error::location(
            5_439_008,
            format!(
                "Unrecognized argument to {}: {name}. Expected arguments are date, unit, and optionally, \
                 binSize, timezone, startOfWeek",
                operator.name
            ),
        )
    },
    missing: |operator, name| missing(if name == "date" { 5_439_009 } else { 5_439_010 }, operator, name),
};
const BIN_SIZE: usize = 2;
const TIMEZONE: usize = 3;
const START_OF_WEEK: usize = 4;

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let (date, unit) = (call.argument(0, env)?, call.argument(1, env)?);
    let bin_size = if call.is_given(BIN_SIZE) { call.argument(BIN_SIZE, env)? } else { 1.into() };
    if date.is_nullish() || unit.is_nullish() || bin_size.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(week) = StartOfWeek::of(call, START_OF_WEEK, &unit, env)? else { return Ok(Evaluated::NULL) };
    let Some(zone) = zone(call, TIMEZONE, env)? else { return Ok(Evaluated::NULL) };
    let millis = date.raw().and_then(argument::millis).ok_or_else(|| {
        let found = date.type_name();
        Error::location(5_439_012, format!("$dateTrunc requires 'date' to be a date, but got {found}"))
    })?;
    let unit = parse_unit(call.operator, &unit)?;
    let bin_size = whole_bin(&bin_size)?;
    let millis = truncate(millis, unit, bin_size, week.weekday(call.operator)?, &zone)?;
    Ok(RawValue::DateTime(millis).into())
}

fn whole_bin(value: &Evaluated<'_>) -> Result<i64> {
    let raw = value.raw_or_null();
    let number = exact_i64(raw).ok_or_else(|| {
        Error::location(
            5_439_017,
            format!(
                "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                show::show(raw),
                value.type_name()
            ),
        )
    })?;
    if number <= 0 {
        return Err(Error::location(
            5_439_018,
            format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {number}"),
        ));
    }
    Ok(number)
}

/// Bins of days and longer may have this many.
const BIN_SIZE_MAX: i64 = 100_000_000_000;
/// All bins are counted from the beginning of this year.
const REFERENCE_YEAR: i64 = 2000;

fn truncate(millis: i64, unit: Unit, bin_size: i64, start_of_week: i64, zone: &Zone) -> Result<i64> {
    let overflow = |code| Error::location(code, "dateTrunc overflowed");
    let first_day = calendar::days(REFERENCE_YEAR, 1, 1);
    let moment_of = |days: i64| zone.moment(days * SECONDS_PER_DAY, false) * 1000;
    if let Measure::Millis(length) = unit.measure() {
        let reference = moment_of(first_day);
        let distance = millis.checked_sub(reference).ok_or_else(|| overflow(5_439_000))?;
        let bin = length.checked_mul(bin_size).ok_or_else(|| overflow(5_439_002))?;
        let bins = distance.div_euclid(bin);
        let beginning = bins.checked_mul(bin).and_then(|distance| reference.checked_add(distance));
        return beginning.ok_or_else(|| overflow(5_439_005));
    }
    if bin_size > BIN_SIZE_MAX {
        return Err(Error::location(5_439_006, "dateTrunc unsupported binSize value"));
    }
    let civil = Civil::of(zone.local(millis.div_euclid(1000)));
    // The first day of the first week of bins is the first such weekday of the year.
    let first_day = match unit {
        Unit::Week => first_day + (start_of_week - weekday(first_day)).rem_euclid(7),
        _ => first_day,
    };
    let distance = match unit.measure() {
        Measure::Months(length) => ((civil.year - REFERENCE_YEAR) * 12 + civil.month - 1).div_euclid(length),
        Measure::Days(length) => (civil.days - first_day).div_euclid(length),
        Measure::Millis(_) => unreachable!("handled above"),
    };
    shift(moment_of(first_day), unit, distance.div_euclid(bin_size) * bin_size, zone)
}
