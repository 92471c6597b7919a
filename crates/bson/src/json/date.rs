//! Dates as ISO 8601 text, in the proleptic Gregorian calendar.

use crate::calendar::{civil, days};

const DAY_MS: i64 = 86_400_000;

/// `2020-01-31T10:00:00.5Z` without needless fractions; `None` outside the years 1970 to 9999, which
/// relaxed JSON writes as numbers.
pub(super) fn format(millis: i64) -> Option<String> {
    const YEAR_10000_MS: i64 = 253_402_300_800_000;
    if !(0..YEAR_10000_MS).contains(&millis) {
        return None;
    }
    let (days, in_day) = (millis.div_euclid(DAY_MS), millis.rem_euclid(DAY_MS));
    let (year, month, day) = civil(days);
    let (seconds, fraction) = (in_day / 1000, in_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        text.push_str(&format!(".{fraction:03}"));
    }
    text.push('Z');
    Some(text)
}

/// Reads `YYYY-MM-DDTHH:MM:SS`, an optional fraction, and `Z` or an offset such as `+01:00`.
pub(super) fn parse(text: &str) -> Option<i64> {
    if !text.is_ascii() || text.len() < 20 {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| text.as_bytes()[at] != byte) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = days(year, month, day);
    // An impossible day becomes another one on the way back.
    if !(1..=12).contains(&month) || civil(days) != (year, month, day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = &text[19..];
    let mut fraction = 0;
    if let Some(behind) = rest.strip_prefix('.') {
        let count = behind.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        // Milliseconds; further digits are dropped.
        let digits = &behind[..count.min(3)];
        fraction = digits.parse::<i64>().ok()? * 10i64.pow(3 - digits.len() as u32);
        rest = &behind[count..];
    }
    let offset = match rest.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), digits @ ..] => {
            let (hours, minutes) = match digits {
                [a, b, b':', c, d] | [a, b, c, d] => ([*a, *b], [*c, *d]),
                [a, b] => ([*a, *b], [b'0', b'0']),
                _ => return None,
            };
            let two = |pair: [u8; 2]| -> Option<i64> {
                pair.iter()
                    .all(u8::is_ascii_digit)
                    .then(|| i64::from(pair[0] - b'0') * 10 + i64::from(pair[1] - b'0'))
            };
            let minutes = two(hours)? * 60 + two(minutes)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    Some(days * DAY_MS + ((hour * 60 + minute - offset) * 60 + second) * 1000 + fraction)
}
