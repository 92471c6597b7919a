//! Units of time, and the days with which a week can begin.

/// From the longest to the shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    const ALL: [Unit; 9] = [
        Unit::Year,
        Unit::Quarter,
        Unit::Month,
        Unit::Week,
        Unit::Day,
        Unit::Hour,
        Unit::Minute,
        Unit::Second,
        Unit::Millisecond,
    ];

    pub fn parse(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Unit::Year => "year",
            Unit::Quarter => "quarter",
            Unit::Month => "month",
            Unit::Week => "week",
            Unit::Day => "day",
            Unit::Hour => "hour",
            Unit::Minute => "minute",
            Unit::Second => "second",
            Unit::Millisecond => "millisecond",
        }
    }

    /// How it is counted.
    pub fn measure(self) -> Measure {
        match self {
            Unit::Year => Measure::Months(12),
            Unit::Quarter => Measure::Months(3),
            Unit::Month => Measure::Months(1),
            Unit::Week => Measure::Days(7),
            Unit::Day => Measure::Days(1),
            Unit::Hour => Measure::Millis(3_600_000),
            Unit::Minute => Measure::Millis(60_000),
            Unit::Second => Measure::Millis(1000),
            Unit::Millisecond => Measure::Millis(1),
        }
    }
}

/// Calendars count months and days, clocks count milliseconds; neither is a number of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Months(i64),
    Days(i64),
    Millis(i64),
}

const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// A weekday by its name or its first three letters, in any case; Sunday is 0.
pub fn parse_weekday(name: &str) -> Option<i64> {
    let known = |full: &&str| full.eq_ignore_ascii_case(name) || full[..3].eq_ignore_ascii_case(name);
    WEEKDAYS.iter().position(known).map(|index| index as i64)
}
