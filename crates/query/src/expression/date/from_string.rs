//! `$dateFromString` reads a date from a text.

use kilim_error::{Error, ErrorCode, Result};

use super::argument::{self, missing, unrecognized};
use super::format::{Purpose, check};
use super::read::{by_format, failure, free};
use super::zone::Zone;
use crate::expression::{Arguments, Call, Env, Evaluated, Named, Operator, Parameter, show};

pub const DATE_FROM_STRING: Operator =
    Operator::new("$dateFromString", "The date that a text says.", Arguments::Named(&NAMED), evaluate)
        .prepared_by(|call| argument::prepare_zone_at(call, TIMEZONE));

static NAMED: Named = Named {
    parameters: &[
        Parameter::required("dateString"),
        Parameter::optional("timezone"),
        Parameter::optional("format"),
        Parameter::optional("onNull"),
        Parameter::optional("onError"),
    ],
    not_an_object: |operator, operand| {
        let found = operand.element_type().name();
        Error::location(
            40_540,
            format!("{} only supports an object as an argument, found: {found}", operator.name),
        )
    },
    unknown: |operator, name| unrecognized(40_541, operator, name),
    missing: |operator, name| missing(40_542, operator, name),
};
const TEXT: usize = 0;
const TIMEZONE: usize = 1;
const FORMAT: usize = 2;
const ON_NULL: usize = 3;
const ON_ERROR: usize = 4;

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let text = call.argument(TEXT, env)?;
    let format = call.argument(FORMAT, env)?;
    let has_format = call.is_given(FORMAT);
    if has_format && !format.is_nullish() {
        let format = format.as_str().ok_or_else(|| {
            let shown = show::show(format.raw_or_null());
            Error::location(
                40_684,
                format!(
                    "$dateFromString requires that 'format' be a string, found: {} with value {shown}",
                    format.type_name()
                ),
            )
        })?;
        check(format, Purpose::Read)?;
    }
    let zone = argument::zone(call, TIMEZONE, env)?;
    if text.is_nullish() {
        return if call.is_given(ON_NULL) { call.argument(ON_NULL, env) } else { Ok(Evaluated::NULL) };
    }
    let read = || -> Result<Evaluated<'a>> {
        let text = text.as_str().ok_or_else(|| {
            let shown = show::show(text.raw_or_null());
            failure(format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {shown}",
                text.type_name()
            ))
        })?;
        let Some(zone) = &zone else { return Ok(Evaluated::NULL) };
        let zone: Option<&Zone> = call.is_given(TIMEZONE).then_some(zone);
        let reading = match format.as_str() {
            Some(format) => by_format::read(text, format),
            None if has_format => return Ok(Evaluated::NULL),
            None => free::read(text)?,
        };
        let millis = reading.moment(text, zone)?;
        Ok(kilim_bson::RawValue::DateTime(millis).into())
    };
    match read() {
        Err(error) if call.is_given(ON_ERROR) && error.code() == ErrorCode::ConversionFailure => {
            call.argument(ON_ERROR, env)
        }
        result => result,
    }
}
