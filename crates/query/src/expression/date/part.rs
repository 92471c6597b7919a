//! One part of a date: `$year`, `$hour`, `$isoWeek` and the others.
//!
//! The operand is the date, a list of one, or `{date, timezone}`.

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::argument;
use super::civil::Civil;
use crate::expression::{Arguments, Call, Env, Evaluated, Expression, Operator, Scope, show};
use crate::text;

pub const YEAR: Operator = operator("$year", "The year of a date.", year);
pub const MONTH: Operator = operator("$month", "The month of a date, from 1 to 12.", month);
pub const DAY_OF_MONTH: Operator =
    operator("$dayOfMonth", "The day of the month of a date, from 1 to 31.", day_of_month);
pub const DAY_OF_WEEK: Operator =
    operator("$dayOfWeek", "The day of the week of a date, from 1 (Sunday) to 7.", day_of_week);
pub const DAY_OF_YEAR: Operator =
    operator("$dayOfYear", "The day of the year of a date, from 1 to 366.", day_of_year);
pub const HOUR: Operator = operator("$hour", "The hour of a date, from 0 to 23.", hour);
pub const MINUTE: Operator = operator("$minute", "The minute of a date, from 0 to 59.", minute);
pub const SECOND: Operator = operator("$second", "The second of a date, from 0 to 59.", second);
pub const MILLISECOND: Operator =
    operator("$millisecond", "The milliseconds of a date, from 0 to 999.", millisecond);
pub const WEEK: Operator = operator("$week", "The week of the year of a date; weeks begin on Sundays.", week);
pub const ISO_WEEK: Operator =
    operator("$isoWeek", "The week of a date by ISO 8601, from 1 to 53.", iso_week);
pub const ISO_WEEK_YEAR: Operator =
    operator("$isoWeekYear", "The year that the week of a date belongs to by ISO 8601.", iso_week_year);
pub const ISO_DAY_OF_WEEK: Operator =
    operator("$isoDayOfWeek", "The day of the week of a date, from 1 (Monday) to 7.", iso_day_of_week);

type Part = for<'a> fn(&'a Call, &Env<'a>) -> Result<Evaluated<'a>>;

const fn operator(name: &'static str, help: &'static str, evaluate: Part) -> Operator {
    Operator::new(name, help, Arguments::Special(parse), evaluate)
        .prepared_by(|call| argument::prepare_zone_at(call, 1))
        .shown_by(show_operand)
}

fn parse(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let name = operator.name;
    let arguments = match operand {
        RawValue::Array(list) => {
            let count = list.len();
            let Some(only) = list.get(0).filter(|_| count == 1) else {
                return Err(Error::location(
                    40_536,
                    format!("{name} accepts exactly one argument if given an array, but was given {count}"),
                ));
            };
            [Some(Expression::parse(only, scope)?), None]
        }
        RawValue::Document(document)
            if document.iter().next().is_none_or(|(first, _)| !first.starts_with('$')) =>
        {
            let (mut date, mut timezone) = (None, None);
            for (field, value) in document {
                let argument = match field {
                    "date" => &mut date,
                    "timezone" => &mut timezone,
                    _ => {
                        let message = format!("unrecognized option to {name}: \"{field}\"");
                        return Err(Error::location(40_535, message));
                    }
                };
                *argument = Some(Expression::parse(value, scope)?);
            }
            if date.is_none() {
                let provided = text::element(name, operand);
                let message = format!("missing 'date' argument to {name}, provided: {provided}");
                return Err(Error::location(40_539, message));
            }
            [date, timezone]
        }
        _ => [Some(Expression::parse(operand, scope)?), None],
    };
    Ok(Expression::Call(Box::new(Call::new(operator, arguments.into()))))
}

fn show_operand(call: &Call) -> Value {
    let shown = ["date", "timezone"].into_iter().zip(&call.arguments);
    let shown = shown.filter_map(|(name, argument)| Some((name, argument.as_ref()?.to_value())));
    Value::Document(shown.collect::<Document>())
}

/// The date of a call as its time zone's clock shows it, with milliseconds; none for null.
fn civil(call: &Call, env: &Env<'_>) -> Result<Option<(Civil, i64)>> {
    let date = call.argument(0, env)?;
    if date.is_nullish() {
        return Ok(None);
    }
    let (seconds, millisecond) = argument::split(argument::require_millis(&date)?);
    let zone = argument::zone_or(call, 1, env, |value| {
        Error::location(
            40_533,
            format!(
                "{} requires a string for the timezone argument, but was given a {} ({})",
                call.operator.name,
                value.type_name(),
                show::show(value.raw_or_null())
            ),
        )
    })?;
    Ok(zone.map(|zone| (Civil::of(zone.local(seconds)), millisecond)))
}

fn part<'a>(call: &'a Call, env: &Env<'a>, part: fn(&Civil) -> i64) -> Result<Evaluated<'a>> {
    Ok(civil(call, env)?.map_or(Evaluated::NULL, |(civil, _)| int(part(&civil))))
}

/// As an int: every year of a date fits.
pub fn int<'a>(number: i64) -> Evaluated<'a> {
    i32::try_from(number).map_or_else(|_| number.into(), Evaluated::from)
}

fn year<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.year)
}

fn month<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.month)
}

fn day_of_month<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.day)
}

fn day_of_week<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.weekday() + 1)
}

fn day_of_year<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, Civil::day_of_year)
}

fn hour<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.hour)
}

fn minute<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.minute)
}

fn second<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.second)
}

fn millisecond<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(civil(call, env)?.map_or(Evaluated::NULL, |(_, millisecond)| int(millisecond)))
}

fn week<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, Civil::week)
}

fn iso_week<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, |civil| civil.iso_week().1)
}

fn iso_week_year<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(civil(call, env)?.map_or(Evaluated::NULL, |(civil, _)| civil.iso_week().0.into()))
}

fn iso_day_of_week<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    part(call, env, Civil::iso_weekday)
}
