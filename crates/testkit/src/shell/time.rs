//! Dates as ISO 8601 text, by the proleptic Gregorian calendar.

use kilim_bson::calendar::{civil, days};

const DAY_MS: i64 = 86_400_000;

/// `2024-01-15T10:00:00.000Z`, or nothing outside the years 0 to 9999, which need another form.
pub(super) fn print(millis: i64) -> Option<String> {
    let (year, month, day) = civil(millis.div_euclid(DAY_MS));
    if !(0..=9999).contains(&year) {
        return None;
    }
    let rest = millis.rem_euclid(DAY_MS);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000))
}

/// Reads `2024-01-15`, `2024-01-15T10:00`, seconds, fractions, and `Z` or an offset.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut millis = days(year, month, day) * DAY_MS;
    if time.is_empty() {
        return Some(millis);
    }
    let (clock, offset_minutes) = match time.find(['Z', '+', '-']) {
        None => (time, 0),
        Some(at) if &time[at..] == "Z" => (&time[..at], 0),
        Some(at) => {
            let (hours, minutes) = time[at + 1..].split_once(':').unwrap_or((&time[at + 1..], "0"));
            let offset = number(hours)? * 60 + number(minutes)?;
            (&time[..at], if time.as_bytes()[at] == b'-' { -offset } else { offset })
        }
    };
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let (second, fraction) =
        parts.next().map_or(("0", ""), |rest| rest.split_once('.').unwrap_or((rest, "")));
    millis += (hour * 60 + minute - offset_minutes) * 60_000 + number(second)? * 1000;
    if !fraction.is_empty() {
        millis += number(&format!("{fraction:0<3}")[..3])?;
    }
    Some(millis)
}

fn number(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_centuries_reads_back() {
        for day in (-200_000..200_000).step_by(7) {
            let text = print(day * DAY_MS + 1).expect("within the printable years");
            assert_eq!(parse(&text), Some(day * DAY_MS + 1), "{text}");
        }
    }
}
