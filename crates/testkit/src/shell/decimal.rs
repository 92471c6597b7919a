//! Decimal128 as text and as the BID bytes of BSON.
//!
//! Written apart from `kilim-bson`'s arithmetic on purpose: a fault there must show in a spec, and it
//! would not if the same code wrote the expectation. Text is taken literally: digits and exponent
//! are stored as they stand, and what does not fit is refused rather than rounded.

use kilim_bson::Decimal128;

const EXPONENT_BIAS: i32 = 6176;
const SIGN: u128 = 1 << 127;
const INFINITY: u128 = 0x78 << 120;
const NAN: u128 = 0x7c << 120;
/// The largest coefficient: 34 nines.
const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;

pub(super) fn parse(text: &str) -> Option<Decimal128> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = match body.to_ascii_lowercase().as_str() {
        "nan" => NAN,
        "inf" | "infinity" => INFINITY,
        number => finite(number)?,
    };
    Some(Decimal128::from_bytes((magnitude | if negative { SIGN } else { 0 }).to_le_bytes()))
}

fn finite(number: &str) -> Option<u128> {
    let (digits, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut coefficient: u128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        coefficient = coefficient.checked_mul(10)?.checked_add(u128::from(digit - b'0'))?;
    }
    let mut exponent = exponent.parse::<i32>().ok()? - fraction.len() as i32;
    // An exponent beyond the largest is stored by padding the coefficient with zeroes.
    while exponent > 6111 && coefficient <= COEFFICIENT_MAX / 10 {
        coefficient *= 10;
        exponent -= 1;
    }
    if coefficient > COEFFICIENT_MAX || !(-EXPONENT_BIAS..=6111).contains(&exponent) {
        return None;
    }
    Some((((exponent + EXPONENT_BIAS) as u128) << 113) | coefficient)
}

pub(super) fn print(value: Decimal128) -> String {
    let bits = u128::from_le_bytes(value.to_bytes());
    let sign = if bits & SIGN != 0 { "-" } else { "" };
    let magnitude = bits & !SIGN;
    if magnitude & NAN == NAN {
        return "NaN".to_owned();
    }
    if magnitude & INFINITY == INFINITY {
        return format!("{sign}Infinity");
    }
    // The second form of the encoding, with leading bits 11, only holds coefficients too large to be
    // canonical; they count as zero.
    let (biased, coefficient) = if magnitude >> 125 == 3 {
        ((magnitude >> 111) as i32 & 0x3fff, 0)
    } else {
        let coefficient = magnitude & ((1 << 113) - 1);
        ((magnitude >> 113) as i32, if coefficient > COEFFICIENT_MAX { 0 } else { coefficient })
    };
    let exponent = biased - EXPONENT_BIAS;
    let digits = coefficient.to_string();
    let scientific = exponent + digits.len() as i32 - 1;
    if exponent > 0 || scientific < -6 {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}E{scientific:+}");
    }
    let fraction = (-exponent) as usize;
    if fraction == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = fraction + 1);
    let (whole, fraction) = padded.split_at(padded.len() - fraction);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_print_as_they_were_written() {
        let same = ["0", "-0", "0.00", "1.50", "-12345678901234567890.12345678901234", "1E+3", "1.5E-7"];
        for text in same.into_iter().chain(["NaN", "Infinity", "-Infinity", "9.999E+6144", "1E-6176"]) {
            let padded = parse(text).map(print);
            let expected =
                if text == "9.999E+6144" { "9.999000000000000000000000000000000E+6144" } else { text };
            assert_eq!(padded.as_deref(), Some(expected));
        }
        assert!(parse("1.2.3").is_none() && parse("").is_none() && parse("1E+9999").is_none());
    }
}
