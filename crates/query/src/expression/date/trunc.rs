//! `$dateTrunc`: the beginning of the unit, or of the bin of units, in which a date lies.

use std::borrow::Cow;
use std::ops::Range;

use kilim_bson::{RawValue, calendar};
use kilim_error::{Error, Result};

use super::add::shift;
use super::argument::{self, missing, only_an_object};
use super::civil::{Civil, SECONDS_PER_DAY, weekday};
use super::diff::{StartOfWeek, parse_unit, zone};
use super::unit::{Measure, Unit, parse_weekday};
use super::zone::Zone;
use crate::expression::{
    Arguments, Call, Env, Evaluated, Expression, FieldPath, Named, Operator, Parameter, show,
};
use crate::filter::number::exact_i64;

pub const DATE_TRUNC: Operator = Operator::new(
    "$dateTrunc",
    "A date, rounded down to a unit of time or to a bin of them.",
    Arguments::Named(&NAMED),
    evaluate,
)
.prepared_by(prepare);

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

/// Where nothing but the date depends on documents, what the bins are is computed once.
fn prepare(call: &mut Call) -> Result<()> {
    match Bins::constant(call) {
        Some(bins) => call.prepare(bins),
        None => argument::prepare_zone_at(call, TIMEZONE)?,
    }
    Ok(())
}

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    if let Some(bins) = call.prepared::<Bins<'static>>() {
        let date = call.argument(0, env)?;
        if date.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        return Ok(RawValue::DateTime(bins.beginning(require_date(&date)?)?).into());
    }
    let (date, unit) = (call.argument(0, env)?, call.argument(1, env)?);
    let bin_size = if call.is_given(BIN_SIZE) { call.argument(BIN_SIZE, env)? } else { 1.into() };
    if date.is_nullish() || unit.is_nullish() || bin_size.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(week) = StartOfWeek::of(call, START_OF_WEEK, &unit, env)? else { return Ok(Evaluated::NULL) };
    let Some(zone) = zone(call, TIMEZONE, env)? else { return Ok(Evaluated::NULL) };
    let millis = require_date(&date)?;
    let unit = parse_unit(call.operator, &unit)?;
    let bin_size = whole_bin(&bin_size)?;
    let bins = Bins::new(unit, bin_size, week.weekday(call.operator)?, zone);
    Ok(RawValue::DateTime(bins.beginning(millis)?).into())
}

impl Expression {
    /// The field whose dates the expression rounds down, where the bins follow from nothing else and all have one length.
    pub fn rounded_field(&self) -> Option<&FieldPath> {
        let Expression::Call(call) = self else { return None };
        call.prepared::<Bins<'static>>()?.length()?;
        call.expression(0)?.as_field()
    }

    /// The dates that such an expression rounds down to the same as this one.
    pub fn rounded_alike(&self, millis: i64) -> Option<Range<i64>> {
        let Expression::Call(call) = self else { return None };
        let bins = call.prepared::<Bins<'static>>()?;
        let beginning = bins.beginning(millis).ok()?;
        Some(beginning..beginning.checked_add(bins.length()?)?)
    }
}

fn require_date(date: &Evaluated<'_>) -> Result<i64> {
    date.raw().and_then(argument::millis).ok_or_else(|| {
        let found = date.type_name();
        Error::location(5_439_012, format!("$dateTrunc requires 'date' to be a date, but got {found}"))
    })
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

/// What dates are rounded down to.
struct Bins<'z> {
    unit: Unit,
    size: i64,
    zone: Cow<'z, Zone>,
    /// The day from which they are counted.
    first_day: i64,
    /// When it begins.
    reference: i64,
}

impl<'z> Bins<'z> {
    fn new(unit: Unit, size: i64, start_of_week: i64, zone: Cow<'z, Zone>) -> Bins<'z> {
        let first_day = calendar::days(REFERENCE_YEAR, 1, 1);
        // The first day of the first week of bins is the first such weekday of the year.
        let first_day = match unit {
            Unit::Week => first_day + (start_of_week - weekday(first_day)).rem_euclid(7),
            _ => first_day,
        };
        let reference = zone.moment(first_day * SECONDS_PER_DAY, false) * 1000;
        Bins { unit, size, zone, first_day, reference }
    }

    /// Those of a call that no document influences. None as well where an argument is null or wrong: what is said of it then
    /// depends on the date.
    fn constant(call: &Call) -> Option<Bins<'static>> {
        let unit = Unit::parse(argument::constant_text(call, 1)?)?;
        let size = match call.expression(BIN_SIZE) {
            None => 1,
            Some(size) => exact_i64(size.as_constant()?.as_raw()).filter(|size| *size > 0)?,
        };
        let zone = match call.is_given(TIMEZONE) {
            false => Zone::UTC,
            true => Zone::parse(argument::constant_text(call, TIMEZONE)?).ok()?,
        };
        let start_of_week = match unit == Unit::Week && call.is_given(START_OF_WEEK) {
            false => 0,
            true => parse_weekday(argument::constant_text(call, START_OF_WEEK)?)?,
        };
        Some(Bins::new(unit, size, start_of_week, Cow::Owned(zone)))
    }

    /// How long each is, in milliseconds, where all are alike: up to hours, whatever the time zone.
    fn length(&self) -> Option<i64> {
        match self.unit.measure() {
            Measure::Millis(length) => length.checked_mul(self.size),
            Measure::Days(_) | Measure::Months(_) => None,
        }
    }

    /// Where the bin begins in which a date lies.
    fn beginning(&self, millis: i64) -> Result<i64> {
        let overflow = |code| Error::location(code, "dateTrunc overflowed");
        let measure = self.unit.measure();
        if let Measure::Millis(length) = measure {
            let distance = millis.checked_sub(self.reference).ok_or_else(|| overflow(5_439_000))?;
            let bin = length.checked_mul(self.size).ok_or_else(|| overflow(5_439_002))?;
            let bins = distance.div_euclid(bin);
            let beginning = bins.checked_mul(bin).and_then(|distance| self.reference.checked_add(distance));
            return beginning.ok_or_else(|| overflow(5_439_005));
        }
        if self.size > BIN_SIZE_MAX {
            return Err(Error::location(5_439_006, "dateTrunc unsupported binSize value"));
        }
        let civil = Civil::of(self.zone.local(millis.div_euclid(1000)));
        let distance = match measure {
            Measure::Months(length) => {
                ((civil.year - REFERENCE_YEAR) * 12 + civil.month - 1).div_euclid(length)
            }
            Measure::Days(length) => (civil.days - self.first_day).div_euclid(length),
            Measure::Millis(_) => unreachable!("handled above"),
        };
        shift(self.reference, self.unit, distance.div_euclid(self.size) * self.size, &self.zone)
    }
}
