//! A moment as a clock and a calendar on the wall show it.
//!
//! Seconds and milliseconds are kept apart, so that every date of 64 bits can be moved by any offset.

use kilim_bson::calendar;

pub const SECONDS_PER_DAY: i64 = 86_400;

/// Local time: what a clock shows, counted as if it stood in Greenwich.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Days since 1970.
    pub days: i64,
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Civil {
    /// From local seconds since 1970.
    pub fn of(seconds: i64) -> Civil {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = calendar::civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        Civil { days, year, month, day, hour, minute, second }
    }

    /// Seconds since local midnight.
    pub fn second_of_day(&self) -> i64 {
        self.hour * 3600 + self.minute * 60 + self.second
    }

    /// From 1.
    pub fn day_of_year(&self) -> i64 {
        self.days - calendar::days(self.year, 1, 1) + 1
    }

    /// Sunday is 0.
    pub fn weekday(&self) -> i64 {
        weekday(self.days)
    }

    /// Monday is 1, Sunday 7.
    pub fn iso_weekday(&self) -> i64 {
        (self.weekday() + 6) % 7 + 1
    }

    /// Weeks begin on Sundays; what precedes the first Sunday is week 0.
    pub fn week(&self) -> i64 {
        (self.day_of_year() + 6 - self.weekday()) / 7
    }

    /// The year and number of the week by ISO 8601: a week belongs to the year that has its Thursday.
    pub fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days - self.iso_weekday() + 4;
        let (year, _, _) = calendar::civil(thursday);
        (year, (thursday - calendar::days(year, 1, 1)) / 7 + 1)
    }
}

/// Sunday is 0.
pub fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// Days since 1970 of the Monday with which a year's first week begins.
pub fn first_iso_monday(year: i64) -> i64 {
    let fourth = calendar::days(year, 1, 4);
    fourth - (weekday(fourth) + 6) % 7
}

/// Days since 1970, for months beyond 1 to 12 and days beyond the month.
pub fn days_carried(year: i64, month: i64, day: i64) -> i64 {
    let months = year * 12 + month - 1;
    calendar::days(months.div_euclid(12), months.rem_euclid(12) + 1, 1) + day - 1
}

pub fn days_in_month(year: i64, month: i64) -> i64 {
    days_carried(year, month + 1, 1) - days_carried(year, month, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_belong_to_the_year_of_their_thursday() {
        for ((year, month, day), week, iso) in [
            ((2017, 1, 1), 1, (2016, 52)),
            ((2016, 1, 1), 0, (2015, 53)),
            ((2014, 12, 30), 52, (2015, 1)),
            ((2021, 1, 4), 1, (2021, 1)),
        ] {
            let civil = Civil::of(calendar::days(year, month, day) * SECONDS_PER_DAY);
            assert_eq!((civil.week(), civil.iso_week()), (week, iso));
        }
    }

    #[test]
    fn every_date_of_64_bits_has_a_calendar_day() {
        let first = Civil::of(i64::MIN.div_euclid(1000));
        assert_eq!((first.year, first.month, first.day), (-292_275_055, 5, 16));
        let last = Civil::of(i64::MAX.div_euclid(1000));
        assert_eq!((last.year, last.month, last.day), (292_278_994, 8, 17));
    }
}
