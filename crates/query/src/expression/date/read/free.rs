//! Reading whatever people write: `2017-07-04T11:56:02Z`, `July 4, 2017`, `04.07.2017 3pm`, `first day of
//! july 2017`.
//!
//! The text is taken piece by piece ([`grammar`](super::grammar)); every piece adds to what is known. A date
//! or a time that was said already may not be said again.

use kilim_error::Result;

use super::grammar::{Piece, piece_at};
use super::relative::{MonthEnd, Special, WeekdayRule};
use super::token::Token;
use super::{Complaint, NO_ZONE_NAME, Reading, Said, days_to_iso_week, full_year, zone_name};

pub fn read(text: &str) -> Result<Reading> {
    let mut reading = Reading::new();
    if text.is_empty() {
        reading.complaints.push(Complaint { position: 0, message: "Empty string", byte: 0 });
        return Ok(reading);
    }
    let trimmed = trim(text.as_bytes());
    // Some pieces want to see that nothing follows.
    let mut bytes = Vec::with_capacity(trimmed.len() + 1);
    bytes.extend_from_slice(trimmed);
    bytes.push(0);
    let mut scanner = Scanner { reading: &mut reading, start: 0, byte: 0 };
    let mut at = 0;
    while at < trimmed.len() {
        crate::interrupt::tick()?;
        (scanner.start, scanner.byte) = (at, bytes[at]);
        match piece_at(&bytes, at)? {
            Some((piece, end)) => {
                // What is refused was complained of; the text goes on behind it.
                let _ = scanner.take(piece, &bytes[at..end]);
                at = end;
            }
            None => {
                scanner.complain("Unexpected character");
                at += 1;
            }
        }
    }
    // The end counts as read.
    let position = bytes.len();
    if reading.times > 0 && !reading.has_valid_time() {
        let message = "The parsed time was invalid";
        reading.warnings.push(Complaint { position, message, byte: 0 });
    }
    if reading.has_date && !reading.has_valid_day() {
        let message = "The parsed date was invalid";
        reading.warnings.push(Complaint { position, message, byte: 0 });
    }
    Ok(reading)
}

/// Without white space at the ends, but with at least one byte.
fn trim(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r');
    let Some(start) = bytes.iter().position(|byte| !is_space(byte)) else {
        return &bytes[..1];
    };
    let end = bytes.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Something may not be said here. The complaint is in the reading.
struct Refused;

struct Scanner<'r> {
    reading: &'r mut Reading,
    /// Where the piece begins, and with what.
    start: usize,
    byte: u8,
}

