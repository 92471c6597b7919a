//! What a text says relative to a date: `+2 days`, `last monday of`, `3 weekdays ago`.

use kilim_bson::calendar;

use super::super::civil::{days_carried, weekday};
use super::in_range;

/// Amounts to be added, and a day of the week or month to go to.
#[derive(Debug, Default)]
pub struct Relative {
    pub years: i64,
    pub months: i64,
    pub days: i64,
    pub hours: i64,
    pub minutes: i64,
    pub whole_seconds: i64,
    pub micros: i64,
    pub weekday: Option<Weekday>,
    pub rule: WeekdayRule,
    pub special: Option<Special>,
    pub month_end: Option<MonthEnd>,
}

/// Sunday is 0; less than 0 after `ago`.
pub type Weekday = i64;

/// Which day a weekday means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WeekdayRule {
    /// One after today.
    #[default]
    After,
    /// Today counts.
    AtOrAfter,
    /// The one of this week, which begins on Monday.
    InWeek,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Days that are no weekend.
    Weekdays(i64),
    /// `second monday of`.
    WeekdayOfMonth,
    /// `last monday of`.
    LastWeekdayOfMonth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonthEnd {
    First,
    Last,
}

impl Relative {
    pub fn seconds(&self) -> i128 {
        i128::from(self.hours) * 3600 + i128::from(self.minutes) * 60 + i128::from(self.whole_seconds)
    }

    /// `ago`: everything said so far the other way.
    pub fn reverse(&mut self) {
        for amount in [
            &mut self.years,
            &mut self.months,
            &mut self.days,
            &mut self.hours,
            &mut self.minutes,
            &mut self.whole_seconds,
        ] {
            *amount = amount.saturating_neg();
        }
        if let Some(weekday) = &mut self.weekday {
            *weekday = if *weekday == 0 { -7 } else { -*weekday };
        }
        if let Some(Special::Weekdays(count)) = &mut self.special {
            *count = count.saturating_neg();
        }
    }

    /// Days since 1970 of a date after everything that moves its day but not by time passing; none beyond all
    /// reason.
    pub fn move_day(&self, year: i64, month: i64, day: i64) -> Option<i64> {
        if ![self.years, self.months, self.days].into_iter().all(in_range) {
            return None;
        }
        let (mut month, mut day, mut months) = (month, day, self.months);
        if let Some(special @ (Special::WeekdayOfMonth | Special::LastWeekdayOfMonth)) = self.special {
            day = 1;
            month += std::mem::take(&mut months) + i64::from(special == Special::LastWeekdayOfMonth);
        }
        if let Some(wanted) = self.weekday {
            // An end of the month is gone to first, and once more from the weekday found there.
            (month, day) = self.to_end_of_month(month, day);
            day += self.to_weekday(wanted, weekday(days_carried(year, month, day)));
        }
        // Normal again before amounts are added: a day that was moved out of its month counts there.
        let (year, month, day) = calendar::civil(days_carried(year, month, day));
        let (month, day) = self.to_end_of_month(month + months, day + self.days);
        Some(days_carried(year + self.years, month, day))
    }

    fn to_end_of_month(&self, month: i64, day: i64) -> (i64, i64) {
        match self.month_end {
            None => (month, day),
            Some(MonthEnd::First) => (month, 1),
            Some(MonthEnd::Last) => (month + 1, 0),
        }
    }

    /// Days to go for `+3 weekdays`, once everything else has moved; none beyond all reason.
    pub fn move_over_weekends(&self, day: i64) -> Option<i64> {
        match self.special {
            Some(Special::Weekdays(count)) => in_range(count).then(|| over_weekends(day, count)),
            _ => Some(0),
        }
    }

    /// Days from one weekday to the wanted one.
    fn to_weekday(&self, wanted: Weekday, today: i64) -> i64 {
        if self.rule == WeekdayRule::InWeek {
            // Sunday ends the week.
            let wanted = if wanted == 0 { 7 } else { wanted };
            let today = if today == 0 { 7 } else { today };
            return wanted - today;
        }
        if wanted < 0 {
            return -(7 - (-wanted - today));
        }
        let distance = wanted - today;
        let today_counts = i64::from(self.rule == WeekdayRule::AtOrAfter);
        let passed = if self.days < 0 { distance < 0 } else { distance <= -today_counts };
        if passed { distance + 7 } else { distance }
    }
}

/// How many days it takes to go over a number of days from Monday to Friday.
fn over_weekends(days: i64, count: i64) -> i64 {
    if count == 0 {
        return 0;
    }
    // Monday is 0. From a weekend, counting starts at the working day that lies behind.
    let today = (weekday(days) + 6) % 7;
    let (weeks, rest) = (count / 5, count % 5);
    if count > 0 {
        let start = today.min(4);
        let over = if start + rest > 4 { 2 } else { 0 };
        weeks * 7 + rest + over + start - today
    } else {
        let start = if today > 4 { 7 } else { today };
        let over = if start + rest < 0 || (start == 7 && rest < 0) { -2 } else { 0 };
        weeks * 7 + rest + over + start - today
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weekends_are_skipped_as_by_counting() {
        for start in 0..14 {
            for count in -17..=17_i64 {
                let mut day = start;
                for _ in 0..count.abs() {
                    day += count.signum();
                    while matches!(weekday(day), 0 | 6) {
                        day += count.signum();
                    }
                }
                assert_eq!(start + over_weekends(start, count), day, "{count} from {start}");
            }
        }
    }
}
