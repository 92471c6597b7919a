//! `$dateDiff`: how many boundaries of a unit lie between two dates.

use kilim_error::{Error, Result};

use super::argument::{self, missing, only_an_object, unrecognized};
use super::civil::Civil;
use super::unit::{Unit, parse_weekday};
use super::zone::Zone;
use crate::expression::{Arguments, Call, Env, Evaluated, Named, Operator, Parameter};

pub const DATE_DIFF: Operator =
    Operator::new("$dateDiff", "The number of units between two dates.", Arguments::Named(&NAMED), evaluate)
        .prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE));

static NAMED: Named = Named {
    parameters: &[
        Parameter::required("startDate"),
        Parameter::required("endDate"),
        Parameter::required("unit"),
        Parameter::optional("timezone"),
        Parameter::optional("startOfWeek"),
    ],
    not_an_object: |operator, _| only_an_object(5_166_301, operator),
    unknown: |operator, name| unrecognized(5_166_302, operator, name),
    missing: |operator, name| {
        let code = match name {
            "startDate" => 5_166_303,
            "endDate" => 5_166_304,
            _ => 5_166_305,
        };
        missing(code, operator, name)
    },
};
const TIMEZONE: usize = 3;
const START_OF_WEEK: usize = 4;

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    // What stands behind something that is null is not computed, so it cannot fail.
    let start = call.argument(0, env)?;
    if start.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let end = call.argument(1, env)?;
    if end.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let unit = call.argument(2, env)?;
    if unit.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(week) = StartOfWeek::of(call, START_OF_WEEK, &unit, env)? else { return Ok(Evaluated::NULL) };
    let Some(zone) = zone(call, TIMEZONE, env)? else { return Ok(Evaluated::NULL) };
    let millis = |name: &str, value: &Evaluated<'_>| {
        value.raw().and_then(argument::millis).ok_or_else(|| {
            let found = value.type_name();
            Error::location(5_166_307, format!("$dateDiff requires '{name}' to be a date, but got {found}"))
        })
    };
    let (start, end) = (millis("startDate", &start)?, millis("endDate", &end)?);
    let unit = parse_unit(call.operator, &unit)?;
    between(start, end, unit, week.weekday(call.operator)?, &zone).map(Evaluated::from)
}

/// The time zone, whose errors these operators explain.
pub fn zone<'a>(call: &'a Call, index: usize, env: &Env<'a>) -> Result<Option<std::borrow::Cow<'a, Zone>>> {
    argument::zone(call, index, env).map_err(|error| match error {
        Error::User(user) if [40_485, 40_517].contains(&user.code.0) => Error::user(
            user.code,
            format!(
                "{} parameter 'timezone' value parsing failed :: caused by :: {}",
                call.operator.name, user.message
            ),
        ),
        other => other,
    })
}

pub fn parse_unit(operator: &Operator, value: &Evaluated<'_>) -> Result<Unit> {
    let name = operator.name;
    let text = value.as_str().ok_or_else(|| {
        let found = value.type_name();
        Error::location(5_439_013, format!("{name} requires 'unit' to be a string, but got {found}"))
    })?;
    Unit::parse(text).ok_or_else(|| {
        Error::location(
            5_439_014,
            format!("{name} parameter 'unit' value cannot be recognized as a time unit: {text}"),
        )
    })
}

/// The argument of that name, which is looked at for weeks only.
pub struct StartOfWeek<'a> {
    value: Option<Evaluated<'a>>,
}

impl<'a> StartOfWeek<'a> {
    /// None where it counts and is null.
    pub fn of(
        call: &'a Call,
        index: usize,
        unit: &Evaluated<'_>,
        env: &Env<'a>,
    ) -> Result<Option<StartOfWeek<'a>>> {
        if !call.is_given(index) || unit.as_str() != Some(Unit::Week.name()) {
            return Ok(Some(StartOfWeek { value: None }));
        }
        let value = call.argument(index, env)?;
        Ok((!value.is_nullish()).then_some(StartOfWeek { value: Some(value) }))
    }

    /// Sunday, which is 0, where nothing was said.
    pub fn weekday(&self, operator: &Operator) -> Result<i64> {
        let name = operator.name;
        let Some(value) = &self.value else { return Ok(0) };
        let text = value.as_str().ok_or_else(|| {
            let found = value.type_name();
            Error::location(
                5_439_015,
                format!("{name} requires 'startOfWeek' to be a string, but got {found}"),
            )
        })?;
        parse_weekday(text).ok_or_else(|| {
            Error::location(
                5_439_016,
                format!(
                    "{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}"
                ),
            )
        })
    }
}

fn between(start: i64, end: i64, unit: Unit, start_of_week: i64, zone: &Zone) -> Result<i64> {
    if unit == Unit::Millisecond {
        return end.checked_sub(start).ok_or_else(|| Error::location(5_166_308, "dateDiff overflowed"));
    }
    let count = |(seconds, offset): (i64, i64)| {
        let local = seconds + offset;
        let civil = || Civil::of(local);
        match unit {
            Unit::Year => civil().year,
            Unit::Quarter => civil().year * 4 + (civil().month - 1) / 3,
            Unit::Month => civil().year * 12 + civil().month,
            // 1970 began on a Thursday.
            Unit::Week => (civil().days + 4 - start_of_week).div_euclid(7),
            Unit::Day => civil().days,
            Unit::Hour => local.div_euclid(3600),
            Unit::Minute => local.div_euclid(60),
            Unit::Second | Unit::Millisecond => local,
        }
    };
    let at = |millis: i64| {
        let seconds = millis.div_euclid(1000);
        (seconds, zone.offset(seconds))
    };
    let (start, end) = (at(start), at(end));
    // Hours and less are time passed: what the clock was put forward or back meanwhile does not count.
    let moved = start.1 - end.1;
    let put_back = match unit {
        Unit::Hour => moved / 3600,
        Unit::Minute => moved / 60,
        Unit::Second => moved,
        _ => 0,
    };
    Ok(count(end) - count(start) + put_back)
}
