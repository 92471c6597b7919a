//! Numbers and words within a piece of text.

use super::UNSAID;

/// Reads a piece of text from its beginning. What lies behind its end reads as nothing, and so does a zero
/// byte.
pub struct Token<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Token<'t> {
    pub fn new(bytes: &'t [u8]) -> Token<'t> {
        Token { bytes, at: 0 }
    }

    pub fn rest(&self) -> &'t [u8] {
        &self.bytes[self.at..]
    }

    /// How much was read.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest().first().copied().filter(|byte| *byte != 0)
    }

    pub fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.bytes.len());
    }

    pub fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t [u8] {
        let rest = self.rest();
        let length = rest.iter().position(|byte| *byte == 0 || !wanted(*byte)).unwrap_or(rest.len());
        self.advance(length);
        &rest[..length]
    }

    pub fn skip_while(&mut self, unwanted: impl Fn(u8) -> bool) {
        self.take_while(unwanted);
    }

    pub fn skip_spaces(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t'));
    }

    /// The next number, wherever it begins, of at most so many digits; [`UNSAID`] if there is none.
    pub fn number(&mut self, digits_max: usize) -> i64 {
        self.number_and_digits(digits_max).0
    }

    /// The same, and how many digits it has.
    pub fn number_and_digits(&mut self, digits_max: usize) -> (i64, usize) {
        self.skip_while(|byte| !byte.is_ascii_digit());
        let digits = self.digits(digits_max);
        (if digits.is_empty() { UNSAID } else { value(digits) }, digits.len())
    }

    /// The next number with its sign. Of several signs the first counts.
    pub fn signed_number(&mut self, digits_max: usize) -> i64 {
        self.skip_while(|byte| !byte.is_ascii_digit() && !matches!(byte, b'+' | b'-'));
        let negative = self.peek() == Some(b'-');
        self.skip_while(|byte| !byte.is_ascii_digit());
        let number = value(self.digits(digits_max));
        if negative { -number } else { number }
    }

    fn digits(&mut self, digits_max: usize) -> &'t [u8] {
        let rest = self.rest();
        let length = rest.iter().take(digits_max).take_while(|byte| byte.is_ascii_digit()).count();
        self.advance(length);
        &rest[..length]
    }

    /// Microseconds of a fraction with its point. More digits than a double has are rounded as one.
    pub fn fraction(&mut self) -> i64 {
        self.advance(1);
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let number: f64 = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let scale =
            i32::try_from(digits.len()).map_or(f64::INFINITY, |length| 10_f64.powi((length - 6).abs()));
        (if digits.len() > 6 { number / scale } else { number * scale }) as i64
    }

    pub fn word(&mut self) -> &'t [u8] {
        self.take_while(|byte| byte.is_ascii_alphabetic())
    }

    /// The number of a month that is written as a word; 0 if it is none.
    pub fn month(&mut self) -> i64 {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'-' | b'.' | b'/'));
        month_number(self.word())
    }

    /// What `am` or `pm` adds to an hour.
    pub fn meridian(&mut self, hour: i64) -> i64 {
        self.skip_while(|byte| !matches!(byte, b'a' | b'A' | b'p' | b'P'));
        let afternoon = matches!(self.peek(), Some(b'p' | b'P'));
        self.advance(1);
        match (afternoon, hour) {
            (false, 12) => -12,
            (false, _) | (true, 12) => 0,
            (true, _) => 12,
        }
    }
}

fn value(digits: &[u8]) -> i64 {
    let step = |number: i64, digit: &u8| number.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    digits.iter().fold(0, step)
}

const MONTHS: [&[&str]; 12] = [
    &["january", "jan", "i"],
    &["february", "feb", "ii"],
    &["march", "mar", "iii"],
    &["april", "apr", "iv"],
    &["may", "v"],
    &["june", "jun", "vi"],
    &["july", "jul", "vii"],
    &["august", "aug", "viii"],
    &["september", "sep", "sept", "ix"],
    &["october", "oct", "x"],
    &["november", "nov", "xi"],
    &["december", "dec", "xii"],
];

/// 0 if it is no month.
pub fn month_number(word: &[u8]) -> i64 {
    let is_named = |names: &&[&str]| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(word));
    MONTHS.iter().position(is_named).map_or(0, |index| index as i64 + 1)
}
