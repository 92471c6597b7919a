//! Reading by a format: `%Y-%m-%d` against `2017-07-04`.
//!
//! Texts end where a zero byte stands, in the format too.

use super::super::civil::days_carried;
use super::token::{Token, month_number};
use super::{Complaint, Reading, Said, UNSAID, days_to_iso_week, zone_name};
use kilim_bson::calendar;

/// What an ISO week date is made of.
struct Iso {
    year: i64,
    week: i64,
    weekday: i64,
}

/// Reads a text by a format that was found in order.
pub fn read(text: &str, format: &str) -> Reading {
    let text = until_zero(text);
    let mut format = until_zero(format);
    let mut token = Token::new(text);
    let mut reading = Reading::new();
    let mut iso = Iso { year: UNSAID, week: UNSAID, weekday: UNSAID };
    while let ([first, rest @ ..], Some(byte)) = (format, token.peek()) {
        let (literal, rest) = match (first, rest) {
            (b'%', [b'%', rest @ ..]) => (Some(b'%'), rest),
            (b'%', [specifier, rest @ ..]) => {
                part(*specifier, &mut token, &mut reading, &mut iso);
                (None, rest)
            }
            (literal, rest) => (Some(*literal), rest),
        };
        if let Some(literal) = literal {
            if literal != byte {
                reading.complain_at(&token, "Format literal not found");
            }
            token.advance(1);
        }
        format = rest;
    }
    if token.peek().is_some() {
        reading.complain_at(&token, "Trailing data");
    }
    if !format.is_empty() {
        reading.complain_at(&token, "Not enough data available to satisfy format");
    }
    finish(&token, &mut reading, &iso);
    reading
}

fn until_zero(text: &str) -> &[u8] {
    text.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default()
}

fn part(specifier: u8, token: &mut Token<'_>, reading: &mut Reading, iso: &mut Iso) {
    let begin = token.position();
    let byte = token.peek().unwrap_or(0);
    let wrong = |reading: &mut Reading, message| {
        reading.complaints.push(Complaint { position: begin, message, byte });
    };
    let expect = |reading: &mut Reading, number: i64, message| {
        if number == UNSAID {
            wrong(reading, message);
        }
    };
    if matches!(specifier, b'd' | b'm' | b'Y' | b'H' | b'M' | b'S' | b'L') && !byte.is_ascii_digit() {
        wrong(reading, "Unexpected data found.");
    }
    // What is looked for and not found is forgotten, should it have been said before.
    match specifier {
        b'd' => {
            reading.day = token.number(2);
            expect(reading, reading.day, "A two digit day could not be found");
        }
        b'm' => {
            reading.month = token.number(2);
            expect(reading, reading.month, "A two digit month could not be found");
        }
        b'b' | b'B' => match month_number(token.word()) {
            0 => wrong(reading, "A textual month could not be found"),
            month => reading.month = month,
        },
        b'Y' => {
            reading.year = token.number(4);
            expect(reading, reading.year, "A four digit year could not be found");
        }
        b'H' => {
            reading.hour = token.number(2);
            expect(reading, reading.hour, "A two digit hour could not be found");
        }
        b'M' => match token.number_and_digits(2) {
            (minute, 2) => reading.minute = minute,
            _ => wrong(reading, "A two digit minute could not be found"),
        },
        b'S' => match token.number_and_digits(2) {
            (second, 2) => reading.second = second,
            _ => wrong(reading, "A two digit second could not be found"),
        },
        b'L' => match token.number_and_digits(3) {
            (UNSAID, _) => wrong(reading, "A three digit millisecond could not be found"),
            (number, digits) => reading.micros = number * [0, 100_000, 10_000, 1000][digits],
        },
        b'G' => {
            iso.year = token.number(4);
            expect(reading, iso.year, "A four digit ISO year could not be found");
        }
        b'V' => {
            iso.week = token.number(2);
            expect(reading, iso.week, "A two digit ISO week could not be found");
            if iso.week != UNSAID && !(1..=53).contains(&iso.week) {
                wrong(reading, "ISO Week must be between 1 and 53");
            }
        }
        b'u' => {
            iso.weekday = token.number(1);
            expect(reading, iso.weekday, "A single digit day of week could not be found");
            if iso.weekday != UNSAID && !(1..=7).contains(&iso.weekday) {
                wrong(reading, "Day of week must be between 1 and 7");
            }
        }
        b'z' => match zone_name::parse(token) {
            None => wrong(reading, super::NO_ZONE_NAME),
            zone => reading.zone = zone,
        },
        b'Z' => match minutes_from_utc(token) {
            None => wrong(reading, "Invalid timezone offset in minutes"),
            Some(minutes) => reading.zone = Some(Said::Offset(minutes * 60)),
        },
        _ => unreachable!("a format has known specifiers only"),
    }
}

/// A sign and digits; nothing is read where the sign is missing.
fn minutes_from_utc(token: &mut Token<'_>) -> Option<i64> {
    let sign = match token.peek()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    token.advance(1);
    let digits = token.take_while(|byte| byte.is_ascii_digit());
    let minutes = digits
        .iter()
        .fold(0_i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    // No date can be moved further.
    Some(sign * minutes.min(1_000_000_000_000))
}

/// Makes one date and one time of what was said.
fn finish(token: &Token<'_>, reading: &mut Reading, iso: &Iso) {
    const MIXED: &str = "Mixing of ISO dates with natural dates is not allowed";
    let time = [reading.hour, reading.minute, reading.second, reading.micros];
    let has_time = time.iter().any(|part| *part != UNSAID);
    if has_time {
        for part in [&mut reading.hour, &mut reading.minute, &mut reading.second, &mut reading.micros] {
            if *part == UNSAID {
                *part = 0;
            }
        }
    }
    let has_iso = [iso.year, iso.week, iso.weekday].iter().any(|part| *part != UNSAID);
    if has_iso && reading.year != UNSAID {
        reading.complain_at(token, MIXED);
    }
    if iso.year != UNSAID && [reading.year, reading.month, reading.day].iter().any(|part| *part != UNSAID) {
        reading.complain_at(token, MIXED);
    }
    if has_iso && iso.year == UNSAID {
        reading.warn_at(token, "The parsed date was invalid");
    } else if has_iso {
        let or_first = |part: i64| if part == UNSAID { 1 } else { part };
        let day = 1 + days_to_iso_week(iso.year, or_first(iso.week), or_first(iso.weekday));
        (reading.year, reading.month, reading.day) = calendar::civil(days_carried(iso.year, 1, day));
    }
    if has_time && !reading.has_valid_time() {
        reading.warn_at(token, "The parsed time was invalid");
    }
    let is_whole = [reading.year, reading.month, reading.day].iter().all(|part| *part != UNSAID);
    if is_whole && !reading.has_valid_day() {
        reading.warn_at(token, "The parsed date was invalid");
    }
}

impl Reading {
    fn complain_at(&mut self, token: &Token<'_>, message: &'static str) {
        let byte = token.peek().unwrap_or(0);
        self.complaints.push(Complaint { position: token.position(), message, byte });
    }

    fn warn_at(&mut self, token: &Token<'_>, message: &'static str) {
        let byte = token.peek().unwrap_or(0);
        self.warnings.push(Complaint { position: token.position(), message, byte });
    }
}
