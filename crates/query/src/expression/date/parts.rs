//! `$dateToParts` takes a date apart, `$dateFromParts` puts one together.

use kilim_bson::{Document, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::argument::{self, missing, only_an_object, unrecognized};
use super::civil::{Civil, SECONDS_PER_DAY, days_carried, first_iso_monday};
use super::part::int;
use crate::expression::parse::parse_named;
use crate::expression::{
    Arguments, Call, Env, Evaluated, Expression, Named, Operator, Parameter, Scope, show,
};
use crate::filter::number::exact_i64;

pub const DATE_TO_PARTS: Operator = Operator::new(
    "$dateToParts",
    "The parts of a date as a document.",
    Arguments::Named(&TO_PARTS),
    to_parts,
)
.prepared_by(|call| argument::prepare_zone_at(call, 1));

pub const DATE_FROM_PARTS: Operator = Operator::new(
    "$dateFromParts",
    "The date with the given parts.",
    Arguments::Special(parse_from_parts),
    from_parts,
)
.prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE))
.shown_by(show_from_parts);

static TO_PARTS: Named = Named {
    parameters: &[
        Parameter::required("date"),
        Parameter::optional("timezone"),
        Parameter::optional("iso8601"),
    ],
    not_an_object: |operator, _| only_an_object(40_524, operator),
    unknown: |operator, name| unrecognized(40_520, operator, name),
    missing: |operator, name| missing(40_522, operator, name),
};

fn to_parts<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let date = call.argument(0, env)?;
    let Some(zone) = argument::zone(call, 1, env)? else { return Ok(Evaluated::NULL) };
    let mut iso = false;
    if call.is_given(2) {
        let value = call.argument(2, env)?;
        if value.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        iso = value.raw().and_then(RawValue::as_bool).ok_or_else(|| {
            Error::location(40_521, format!("iso8601 must evaluate to a bool, found {}", value.type_name()))
        })?;
    }
    if date.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let (seconds, millisecond) = argument::split(argument::require_millis(&date)?);
    let civil = Civil::of(zone.local(seconds));
    let day = if iso {
        let (year, week) = civil.iso_week();
        [("isoWeekYear", year), ("isoWeek", week), ("isoDayOfWeek", civil.iso_weekday())]
    } else {
        [("year", civil.year), ("month", civil.month), ("day", civil.day)]
    };
    let time = [
        ("hour", civil.hour),
        ("minute", civil.minute),
        ("second", civil.second),
        ("millisecond", millisecond),
    ];
    let mut parts = Writer::with_capacity(128);
    for (name, number) in day.into_iter().chain(time) {
        parts.append(name, int(number).raw_or_null());
    }
    Ok(parts.finish().into())
}

/// In the order in which explain shows them.
static FROM_PARTS: Named = Named {
    parameters: &[
        Parameter::optional("year"),
        Parameter::optional("month"),
        Parameter::optional("day"),
        Parameter::optional("hour"),
        Parameter::optional("minute"),
        Parameter::optional("second"),
        Parameter::optional("millisecond"),
        Parameter::optional("isoWeekYear"),
        Parameter::optional("isoWeek"),
        Parameter::optional("isoDayOfWeek"),
        Parameter::optional("timezone"),
    ],
    not_an_object: |operator, _| only_an_object(40_519, operator),
    unknown: |operator, name| unrecognized(40_518, operator, name),
    missing: |operator, name| missing(40_516, operator, name),
};
const YEAR: usize = 0;
const HOUR: usize = 3;
const SECOND: usize = 5;
const MILLISECOND: usize = 6;
const ISO_WEEK_YEAR: usize = 7;
const TIMEZONE: usize = 10;

