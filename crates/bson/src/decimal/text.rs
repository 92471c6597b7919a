//! Decimals as text: `1.10`, `-1E+3`, `NaN`, `Infinity`.

use std::fmt::{self, Write as _};

use super::{DIGITS_MAX, Decimal128, EXPONENT_MAX, EXPONENT_MIN, Parts, digits, power_of_ten};

/// Why a text is no decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseDecimalError {
    Empty,
    Malformed,
    Overflow,
    Underflow,
}

impl Decimal128 {
    /// Reads a decimal; more than 34 digits are rounded, half to even.
    pub fn parse(text: &str) -> Result<Decimal128, ParseDecimalError> {
        parse(text).map(|(decimal, _)| decimal)
    }

    /// Reads a decimal that must not lose digits: extended JSON has no rounding.
    pub fn parse_exact(text: &str) -> Result<Decimal128, ParseDecimalError> {
        match parse(text)? {
            (decimal, true) => Ok(decimal),
            (_, false) => Err(ParseDecimalError::Malformed),
        }
    }
}

/// The decimal, and whether it is exactly what the text says.
fn parse(text: &str) -> Result<(Decimal128, bool), ParseDecimalError> {
    if text.is_empty() {
        return Err(ParseDecimalError::Empty);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = |value: Decimal128| if negative { value.negate() } else { value };
    if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
        return Ok((signed(Decimal128::INFINITY), true));
    }
    if unsigned.eq_ignore_ascii_case("nan") {
        return Ok((signed(Decimal128::NAN), true));
    }

    let mut bytes = unsigned.bytes().peekable();
    let mut coefficient: u128 = 0;
    let mut exponent: i64 = 0;
    // The digits beyond the 34th: the first of them, and whether any other is not zero.
    let (mut first_dropped, mut more_dropped) = (None, false);
    let (mut any, mut point) = (false, false);
    while let Some(&byte) = bytes.peek() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                let digit = byte - b'0';
                if digits(coefficient) < DIGITS_MAX {
                    coefficient = coefficient * 10 + u128::from(digit);
                    exponent -= i64::from(point);
                } else {
                    match first_dropped {
                        None => first_dropped = Some(digit),
                        Some(_) => more_dropped |= digit != 0,
                    }
                    exponent += i64::from(!point);
                }
            }
            b'.' if !point => point = true,
            _ => break,
        }
        bytes.next();
    }
    if !any {
        return Err(ParseDecimalError::Malformed);
    }
    if let Some(b'e' | b'E') = bytes.peek() {
        bytes.next();
        let sign = match bytes.peek() {
            Some(b'-') => -1,
            Some(b'+') => 1,
            _ => 0,
        };
        if sign != 0 {
            bytes.next();
        }
        let mut stated: i64 = 0;
        let mut any = false;
        while let Some(byte @ b'0'..=b'9') = bytes.peek().copied() {
            any = true;
            // Saturates: beyond a million every exponent overflows or underflows alike.
            stated = (stated * 10 + i64::from(byte - b'0')).min(1_000_000);
            bytes.next();
        }
        if !any {
            return Err(ParseDecimalError::Malformed);
        }
        exponent += if sign < 0 { -stated } else { stated };
    }
    if bytes.next().is_some() {
        return Err(ParseDecimalError::Malformed);
    }

    let mut exact = true;
    if let Some(first) = first_dropped {
        exact = first == 0 && !more_dropped;
        if first > 5 || (first == 5 && (more_dropped || coefficient % 2 == 1)) {
            coefficient += 1;
            if digits(coefficient) > DIGITS_MAX {
                coefficient /= 10;
                exponent += 1;
            }
        }
    }
    if coefficient == 0 {
        let exponent = exponent.clamp(i64::from(EXPONENT_MIN), i64::from(EXPONENT_MAX)) as i32;
        return Ok((Decimal128::finite(negative, 0, exponent), exact));
    }
    // A high exponent can be lowered by writing zeros, a low one raised by taking them away.
    if exponent > i64::from(EXPONENT_MAX) {
        let excess = exponent - i64::from(EXPONENT_MAX);
        if excess + i64::from(digits(coefficient)) > i64::from(DIGITS_MAX) {
            return Err(ParseDecimalError::Overflow);
        }
        coefficient *= power_of_ten(excess as u32);
        exponent = i64::from(EXPONENT_MAX);
    }
    while exponent < i64::from(EXPONENT_MIN) {
        if !coefficient.is_multiple_of(10) {
            return Err(ParseDecimalError::Underflow);
        }
        coefficient /= 10;
        exponent += 1;
    }
    Ok((Decimal128::finite(negative, coefficient, exponent as i32), exact))
}

impl fmt::Display for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::NaN { .. } => return f.write_str("NaN"),
            Parts::Infinity { negative: false } => return f.write_str("Infinity"),
            Parts::Infinity { negative: true } => return f.write_str("-Infinity"),
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        if negative {
            f.write_char('-')?;
        }
        let text = coefficient.to_string();
        let adjusted = exponent + text.len() as i32 - 1;
        if exponent > 0 || adjusted < -6 {
            f.write_str(&text[..1])?;
            if text.len() > 1 {
                write!(f, ".{}", &text[1..])?;
            }
            return write!(f, "E{adjusted:+}");
        }
        let behind = -exponent as usize;
        if behind == 0 {
            f.write_str(&text)
        } else if behind < text.len() {
            let (before, behind) = text.split_at(text.len() - behind);
            write!(f, "{before}.{behind}")
        } else {
            write!(f, "0.{text:0>behind$}")
        }
    }
}

impl fmt::Display for ParseDecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseDecimalError::Empty => "Empty string",
            ParseDecimalError::Malformed => "Failed to parse string to decimal",
            ParseDecimalError::Overflow => "Conversion from string to decimal would overflow",
            ParseDecimalError::Underflow => "Conversion from string to decimal would underflow",
        })
    }
}

impl std::error::Error for ParseDecimalError {}
