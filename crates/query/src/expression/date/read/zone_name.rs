//! Time zones as they stand in texts: `Z`, `+02:00`, `GMT-5`, `(CEST)`.
//!
//! Abbreviations are those that mongod knows, each with the first of the meanings it has had. Names of the
//! tz database are no part of a text.

use super::Said;
use super::token::Token;

/// What a text says of a zone; none if it is no zone.
pub(super) fn parse(token: &mut Token<'_>) -> Option<Said> {
    token.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'('));
    if token.rest().starts_with(b"GMT") && matches!(token.rest().get(3), Some(b'+' | b'-')) {
        token.advance(3);
    }
    let said = match token.peek() {
        Some(sign @ (b'+' | b'-')) => {
            token.advance(1);
            let digits = token.take_while(|byte| byte.is_ascii_digit() || byte == b':');
            clock(digits).map(|seconds| Said::Offset(if sign == b'-' { -seconds } else { seconds }))
        }
        _ => {
            let name = token.take_while(|byte| !matches!(byte, b' ' | b')' | 0));
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            let known = ABBREVIATIONS.binary_search_by(|(known, _)| (*known).cmp(&name));
            known.ok().map(|index| Said::Abbreviation { name, offset: ABBREVIATIONS[index].1 })
        }
    };
    token.skip_while(|byte| byte == b')');
    said
}

/// Seconds of `h`, `hh`, `h:m`, `hmm`, `hhmm`, `hh:mm`, `hhmmss` or `hh:mm:ss`. The form goes by the length,
/// and what is no digit ends a number.
fn clock(text: &[u8]) -> Option<i64> {
    let number = |from: usize| {
        let digits = text[from..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let has_colon = |at: usize| text.get(at) == Some(&b':');
    match text.len() {
        1 | 2 => Some(number(0) * 3600),
        3 | 4 if has_colon(1) => Some(number(0) * 3600 + number(2) * 60),
        3..=5 if has_colon(2) => Some(number(0) * 3600 + number(3) * 60),
        3 | 4 => Some(number(0) / 100 * 3600 + number(0) % 100 * 60),
        6 => Some(number(0) / 10_000 * 3600 + number(0) / 100 % 100 * 60 + number(0) % 100),
        8 if has_colon(2) && has_colon(5) => Some(number(0) * 3600 + number(3) * 60 + number(6)),
        _ => None,
    }
}

/// In order, with seconds east of Greenwich.
const ABBREVIATIONS: [(&str, i64); 144] = [
    ("A", 3600),
    ("ACDT", 37_800),
    ("ACST", 34_200),
    ("ADDT", -7200),
    ("ADT", -10_800),
    ("AEDT", 39_600),
    ("AEST", 36_000),
    ("AHDT", -32_400),
    ("AHST", -36_000),
    ("AKDT", -28_800),
    ("AKST", -32_400),
    ("AMT", -13_840),
    ("APT", -10_800),
    ("AST", -14_400),
    ("AWDT", 32_400),
    ("AWST", 28_800),
    ("AWT", -10_800),
    ("B", 7200),
    ("BDST", 7200),
    ("BDT", -36_000),
    ("BMT", -14_309),
    ("BST", 3600),
    ("C", 10_800),
    ("CAST", 34_200),
    ("CAT", 7200),
    ("CDDT", -14_400),
    ("CDT", -18_000),
    ("CEMT", 10_800),
    ("CEST", 7200),
    ("CET", 3600),
    ("CHST", 36_000),
    ("CMT", -15_408),
    ("CPT", -18_000),
    ("CST", -21_600),
    ("CWT", -18_000),
    ("D", 14_400),
    ("DMT", -1521),
    ("E", 18_000),
    ("EAT", 10_800),
    ("EDDT", -10_800),
    ("EDT", -14_400),
    ("EEST", 10_800),
    ("EET", 7200),
    ("EMT", -26_248),
    ("EPT", -14_400),
    ("EST", -18_000),
    ("EWT", -14_400),
    ("F", 21_600),
    ("FFMT", -14_660),
    ("FMT", -4056),
    ("G", 25_200),
    ("GDT", 39_600),
    ("GMT", 0),
    ("GST", 36_000),
    ("H", 28_800),
    ("HDT", -34_200),
    ("HKST", 32_400),
    ("HKT", 28_800),
    ("HMT", -19_776),
    ("HPT", -34_200),
    ("HST", -36_000),
    ("HWT", -34_200),
    ("I", 32_400),
    ("IDDT", 14_400),
    ("IDT", 10_800),
    ("IMT", 25_025),
    ("IST", 7200),
    ("JDT", 36_000),
    ("JMT", 8440),
    ("JST", 32_400),
    ("K", 36_000),
    ("KDT", 36_000),
    ("KMT", 5736),
    ("KST", 30_600),
    ("L", 39_600),
    ("LST", 9394),
    ("M", 43_200),
    ("MDDT", -18_000),
    ("MDST", 16_279),
    ("MDT", -21_600),
    ("MEST", 7200),
    ("MET", 3600),
    ("MMT", 9017),
    ("MPT", -21_600),
    ("MSD", 14_400),
    ("MSK", 10_800),
    ("MST", -25_200),
    ("MWT", -21_600),
    ("N", -3600),
    ("NDDT", -5400),
    ("NDT", -9052),
    ("NPT", -9000),
    ("NST", -12_600),
    ("NWT", -9000),
    ("NZDT", 46_800),
    ("NZMT", 41_400),
    ("NZST", 43_200),
    ("O", -7200),
    ("P", -10_800),
    ("PDDT", -21_600),
    ("PDT", -25_200),
    ("PKST", 21_600),
    ("PKT", 18_000),
    ("PLMT", 25_590),
    ("PMT", -13_236),
    ("PPMT", -17_340),
    ("PPT", -25_200),
    ("PST", -28_800),
    ("PWT", -25_200),
    ("Q", -14_400),
    ("QMT", -18_840),
    ("R", -18_000),
    ("RMT", 5794),
    ("S", -21_600),
    ("SAST", 7200),
    ("SDMT", -16_800),
    ("SJMT", -20_173),
    ("SMT", -13_884),
    ("SST", -39_600),
    ("T", -25_200),
    ("TBMT", 10_751),
    ("TMT", 12_344),
    ("U", -28_800),
    ("UCT", 0),
    ("UTC", 0),
    ("V", -32_400),
    ("W", -36_000),
    ("WAST", 7200),
    ("WAT", 3600),
    ("WEMT", 7200),
    ("WEST", 3600),
    ("WET", 0),
    ("WIB", 25_200),
    ("WIT", 32_400),
    ("WITA", 28_800),
    ("WMT", 5040),
    ("X", -39_600),
    ("Y", -43_200),
    ("YDDT", -25_200),
    ("YDT", -28_800),
    ("YPT", -28_800),
    ("YST", -32_400),
    ("YWT", -28_800),
    ("Z", 0),
];