impl Scanner<'_> {
    fn complain(&mut self, message: &'static str) {
        self.reading.complaints.push(Complaint { position: self.start, message, byte: self.byte });
    }

    fn say_time(&mut self) -> Result<(), Refused> {
        if self.reading.times > 0 {
            self.complain("Double time specification");
            return Err(Refused);
        }
        self.forget_time();
        self.reading.times = 1;
        Ok(())
    }

    fn forget_time(&mut self) {
        let reading = &mut *self.reading;
        reading.times = 0;
        (reading.hour, reading.minute, reading.second, reading.micros) = (0, 0, 0, 0);
    }

    fn say_date(&mut self) -> Result<(), Refused> {
        if self.reading.has_date {
            self.complain("Double date specification");
            return Err(Refused);
        }
        self.reading.has_date = true;
        Ok(())
    }

    fn say_zone(&mut self) -> Result<(), Refused> {
        let said = self.reading.zones;
        self.reading.zones += 1;
        let message = "Double timezone specification";
        match said {
            0 => return Ok(()),
            1 => {
                let complaint = Complaint { position: self.start, message, byte: self.byte };
                self.reading.warnings.push(complaint);
            }
            _ => self.complain(message),
        }
        Err(Refused)
    }

    fn zone(&mut self, token: &mut Token<'_>) {
        match zone_name::parse(token) {
            None => self.complain(NO_ZONE_NAME),
            zone => self.reading.zone = zone,
        }
    }

    fn day(&mut self, year: i64, month: i64, day: i64) {
        (self.reading.year, self.reading.month, self.reading.day) = (year, month, day);
    }

    /// Hours, minutes and perhaps seconds.
    fn clock(&mut self, token: &mut Token<'_>) {
        self.reading.hour = token.number(2);
        if matches!(token.peek(), Some(b':' | b'.')) {
            self.reading.minute = token.number(2);
            if matches!(token.peek(), Some(b':' | b'.')) {
                self.reading.second = token.number(2);
            }
        }
    }

    fn fraction(&mut self, token: &mut Token<'_>, point: &[u8]) {
        if token.peek().is_some_and(|byte| point.contains(&byte)) {
            self.reading.micros = token.fraction();
        }
    }

    fn meridian(&mut self, token: &mut Token<'_>) {
        self.reading.hour += token.meridian(self.reading.hour);
    }

    fn take(&mut self, piece: Piece, text: &[u8]) -> Result<(), Refused> {
        let token = &mut Token::new(text);
        match piece {
            Piece::Now | Piece::Nothing => {}
            Piece::Midnight => self.forget_time(),
            Piece::Yesterday | Piece::Tomorrow => {
                self.forget_time();
                self.reading.relative.days = if piece == Piece::Tomorrow { 1 } else { -1 };
            }
            Piece::Noon => {
                self.forget_time();
                self.say_time()?;
                self.reading.hour = 12;
            }
            Piece::EpochSeconds | Piece::EpochMicros => self.epoch(piece, token)?,
            Piece::EndOfMonth => {
                self.forget_time();
                let last = matches!(token.peek(), Some(b'l' | b'L'));
                self.reading.relative.month_end = Some(if last { MonthEnd::Last } else { MonthEnd::First });
            }
            Piece::QuarterPast => {
                self.forget_time();
                self.say_time()?;
                let past = matches!(token.peek(), Some(b'b'));
                let hour = token.number(2);
                (self.reading.hour, self.reading.minute) = if past { (hour, 15) } else { (hour - 1, 45) };
                if token.peek().is_some() {
                    self.meridian(token);
                }
            }
            Piece::Clock12 => {
                self.say_time()?;
                self.clock(token);
                self.meridian(token);
            }
            Piece::Clock12Fraction => {
                self.say_time()?;
                self.clock(token);
                self.fraction(token, b":.");
                self.meridian(token);
            }
            Piece::Clock24 => {
                self.say_time()?;
                self.clock(token);
                self.fraction(token, b".");
            }
            Piece::ClockDigits => match self.reading.times {
                0 => {
                    // No word of fractions: they stay unsaid.
                    let reading = &mut *self.reading;
                    (reading.hour, reading.minute) = (token.number(2), token.number(2));
                    (reading.second, reading.times) = (0, 1);
                }
                1 => {
                    self.reading.year = token.number(4);
                    self.reading.times = 2;
                }
                _ => self.complain("Double time specification"),
            },
            Piece::ClockDigitsSeconds => {
                self.say_time()?;
                let reading = &mut *self.reading;
                (reading.hour, reading.minute) = (token.number(2), token.number(2));
                reading.second = token.number(2);
            }
            Piece::Year => self.reading.year = token.number(4),
            Piece::MonthWord => {
                self.say_date()?;
                self.reading.month = token.month();
            }
            Piece::Zone => {
                self.say_zone()?;
                self.zone(token);
            }
            Piece::DateTime | Piece::ServerLog => self.date_and_time(piece, token)?,
            Piece::MonthWordDayClock12 | Piece::MonthWordDayClock24 => {
                self.month_day_and_time(piece, token)?;
            }
            Piece::WeekdayOf
            | Piece::Ago
            | Piece::Weekday
            | Piece::RelativeWeek
            | Piece::RelativeWord
            | Piece::Relative => self.relative(piece, token),
            _ => self.date(piece, token)?,
        }
        Ok(())
    }

    fn date(&mut self, piece: Piece, token: &mut Token<'_>) -> Result<(), Refused> {
        self.say_date()?;
        let year = |token: &mut Token<'_>| {
            let (year, digits) = token.number_and_digits(4);
            full_year(year, digits)
        };
        match piece {
            Piece::American => {
                (self.reading.month, self.reading.day) = (token.number(2), token.number(2));
                if token.rest().contains(&b'/') {
                    self.reading.year = year(token);
                }
            }
            Piece::Iso => {
                let year = token.signed_number(4);
                let month = token.number(2);
                self.day(year, month, token.number(2));
            }
            Piece::IsoLongYear => {
                let year = token.signed_number(19);
                let month = token.number(2);
                self.day(year, month, token.number(2));
            }
            Piece::IsoTwoDigits | Piece::Dashed => {
                let year = year(token);
                let month = token.number(2);
                self.day(year, month, token.number(2));
            }
            Piece::YearMonth => {
                let year = year(token);
                self.day(year, token.number(2), 1);
            }
            Piece::DayMonthWord | Piece::DayMonthWordAlone => {
                self.reading.day = token.number(2);
                skip_ordinal(token);
                self.reading.month = token.month();
                if piece == Piece::DayMonthWord {
                    self.reading.year = year(token);
                }
            }
            Piece::Pointed => {
                let day = token.number(2);
                let month = token.number(2);
                self.day(token.number(4), month, day);
            }
            Piece::PointedTwoDigits => {
                let day = token.number(2);
                let month = token.number(2);
                self.day(year(token), month, day);
            }
            Piece::MonthWordYear => {
                let month = token.month();
                self.day(year(token), month, 1);
            }
            Piece::YearMonthWord => {
                let year = year(token);
                self.day(year, token.month(), 1);
            }
            Piece::MonthWordDay | Piece::MonthWordDashed => {
                let month = token.month();
                let day = token.number(2);
                self.day(year(token), month, day);
            }
            Piece::YearMonthWordDashed => {
                let year = year(token);
                let month = token.month();
                self.day(year, month, token.number(2));
            }
            Piece::Compact => {
                let year = token.number(4);
                let month = token.number(2);
                self.day(year, month, token.number(2));
            }
            Piece::YearDay => {
                // No month has so many days, so mongod refuses most of these.
                let year = token.number(4);
                self.day(year, 1, token.number(3));
            }
            Piece::WeekDate | Piece::Week => {
                let year = token.number(4);
                let week = token.number(2);
                let weekday = if piece == Piece::WeekDate { token.number(1) } else { 1 };
                self.day(year, 1, 1);
                self.reading.relative.days = days_to_iso_week(year, week, weekday);
            }
            _ => unreachable!("the other pieces are taken elsewhere"),
        }
        Ok(())
    }

    fn date_and_time(&mut self, piece: Piece, token: &mut Token<'_>) -> Result<(), Refused> {
        self.say_time()?;
        self.say_date()?;
        if piece == Piece::ServerLog {
            let day = token.number(2);
            let month = token.month();
            self.day(token.number(4), month, day);
        } else {
            let year = token.number(4);
            let month = token.number(2);
            self.day(year, month, token.number(2));
        }
        let reading = &mut *self.reading;
        (reading.hour, reading.minute) = (token.number(2), token.number(2));
        reading.second = token.number(2);
        if piece == Piece::ServerLog {
            self.zone(token);
        } else if token.peek() == Some(b'.') {
            self.reading.micros = token.fraction();
            if token.peek().is_some() {
                self.zone(token);
            }
        }
        Ok(())
    }

    fn month_day_and_time(&mut self, piece: Piece, token: &mut Token<'_>) -> Result<(), Refused> {
        self.say_date()?;
        (self.reading.month, self.reading.day) = (token.month(), token.number(2));
        self.say_time()?;
        (self.reading.hour, self.reading.minute) = (token.number(2), token.number(2));
        let separators: &[u8] = if piece == Piece::MonthWordDayClock12 { b":." } else { b":" };
        if token.peek().is_some_and(|byte| separators.contains(&byte)) {
            self.reading.second = token.number(2);
            self.fraction(token, b".");
        }
        if piece == Piece::MonthWordDayClock12 {
            self.meridian(token);
        } else if token.peek().is_some() {
            self.zone(token);
        }
        Ok(())
    }

    /// Seconds since 1970, which need no zone.
    fn epoch(&mut self, piece: Piece, token: &mut Token<'_>) -> Result<(), Refused> {
        self.reading.has_date = false;
        self.day(0, 0, 0);
        self.forget_time();
        self.say_zone()?;
        let negative = token.rest().get(1) == Some(&b'-');
        let seconds = token.signed_number(24);
        let relative = &mut self.reading.relative;
        relative.whole_seconds = relative.whole_seconds.saturating_add(seconds);
        if piece == Piece::EpochMicros {
            if token.rest() == b"." {
                self.complain("Found unexpected data");
            }
            let micros = token.fraction();
            self.reading.relative.micros = if negative { -micros } else { micros };
        }
        self.day(1970, 1, 1);
        self.reading.zone = Some(Said::Offset(0));
        Ok(())
    }

    fn relative(&mut self, piece: Piece, token: &mut Token<'_>) {
        match piece {
            Piece::Ago => self.reading.relative.reverse(),
            Piece::Weekday => {
                self.forget_time();
                let relative = &mut self.reading.relative;
                relative.weekday = match Unit::of(token) {
                    Some(Unit::Weekday(weekday)) => Some(weekday),
                    // `weekday` alone means the first of them.
                    _ => Some(1),
                };
                if relative.rule != WeekdayRule::InWeek {
                    relative.rule = WeekdayRule::AtOrAfter;
                }
            }
            Piece::Relative => {
                let amount = token.signed_number(24);
                token.skip_spaces();
                self.move_by(token, amount, WeekdayRule::AtOrAfter, true);
            }
            Piece::RelativeWord | Piece::RelativeWeek => {
                let (amount, rule) = relative_word(token);
                token.skip_spaces();
                self.move_by(token, amount, rule, false);
                if piece == Piece::RelativeWeek {
                    let relative = &mut self.reading.relative;
                    relative.rule = WeekdayRule::InWeek;
                    relative.weekday.get_or_insert(1);
                }
            }
            Piece::WeekdayOf => {
                let (amount, rule) = relative_word(token);
                token.skip_spaces();
                let (special, rule) = if amount > 0 {
                    (Special::WeekdayOfMonth, WeekdayRule::AtOrAfter)
                } else {
                    (Special::LastWeekdayOfMonth, rule)
                };
                self.reading.relative.special = Some(special);
                self.move_by(token, amount, rule, false);
            }
            _ => unreachable!("the other pieces are taken elsewhere"),
        }
    }

    fn move_by(&mut self, token: &mut Token<'_>, amount: i64, rule: WeekdayRule, keeps_time: bool) {
        let Some(unit) = Unit::of(token) else { return };
        if matches!(unit, Unit::Weekday(_) | Unit::Weekdays) && !keeps_time {
            self.forget_time();
        }
        let relative = &mut self.reading.relative;
        let add = |total: &mut i64, factor: i64| {
            *total = total.saturating_add(amount.saturating_mul(factor));
        };
        match unit {
            Unit::Micros(factor) => add(&mut relative.micros, factor),
            Unit::Seconds => add(&mut relative.whole_seconds, 1),
            Unit::Minutes => add(&mut relative.minutes, 1),
            Unit::Hours => add(&mut relative.hours, 1),
            Unit::Days(factor) => add(&mut relative.days, factor),
            Unit::Months => add(&mut relative.months, 1),
            Unit::Years => add(&mut relative.years, 1),
            Unit::Weekday(weekday) => {
                let weeks = if amount > 0 { amount - 1 } else { amount };
                relative.days = relative.days.saturating_add(weeks.saturating_mul(7));
                relative.weekday = Some(weekday);
                relative.rule = rule;
            }
            Unit::Weekdays => relative.special = Some(Special::Weekdays(amount)),
        }
    }
}

