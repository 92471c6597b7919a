//! Numbers written as text.
//!
//! Whole numbers are a sign and digits. Doubles are what C's `strtod` reads, with nothing before or behind
//! it: so a sign lets hexadecimal digits through that are refused without one.

use kilim_bson::Decimal128;
use kilim_error::{Error, Result};

use super::failure;

pub(super) fn refused(text: &str, why: &str) -> Error {
    failure(format!("Failed to parse number '{text}' in $convert with no onError value: {why}"))
}

fn check_hexadecimal(text: &str) -> Result<()> {
    if text.starts_with("0x") {
        return Err(failure(format!("Illegal hexadecimal input in $convert with no onError value: {text}")));
    }
    Ok(())
}

pub(super) fn parse_long(text: &str) -> Result<i64> {
    check_hexadecimal(text)?;
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() {
        return Err(refused(text, "No digits"));
    }
    let mut value: i64 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return Err(refused(text, "Did not consume whole string."));
        }
        let digit = i64::from(byte - b'0');
        // Downwards if it is to be negative, since the lowest long has no positive counterpart.
        value = value
            .checked_mul(10)
            .and_then(|value| if negative { value.checked_sub(digit) } else { value.checked_add(digit) })
            .ok_or_else(|| refused(text, "Overflow"))?;
    }
    Ok(value)
}

pub(super) fn parse_decimal(text: &str) -> Result<Decimal128> {
    check_hexadecimal(text)?;
    let read = match Decimal128::parse_exact(text) {
        Ok(decimal) => return Ok(decimal),
        Err(_) => Decimal128::parse(&without_excess_digits(text)),
    };
    read.map_err(|error| refused(text, &error.to_string()))
}

/// More digits than a decimal holds are cut off here, not rounded: zeros stand in for them.
fn without_excess_digits(text: &str) -> String {
    const DIGITS_MAX: usize = 34;
    let mut digits = 0;
    let mut exponent = false;
    let kept = text.chars().map(|c| {
        exponent |= matches!(c, 'e' | 'E');
        if exponent || !c.is_ascii_digit() || (digits == 0 && c == '0') {
            return c;
        }
        digits += 1;
        if digits > DIGITS_MAX { '0' } else { c }
    });
    kept.collect()
}

pub(super) fn parse_double(text: &str) -> Result<f64> {
    check_hexadecimal(text)?;
    if text.is_empty() {
        return Err(refused(text, "Empty string"));
    }
    if text.starts_with([' ', '\t', '\n', '\r', '\x0b', '\x0c']) {
        return Err(refused(text, "Leading whitespace"));
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let Some(read) =
        read_special(unsigned).or_else(|| read_hexadecimal(unsigned)).or_else(|| read_digits(unsigned))
    else {
        return Err(refused(text, "Did not consume any digits"));
    };
    if read.length != unsigned.len() {
        return Err(refused(text, "Did not consume whole string."));
    }
    let lost =
        (read.value.is_infinite() && !read.special) || (read.value < f64::MIN_POSITIVE && !read.is_zero);
    if lost {
        return Err(refused(text, "Out of range"));
    }
    Ok(if negative { -read.value } else { read.value })
}

/// A number at the beginning of a text, without its sign.
struct Read {
    value: f64,
    /// Bytes it takes.
    length: usize,
    /// Written as zero, not rounded to it.
    is_zero: bool,
    special: bool,
}

fn read_special(text: &str) -> Option<Read> {
    let bytes = text.as_bytes();
    let begins =
        |name: &str| bytes.len() >= name.len() && bytes[..name.len()].eq_ignore_ascii_case(name.as_bytes());
    let special = |value, length| Some(Read { value, length, is_zero: false, special: true });
    if begins("infinity") {
        return special(f64::INFINITY, 8);
    }
    if begins("inf") {
        return special(f64::INFINITY, 3);
    }
    if !begins("nan") {
        return None;
    }
    // A payload in parentheses may follow, and means nothing.
    let payload = text[3..].strip_prefix('(').and_then(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        rest[end..].starts_with(')').then_some(end + 2)
    });
    special(f64::NAN, 3 + payload.unwrap_or(0))
}

fn read_digits(text: &str) -> Option<Read> {
    let bytes = text.as_bytes();
    let digits_from = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits_from(0);
    let mut length = whole;
    let mut fraction = 0;
    if bytes.get(length) == Some(&b'.') {
        fraction = digits_from(length + 1);
        length += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    let is_zero = !bytes[..length].iter().any(|byte| (b'1'..=b'9').contains(byte));
    if let Some(b'e' | b'E') = bytes.get(length) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let digits = digits_from((length + 1 + sign).min(bytes.len()));
        if digits > 0 {
            length += 1 + sign + digits;
        }
    }
    let value = text[..length].parse().ok()?;
    Some(Read { value, length, is_zero, special: false })
}

/// `0x1.8p3`. More digits than a double holds are cut, not rounded.
fn read_hexadecimal(text: &str) -> Option<Read> {
    let bytes = text.as_bytes();
    if !matches!(bytes, [b'0', b'x' | b'X', ..]) {
        return None;
    }
    let (mut value, mut scale, mut at, mut point, mut any) = (0.0f64, 0i32, 2, false, false);
    while let Some(&byte) = bytes.get(at) {
        match char::from(byte).to_digit(16) {
            Some(digit) => {
                any = true;
                value = value * 16.0 + f64::from(digit);
                scale -= if point { 4 } else { 0 };
            }
            None if byte == b'.' && !point => point = true,
            None => break,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    let is_zero = value == 0.0;
    if let Some(b'p' | b'P') = bytes.get(at) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let start = (at + 1 + sign).min(bytes.len());
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            let power: i32 = text[start..start + digits].parse().unwrap_or(100_000);
            let power = power.min(100_000);
            scale += if bytes[at + 1] == b'-' { -power } else { power };
            at = start + digits;
        }
    }
    Some(Read {
        value: value * f64::from(scale.clamp(-2000, 2000)).exp2(),
        length: at,
        is_zero,
        special: false,
    })
}
