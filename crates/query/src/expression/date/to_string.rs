//! `$dateToString` prints a date.

use std::borrow::Cow;
use std::sync::LazyLock;

use kilim_error::{Error, Result};

use super::argument::{self, Prepared, missing, only_an_object, unrecognized};
use super::format::{Format, ISO};
use crate::expression::{Arguments, Call, Env, Evaluated, Named, Operator, Parameter, show};

pub const DATE_TO_STRING: Operator = Operator::new(
    "$dateToString",
    "A date as a text, in a format and a time zone.",
    Arguments::Named(&NAMED),
    evaluate,
)
.prepared_by(prepare);

static NAMED: Named = Named {
    parameters: &[
        Parameter::required("date"),
        Parameter::optional("format"),
        Parameter::optional("timezone"),
        Parameter::optional("onNull"),
    ],
    not_an_object: |operator, _| only_an_object(18_629, operator),
    unknown: |operator, name| unrecognized(18_534, operator, name),
    missing: |operator, name| missing(18_628, operator, name),
};
const DATE: usize = 0;
const FORMAT: usize = 1;
const TIMEZONE: usize = 2;
const ON_NULL: usize = 3;

pub static ISO_FORMAT: LazyLock<Format> =
    LazyLock::new(|| Format::parse(ISO).expect("the format is in order"));

fn prepare(call: &mut Call) -> Result<()> {
    argument::prepare_zone_at(call, TIMEZONE)?;
    let format = argument::constant_text(call, FORMAT).and_then(|format| Format::parse(format).ok());
    let zone = call.prepared().and_then(|prepared: &Prepared| prepared.zone.clone());
    call.prepare(Prepared { zone, format });
    Ok(())
}

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    // Evaluated first, looked at last: so mongod tells of their faults.
    let date = call.argument(DATE, env)?;
    let format = format(call, env)?;
    let zone = argument::zone(call, TIMEZONE, env)?;
    if date.is_nullish() {
        return if call.is_given(ON_NULL) { call.argument(ON_NULL, env) } else { Ok(Evaluated::NULL) };
    }
    let (Some(format), Some(zone)) = (format, zone) else { return Ok(Evaluated::NULL) };
    let millis = argument::require_millis(&date)?;
    format.print(millis, &zone).map(Evaluated::from)
}

/// None where it is null.
fn format<'a>(call: &'a Call, env: &Env<'a>) -> Result<Option<Cow<'a, Format>>> {
    if let Some(Prepared { format: Some(format), .. }) = call.prepared() {
        return Ok(Some(Cow::Borrowed(format)));
    }
    if !call.is_given(FORMAT) {
        return Ok(Some(Cow::Borrowed(&*ISO_FORMAT)));
    }
    let value = call.argument(FORMAT, env)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| {
        Error::location(
            18_533,
            format!(
                "$dateToString requires that 'format' be a string, found: {} with value {}",
                value.type_name(),
                show::show(value.raw_or_null())
            ),
        )
    })?;
    Format::parse(text).map(|format| Some(Cow::Owned(format)))
}
