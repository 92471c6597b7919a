//! Dates and time zones.
//!
//! A date is milliseconds since 1970 in 64 bits, and every one of them is answered. Clocks and calendars are
//! computed here ([`civil`]); what a clock goes by at some place comes from the tz database ([`zone`]).

mod add;
mod argument;
mod civil;
mod diff;
mod format;
mod from_string;
mod part;
mod parts;
mod read;
#[cfg(test)]
mod tests;
mod to_string;
mod trunc;
mod unit;
mod zone;

use kilim_error::Result;

use super::Operator;
pub use unit::{Measure, Unit};
use zone::Zone;

pub(super) const OPERATORS: &[Operator] = &[
    part::YEAR,
    part::MONTH,
    part::DAY_OF_MONTH,
    part::DAY_OF_WEEK,
    part::DAY_OF_YEAR,
    part::HOUR,
    part::MINUTE,
    part::SECOND,
    part::MILLISECOND,
    part::WEEK,
    part::ISO_WEEK,
    part::ISO_WEEK_YEAR,
    part::ISO_DAY_OF_WEEK,
    parts::DATE_TO_PARTS,
    parts::DATE_FROM_PARTS,
    to_string::DATE_TO_STRING,
    from_string::DATE_FROM_STRING,
    add::DATE_ADD,
    add::DATE_SUBTRACT,
    diff::DATE_DIFF,
    trunc::DATE_TRUNC,
];

/// The date so many units after another, by the clock and the calendar of Greenwich.
pub fn shift(millis: i64, unit: Unit, amount: i64) -> Result<i64> {
    add::shift(millis, unit, amount, &Zone::UTC)
}

/// `2017-07-04T11:56:02.000Z`; years from 0 to 9999 can be written so.
pub(crate) fn format_iso(millis: i64) -> Result<String> {
    to_string::ISO_FORMAT.print(millis, &Zone::UTC)
}

/// The date that a text says, in whatever form people write dates, in milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Result<i64> {
    read::free::read(text)?.moment(text, None)
}
