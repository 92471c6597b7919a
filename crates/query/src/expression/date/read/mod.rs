//! Dates from texts: what a text says of a date, gathered piece by piece, and the moment that makes.
//!
//! MongoDB reads dates with a library that takes whatever people write. Two readers fill a [`Reading`]: one
//! goes by a format ([`by_format`]), the other by what the text looks like ([`free`]). Both go on after a
//! fault and complain of everything at the end.

pub mod by_format;
pub mod free;
mod grammar;
mod relative;
mod token;
mod zone_name;

use kilim_bson::calendar;
use kilim_error::{Error, ErrorCode, Result};

use super::civil::{SECONDS_PER_DAY, days_in_month};
use super::parts::overflow;
use super::zone::Zone;
use relative::Relative;

/// Stands for a number that was not said. It is a number itself, because MongoDB computes with it where
/// only hours and minutes are said (`1156`): such a time comes out a tenth of a second early.
const UNSAID: i64 = -99_999;

/// mongod lets abbreviations stand in a text, but no names such as `Europe/Berlin`.
const NO_ZONE_NAME: &str = "passing a time zone identifier as part of the string is not allowed";

/// What was said.
#[derive(Debug)]
pub struct Reading {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    zone: Option<Said>,
    /// How often a time was said. Four digits are a time at first, then a year.
    times: u8,
    has_date: bool,
    /// How often a zone was said.
    zones: u32,
    relative: Relative,
    complaints: Vec<Complaint>,
    /// Complaints that are listed last.
    warnings: Vec<Complaint>,
}

/// A time zone as it stands in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Offset(i64),
    Abbreviation { name: String, offset: i64 },
}

/// What is wrong, and where.
#[derive(Debug)]
struct Complaint {
    position: usize,
    message: &'static str,
    /// What stands there; 0 at the end.
    byte: u8,
}

impl Reading {
    fn new() -> Reading {
        Reading {
            year: UNSAID,
            month: UNSAID,
            day: UNSAID,
            hour: UNSAID,
            minute: UNSAID,
            second: UNSAID,
            micros: UNSAID,
            zone: None,
            times: 0,
            has_date: false,
            zones: 0,
            relative: Relative::default(),
            complaints: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn has_valid_time(&self) -> bool {
        (0..24).contains(&self.hour) && (0..60).contains(&self.minute) && (0..60).contains(&self.second)
    }

    fn has_valid_day(&self) -> bool {
        (1..=12).contains(&self.month)
            && in_range(self.year)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
    }

    /// The moment that was said, in milliseconds. A zone that was asked for may not be said besides.
    pub fn moment(mut self, text: &str, asked: Option<&Zone>) -> Result<i64> {
        self.complaints.append(&mut self.warnings);
        if !self.complaints.is_empty() {
            return Err(failure(complain(text, &self.complaints)));
        }
        if self.year == UNSAID || self.month == UNSAID || self.day == UNSAID {
            return Err(failure(format!(
                "an incomplete date/time string has been found, with elements missing: \"{text}\""
            )));
        }
        let said;
        let zone = match (&self.zone, asked) {
            (None, zone) => zone.unwrap_or(&Zone::UTC),
            (Some(Said::Offset(offset) | Said::Abbreviation { offset, .. }), None) => {
                said = Zone::Offset(*offset);
                &said
            }
            (Some(Said::Offset(_)), Some(_)) => {
                return Err(failure(
                    "you cannot pass in a date/time string with GMT offset together with a timezone argument",
                ));
            }
            (Some(Said::Abbreviation { name, .. }), Some(_)) => {
                return Err(failure(format!(
                    "you cannot pass in a date/time string with time zone information ('{name}') together \
                     with a timezone argument"
                )));
            }
        };
        if self.hour == UNSAID {
            (self.hour, self.minute, self.second, self.micros) = (0, 0, 0, 0);
        }
        let local = self.local_micros().ok_or_else(overflow)?;
        // Microseconds have 64 bits, and a zone cannot bring back what is further away than that.
        let seconds =
            i64::try_from(local.div_euclid(1_000_000)).ok().filter(|seconds| in_range(seconds / 100));
        let seconds = seconds.ok_or_else(overflow)?;
        let moment = i128::from(zone.moment(seconds, false)) * 1_000_000 + local.rem_euclid(1_000_000);
        // Counted in microseconds and rounded towards 1970, as mongod does.
        i64::try_from(moment).map(|micros| micros / 1000).map_err(|_| overflow())
    }

    /// Microseconds since 1970 as the clock shows them; none where years are too far away.
    fn local_micros(&self) -> Option<i128> {
        const MICROS_PER_DAY: i128 = SECONDS_PER_DAY as i128 * 1_000_000;
        if ![self.year, self.month, self.day].into_iter().all(in_range) {
            return None;
        }
        let days = self.relative.move_day(self.year, self.month, self.day)?;
        let seconds = i128::from(self.hour) * 3600
            + i128::from(self.minute) * 60
            + i128::from(self.second)
            + self.relative.seconds();
        let micros = seconds * 1_000_000 + i128::from(self.micros) + i128::from(self.relative.micros);
        let local = i128::from(days) * MICROS_PER_DAY + micros;
        let day = i64::try_from(local.div_euclid(MICROS_PER_DAY)).ok()?;
        Some(local + i128::from(self.relative.move_over_weekends(day)?) * MICROS_PER_DAY)
    }
}

/// Whether a count of years, months or days can be computed with. All dates lie far within.
fn in_range(number: i64) -> bool {
    number.abs() < 1_000_000_000_000
}

pub fn failure(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::ConversionFailure, message)
}

fn complain(text: &str, complaints: &[Complaint]) -> String {
    let mut message = format!("Error parsing date string '{text}'");
    for complaint in complaints {
        let byte = [complaint.byte];
        let shown = String::from_utf8_lossy(&byte);
        message.push_str(&format!("; {}: {} '{shown}'", complaint.position, complaint.message));
    }
    message
}

/// Two digits mean a year from 1970 to 2069.
fn full_year(year: i64, digits: usize) -> i64 {
    match year {
        0..70 if digits < 4 => year + 2000,
        70..100 if digits < 4 => year + 1900,
        _ => year,
    }
}

/// Days from the beginning of a year to a day of one of its weeks.
fn days_to_iso_week(year: i64, week: i64, weekday: i64) -> i64 {
    super::civil::first_iso_monday(year) + (week - 1) * 7 + weekday - 1 - calendar::days(year, 1, 1)
}
