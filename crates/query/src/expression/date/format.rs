//! Formats of dates: `%Y-%m-%d`. The same specifiers print (`$dateToString`) and read (`$dateFromString`),
//! though not all of them do both.

use std::fmt::Write;

use kilim_error::{Error, Result};

use super::civil::Civil;
use super::zone::Zone;

/// What a date is printed as where no format is given.
pub const ISO: &str = "%Y-%m-%dT%H:%M:%S.%LZ";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A format that was found in order, for printing.
#[derive(Debug, Clone)]
pub struct Format {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(Box<str>),
    /// One of the specifiers that print.
    Part(u8),
}

/// Which specifiers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Print,
    Read,
}

/// The specifiers that `$dateFromString` reads. mongod 6.0 refuses `%j` there, and so does this.
pub const READ: &[u8] = b"%bBdGHLmMSuVYzZ";

/// Refuses a format with a specifier that is not known.
pub fn check(format: &str, purpose: Purpose) -> Result<()> {
    let known: &[u8] = match purpose {
        Purpose::Print => b"%bBdGHjLmMSuUVwYzZ",
        Purpose::Read => READ,
    };
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        let Some(specifier) = rest.chars().next() else {
            return Err(Error::location(18_535, "Unmatched '%' at end of format string"));
        };
        if !(specifier.is_ascii() && known.contains(&(specifier as u8))) {
            let message = format!("Invalid format character '%{specifier}' in format string");
            return Err(Error::location(18_536, message));
        }
        rest = &rest[1..];
    }
    Ok(())
}

impl Format {
    pub fn parse(format: &str) -> Result<Format> {
        check(format, Purpose::Print)?;
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            text.push_str(&rest[..at]);
            match rest.as_bytes()[at + 1] {
                b'%' => text.push('%'),
                specifier => {
                    if !text.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut text).into()));
                    }
                    pieces.push(Piece::Part(specifier));
                }
            }
            rest = &rest[at + 2..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        Ok(Format { pieces })
    }

    /// A date as a zone's clock shows it.
    pub fn print(&self, millis: i64, zone: &Zone) -> Result<String> {
        let (seconds, millisecond) = super::argument::split(millis);
        let civil = Civil::of(zone.local(seconds));
        // The offset is that of the second towards 1970, which differs from the clock's own for the fraction
        // of a second before it is changed. That is what mongod prints.
        let offset = zone.offset(millis / 1000);
        let mut out = String::with_capacity(32);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Part(specifier) => print_part(&mut out, *specifier, &civil, millisecond, offset)?,
            }
        }
        Ok(out)
    }
}

fn print_part(out: &mut String, specifier: u8, civil: &Civil, millisecond: i64, offset: i64) -> Result<()> {
    let mut digits = |number: i64, width: u32| push_digits(out, number, width);
    match specifier {
        b'd' => digits(civil.day, 2),
        b'G' => digits(printed_year(civil.iso_week().0)?, 4),
        b'H' => digits(civil.hour, 2),
        b'j' => digits(civil.day_of_year(), 3),
        b'L' => digits(millisecond, 3),
        b'm' => digits(civil.month, 2),
        b'M' => digits(civil.minute, 2),
        b'S' => digits(civil.second, 2),
        b'u' => digits(civil.iso_weekday(), 1),
        b'U' => digits(civil.week(), 2),
        b'V' => digits(civil.iso_week().1, 2),
        b'w' => digits(civil.weekday() + 1, 1),
        b'Y' => digits(printed_year(civil.year)?, 4),
        b'b' => out.push_str(&MONTHS[month_index(civil)][..3]),
        b'B' => out.push_str(MONTHS[month_index(civil)]),
        b'z' => {
            out.push(if offset < 0 { '-' } else { '+' });
            let minutes = offset.abs() / 60;
            write!(out, "{:02}{:02}", minutes / 60, minutes % 60).expect("writing to a string does not fail");
        }
        b'Z' => write!(out, "{}", offset / 60).expect("writing to a string does not fail"),
        _ => unreachable!("a format has known specifiers only"),
    }
    Ok(())
}

/// A number from 0 on, with zeros before it.
fn push_digits(out: &mut String, number: i64, width: u32) {
    for place in (0..width).rev() {
        let digit = (number / 10_i64.pow(place) % 10) as u8;
        out.push(char::from(b'0' + digit));
    }
}

fn month_index(civil: &Civil) -> usize {
    (civil.month - 1) as usize
}

fn printed_year(year: i64) -> Result<i64> {
    if (0..=9999).contains(&year) {
        return Ok(year);
    }
    Err(Error::location(
        18_537,
        format!(
            "Could not convert date to string: date component was outside the supported range of 0-9999: {year}"
        ),
    ))
}