enum Unit {
    Micros(i64),
    Seconds,
    Minutes,
    Hours,
    Days(i64),
    Months,
    Years,
    Weekday(i64),
    Weekdays,
}

impl Unit {
    fn of(token: &mut Token<'_>) -> Option<Unit> {
        let word = token.take_while(|byte| !b" ,\t;:/.-()".contains(&byte));
        let word = std::str::from_utf8(word).ok()?.to_ascii_lowercase();
        Some(match word.strip_suffix('s').unwrap_or(&word) {
            "m" | "msec" | "millisecond" => Unit::Micros(1000),
            "µ" | "usec" | "µsec" | "microsecond" => Unit::Micros(1),
            "sec" | "second" => Unit::Seconds,
            "min" | "minute" => Unit::Minutes,
            "hour" => Unit::Hours,
            "day" => Unit::Days(1),
            "week" => Unit::Days(7),
            "fortnight" | "forthnight" => Unit::Days(14),
            "month" => Unit::Months,
            "year" => Unit::Years,
            "weekday" => Unit::Weekdays,
            name => Unit::Weekday(super::super::unit::parse_weekday(name)?),
        })
    }
}

/// What `next` or `third` counts, and which weekday it means.
fn relative_word(token: &mut Token<'_>) -> (i64, WeekdayRule) {
    const ORDINALS: [&str; 12] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
        "eleventh", "twelfth",
    ];
    let word = String::from_utf8_lossy(token.word()).to_ascii_lowercase();
    match &*word {
        "this" => (0, WeekdayRule::AtOrAfter),
        "last" | "previous" => (-1, WeekdayRule::After),
        "next" => (1, WeekdayRule::After),
        "eight" => (8, WeekdayRule::After),
        word => {
            let index = ORDINALS.iter().position(|ordinal| *ordinal == word);
            (index.map_or(0, |index| index as i64 + 1), WeekdayRule::After)
        }
    }
}

/// `4th`, whose letters are no month.
fn skip_ordinal(token: &mut Token<'_>) {
    let rest = token.rest();
    if let Some(suffix) = rest.get(..2)
        && [b"st", b"nd", b"rd", b"th"].iter().any(|known| suffix.eq_ignore_ascii_case(*known))
    {
        token.advance(2);
    }
}