fn parse_from_parts(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let arguments = parse_named(operator, &FROM_PARTS, operand, scope)?;
    let any = |range: std::ops::Range<usize>| arguments[range].iter().any(Option::is_some);
    if arguments[YEAR].is_none() && arguments[ISO_WEEK_YEAR].is_none() {
        return Err(Error::location(
            40_516,
            "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
        ));
    }
    if arguments[YEAR].is_some() && any(ISO_WEEK_YEAR..TIMEZONE) {
        return Err(Error::location(
            40_489,
            "$dateFromParts does not allow mixing natural dates with ISO dates",
        ));
    }
    if arguments[ISO_WEEK_YEAR].is_some() && any(YEAR..HOUR) {
        return Err(Error::location(
            40_525,
            "$dateFromParts does not allow mixing ISO dates with natural dates",
        ));
    }
    Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
}

fn show_from_parts(call: &Call) -> Value {
    let shown = FROM_PARTS.parameters.iter().zip(&call.arguments);
    let shown = shown.filter_map(|(known, argument)| Some((known.name, argument.as_ref()?.to_value())));
    Value::Document(shown.collect::<Document>())
}

fn from_parts<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(zone) = argument::zone(call, TIMEZONE, env)? else { return Ok(Evaluated::NULL) };
    // The time comes first, as mongod looks at it first.
    let mut time = [0; 4];
    for (offset, part) in time.iter_mut().enumerate() {
        match whole_part(call, HOUR + offset, env, 0)? {
            Some(number) => *part = number,
            None => return Ok(Evaluated::NULL),
        }
    }
    let first = if call.is_given(YEAR) { YEAR } else { ISO_WEEK_YEAR };
    let mut day = [1; 3];
    for (offset, part) in day.iter_mut().enumerate() {
        match whole_part(call, first + offset, env, 1)? {
            Some(number) => *part = number,
            None => return Ok(Evaluated::NULL),
        }
    }
    let [year, second_part, third_part] = day;
    if !(1..=9999).contains(&year) {
        let (name, code) = if first == YEAR { ("year", 40_523) } else { ("isoWeekYear", 31_095) };
        return Err(Error::location(
            code,
            format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {year}"),
        ));
    }
    let days = if first == YEAR {
        days_carried(year, second_part, third_part)
    } else {
        first_iso_monday(year) + (second_part - 1) * 7 + third_part - 1
    };
    if time[3].checked_mul(1000).is_none() {
        // mongod counts microseconds.
        return Err(overflow());
    }
    let [hour, minute, second, millisecond] = time.map(i128::from);
    let seconds = i128::from(days * SECONDS_PER_DAY) + hour * 3600 + minute * 60;
    let millis = (seconds + second) * 1000 + millisecond;
    let local = i64::try_from(millis).map_err(|_| overflow())?;
    let (seconds, millisecond) = argument::split(local);
    let moment = i128::from(zone.moment(seconds, false)) * 1000 + i128::from(millisecond);
    let moment = i64::try_from(moment).map_err(|_| overflow())?;
    Ok(RawValue::DateTime(moment).into())
}

pub fn overflow() -> Error {
    Error::user(
        ErrorCode::DurationOverflow,
        "Overflow casting from a lower-precision duration to a higher-precision duration",
    )
}

/// A part's number; none for null. Seconds and milliseconds may be any, the others have 16 bits.
fn whole_part(call: &Call, index: usize, env: &Env<'_>, default: i64) -> Result<Option<i64>> {
    if !call.is_given(index) {
        return Ok(Some(default));
    }
    let value = call.argument(index, env)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let name = FROM_PARTS.parameters[index].name;
    let raw = value.raw_or_null();
    let number = exact_i64(raw).ok_or_else(|| {
        let found = show::show(raw);
        Error::location(
            40_515,
            format!("'{name}' must evaluate to an integer, found {} with value {found}", value.type_name()),
        )
    })?;
    let bounded = !matches!(index, YEAR | ISO_WEEK_YEAR | SECOND | MILLISECOND);
    if bounded && i16::try_from(number).is_err() {
        let message = format!(
            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"
        );
        return Err(Error::location(31_034, message));
    }
    Ok(Some(number))
}
