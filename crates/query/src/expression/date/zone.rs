//! Time zones: by name from the tz database, or as an offset from UTC.
//!
//! The database is compiled in, so a date means the same on every machine. It knows the years -9999 to
//! 9999. Before them the first offset goes on for ever; after them the rules do, and since the calendar
//! repeats every 400 years, weekdays included, a later year is answered by an equal one within.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Dst, Offset, TimeZone, TimeZoneDatabase};
use kilim_error::{Error, Result};

use super::civil::{Civil, SECONDS_PER_DAY};

/// 400 years.
const CYCLE_SECONDS: i64 = 146_097 * SECONDS_PER_DAY;
/// The year 8000, whose cycle answers for all later ones.
const CYCLE_START: i64 = 190_288_396_800;
/// Beyond these the database may refuse: a few days within its limits.
const KNOWN_FROM: i64 = -377_705_000_000;
const KNOWN_TO: i64 = 253_402_000_000;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

#[derive(Debug, Clone)]
pub enum Zone {
    /// Seconds east of Greenwich.
    Offset(i64),
    Named(TimeZone),
}

/// What a clock goes by at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Going {
    /// Seconds east of Greenwich.
    pub offset: i64,
    pub summer: bool,
}

impl Zone {
    pub const UTC: Zone = Zone::Offset(0);

    /// `Europe/Berlin`, `UTC`, `+03`, `-0430` or `+03:30`.
    pub fn parse(name: &str) -> Result<Zone> {
        if name == "UTC" || name == "GMT" {
            return Ok(Zone::UTC);
        }
        parse_offset(name)
            .map(Zone::Offset)
            .or_else(|| find(name).map(Zone::Named))
            .ok_or_else(|| Error::location(40_485, format!("unrecognized time zone identifier: \"{name}\"")))
    }

    /// At a moment, in seconds since 1970.
    pub fn going(&self, seconds: i64) -> Going {
        match self {
            Zone::Offset(offset) => Going { offset: *offset, summer: false },
            Zone::Named(zone) => {
                let known = Timestamp::from_second(within_database(seconds))
                    .expect("the moment was brought within the database's limits");
                let info = zone.to_offset_info(known);
                let summer = (info.dst() == Dst::Yes) != counts_winter(zone, seconds);
                Going { offset: info.offset().seconds().into(), summer }
            }
        }
    }

    pub fn offset(&self, seconds: i64) -> i64 {
        self.going(seconds).offset
    }

    /// What the clock shows at a moment, both in seconds since 1970.
    pub fn local(&self, seconds: i64) -> i64 {
        seconds + self.offset(seconds)
    }

    /// When the clock shows `local`. A time that is skipped is taken by the offset before. Of one that comes
    /// twice because summer ends, the second is meant, unless whoever asks comes from summer time. If it comes
    /// twice for another reason, the second is meant east of Greenwich and the first west of it, since the
    /// search begins as if the clock stood there.
    pub fn moment(&self, local: i64, from_summer: bool) -> i64 {
        let zone = match self {
            Zone::Offset(offset) => return local - offset,
            Zone::Named(zone) => zone,
        };
        let known = within_database(local);
        let offset = match zone.to_ambiguous_timestamp(to_datetime(known)).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { before, after } => {
                let summer = |offset: Offset| self.going(local - i64::from(offset.seconds())).summer;
                let first = match (summer(before), summer(after)) {
                    (true, false) => from_summer,
                    _ => after.seconds() < 0,
                };
                if first { before } else { after }
            }
        };
        local - i64::from(offset.seconds())
    }
}

/// Where winter is the exception by law: name, from when and until when, in seconds since 1970. Our data
/// call summer the exception everywhere, MongoDB's do not.
const WINTER_COUNTS: [(&str, i64, i64); 5] = [
    ("Europe/Dublin", 57_722_400, i64::MAX),
    ("Eire", 57_722_400, i64::MAX),
    ("Africa/Casablanca", 1_540_692_000, i64::MAX),
    ("Africa/El_Aaiun", 1_540_692_000, i64::MAX),
    ("Africa/Windhoek", 764_200_800, 1_508_803_200),
];

fn counts_winter(zone: &TimeZone, seconds: i64) -> bool {
    let Some(name) = zone.iana_name() else { return false };
    WINTER_COUNTS.iter().any(|(known, from, to)| *known == name && (*from..*to).contains(&seconds))
}

fn within_database(seconds: i64) -> i64 {
    if seconds > KNOWN_TO {
        CYCLE_START + (seconds - CYCLE_START).rem_euclid(CYCLE_SECONDS)
    } else {
        seconds.max(KNOWN_FROM)
    }
}

fn to_datetime(seconds: i64) -> DateTime {
    let civil = Civil::of(seconds);
    let small = |part: i64| i8::try_from(part).expect("parts of a date are small");
    let year = i16::try_from(civil.year).expect("the year was brought within the database's limits");
    DateTime::new(
        year,
        small(civil.month),
        small(civil.day),
        small(civil.hour),
        small(civil.minute),
        small(civil.second),
        0,
    )
    .expect("a calendar's day is a date")
}

/// Names are exact, as MongoDB's are, though the database would not mind the case.
fn find(name: &str) -> Option<TimeZone> {
    let zone = DATABASE.get(name).ok()?;
    (zone.iana_name() == Some(name) && !zone.is_unknown()).then_some(zone)
}

/// `+hh`, `+hhmm` or `+hh:mm`. The digits count as they stand: `+99:99` is an offset too.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b] => ([a, b], None),
        [a, b, c, d] | [a, b, b':', c, d] => ([a, b], Some([c, d])),
        _ => return None,
    };
    let number = |pair: [&u8; 2]| -> Option<i64> {
        pair.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(**digit - b'0'))
        })
    };
    let minutes = minutes.map_or(Some(0), number)?;
    Some(sign * (number(hours)? * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_they_stand() {
        for (text, seconds) in [
            ("+03", Some(10_800)),
            ("-0430", Some(-16_200)),
            ("+03:30", Some(12_600)),
            ("+99:99", Some(362_340)),
        ] {
            assert_eq!(parse_offset(text), seconds, "{text}");
        }
        for text in ["+3", "+030", "+03:3", "+", "+aa", "0330", " +03", "+03:30 ", "−03", ""] {
            assert_eq!(parse_offset(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_exact() {
        for name in ["Europe/Berlin", "US/Eastern", "Etc/GMT+5", "EST", "UTC", "GMT", "Zulu", "UCT", "W-SU"] {
            assert!(Zone::parse(name).is_ok(), "{name}");
        }
        for name in ["europe/berlin", "utc", "Z", "PST", "Foo/Bar", "", "Local", "Etc/Unknown"] {
            assert!(Zone::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn rules_go_on_beyond_the_database() {
        let zone = Zone::parse("America/New_York").expect("is in the database");
        for (seconds, offset) in [
            (i64::MIN / 1000, -17_762),
            (-62_135_596_800, -17_762),
            (1_000_000_000_000, -14_400),
            (i64::MAX / 1000, -14_400),
        ] {
            assert_eq!(zone.offset(seconds), offset, "{seconds}");
        }
    }
}
