//! The rules of BSON and its extended JSON, type by type: what is valid, what it is as text, what is refused.
//!
//! The cases are in `corpus/*.txt`, a line each:
//!
//! ```text
//! valid 10 6100 01000000            elements in hex; length and end are put around them
//! canonical {"a":{"$numberInt":"1"}}  what they are as text, and back
//! relaxed {"a":1}                     if that differs from canonical text
//! reads {"a": 1 }                     other text that means the same bytes
//! degenerate 10 …                     other bytes that mean the same text
//! lossy                               the text does not give the bytes back
//! invalid 10 6100 01                elements that are refused
//! invalid-document 0600000000       a whole document that is refused
//! unread {"a":{"$numberInt":1}}     text that is refused
//! ```
//!
//! What stands behind ` # ` in a line of hex says why.

use kilim_bson::{
    Document, JsonFormat, RawDocument, compare_documents, parse_extended_json, to_extended_json,
};

const FILES: &[(&str, &str)] = &[
    ("top", include_str!("corpus/top.txt")),
    ("double", include_str!("corpus/double.txt")),
    ("string", include_str!("corpus/string.txt")),
    ("document", include_str!("corpus/document.txt")),
    ("array", include_str!("corpus/array.txt")),
    ("binary", include_str!("corpus/binary.txt")),
    ("constants", include_str!("corpus/constants.txt")),
    ("object_id", include_str!("corpus/object_id.txt")),
    ("date", include_str!("corpus/date.txt")),
    ("regex", include_str!("corpus/regex.txt")),
    ("db_pointer", include_str!("corpus/db_pointer.txt")),
    ("db_ref", include_str!("corpus/db_ref.txt")),
    ("code", include_str!("corpus/code.txt")),
    ("symbol", include_str!("corpus/symbol.txt")),
    ("code_with_scope", include_str!("corpus/code_with_scope.txt")),
    ("int32", include_str!("corpus/int32.txt")),
    ("timestamp", include_str!("corpus/timestamp.txt")),
    ("int64", include_str!("corpus/int64.txt")),
    ("decimal", include_str!("corpus/decimal.txt")),
    ("every_type", include_str!("corpus/every_type.txt")),
];

/// What is wrong, with its file and line; cases that were looked at.
#[derive(Default)]
struct Verdict {
    place: String,
    wrong: Vec<String>,
    cases: usize,
}

impl Verdict {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.cases += 1;
        if !holds {
            self.wrong.push(format!("{}: {}", self.place, what()));
        }
    }
}

/// A valid document and all that is said of it.
#[derive(Default)]
struct Case<'t> {
    bytes: Vec<u8>,
    canonical: &'t str,
    relaxed: Option<&'t str>,
    reads: Vec<&'t str>,
    degenerate: Vec<Vec<u8>>,
    lossy: bool,
}

#[test]
fn every_type_is_read_written_and_refused_by_the_rules() {
    let mut verdict = Verdict::default();
    for (name, text) in FILES {
        let mut open: Option<Case<'_>> = None;
        for (index, line) in text.lines().enumerate() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let continues = matches!(word, "canonical" | "relaxed" | "reads" | "degenerate" | "lossy");
            if !continues && let Some(case) = open.take() {
                check_valid(&case, &mut verdict);
            }
            verdict.place = format!("{name}.txt:{}", index + 1);
            if continues {
                let case = open.as_mut().expect("a case begins with 'valid'");
                match word {
                    "canonical" => case.canonical = rest,
                    "relaxed" => case.relaxed = Some(rest),
                    "reads" => case.reads.push(rest),
                    "degenerate" => case.degenerate.push(enclosed(rest)),
                    _ => case.lossy = true,
                }
                continue;
            }
            match word {
                "" | "#" => {}
                "valid" => open = Some(Case { bytes: enclosed(rest), ..Case::default() }),
                "invalid" => check_invalid(enclosed(rest), &mut verdict),
                "invalid-document" => check_invalid(bytes(rest), &mut verdict),
                "unread" => {
                    verdict.check(parse_extended_json(rest).is_err(), || format!("{rest} is read"));
                }
                other => panic!("{}: '{other}' begins no line", verdict.place),
            }
        }
        if let Some(case) = open {
            check_valid(&case, &mut verdict);
        }
    }
    let Verdict { wrong, cases, .. } = verdict;
    assert!(wrong.is_empty(), "{} of {cases} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 1000, "{cases} cases were found");
}

fn check_valid(case: &Case<'_>, verdict: &mut Verdict) {
    let Case { bytes, canonical, reads, degenerate, .. } = case;
    let document = match RawDocument::parse(bytes) {
        Ok(document) => document,
        Err(fault) => return verdict.check(false, || format!("{fault}")),
    };
    let copied: Document = document.iter().map(|(name, value)| (name, value.to_value())).collect();
    verdict.check(copied.as_bytes() == bytes, || "a copy, value by value, differs".to_owned());
    check_text(document, JsonFormat::Canonical, canonical, verdict);
    let relaxed = case.relaxed.unwrap_or(canonical);
    check_text(document, JsonFormat::Relaxed, relaxed, verdict);
    match parse_extended_json(relaxed) {
        Ok(read) => {
            let equal = compare_documents(read.as_raw(), document).is_eq();
            verdict.check(equal, || format!("{relaxed} means another value"));
            check_text(read.as_raw(), JsonFormat::Relaxed, relaxed, verdict);
        }
        Err(error) => verdict.check(false, || format!("{error}: {relaxed}")),
    }
    if !case.lossy {
        check_read(canonical, bytes, verdict);
    }
    reads.iter().for_each(|text| check_read(text, bytes, verdict));
    for bytes in degenerate {
        match RawDocument::parse(bytes) {
            Ok(document) => {
                check_text(document, JsonFormat::Canonical, canonical, verdict);
                check_text(document, JsonFormat::Relaxed, relaxed, verdict);
            }
            Err(fault) => verdict.check(false, || format!("degenerate: {fault}")),
        }
    }
}

fn check_text(document: RawDocument<'_>, format: JsonFormat, expected: &str, verdict: &mut Verdict) {
    let text = to_extended_json(document, format);
    verdict.check(text == expected, || format!("{format:?} text is {text}, not {expected}"));
}

fn check_read(text: &str, expected: &[u8], verdict: &mut Verdict) {
    match parse_extended_json(text) {
        Ok(read) => verdict.check(read.as_bytes() == expected, || format!("{text} is read as {read:?}")),
        Err(error) => verdict.check(false, || format!("{error}: {text}")),
    }
}

fn check_invalid(bytes: Vec<u8>, verdict: &mut Verdict) {
    verdict.check(RawDocument::parse(&bytes).is_err(), || format!("{bytes:02X?} passes"));
    verdict.check(Document::parse(bytes).is_err(), || "and is kept".to_owned());
}

/// Hex, up to the comment.
fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.split('#').next().unwrap_or_default();
    let digits: Vec<u32> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect(hex)).collect();
    assert!(digits.len().is_multiple_of(2), "{hex}");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Elements between a true length and the end.
fn enclosed(hex: &str) -> Vec<u8> {
    let elements = bytes(hex);
    let length = i32::try_from(elements.len() + 5).expect("cases are short");
    [&length.to_le_bytes()[..], &elements, &[0]].concat()
}

/// Two brackets a level in text, one level in bytes.
#[test]
fn code_within_scopes_is_read_as_deep_as_documents_are() {
    let nested = |levels: usize| {
        (0..levels).fold("{}".to_owned(), |scope, _| format!(r#"{{"a":{{"$code":"","$scope":{scope}}}}}"#))
    };
    let deepest = parse_extended_json(&nested(200)).expect("as deep as documents may be");
    assert_eq!(to_extended_json(deepest.as_raw(), JsonFormat::Canonical), nested(200));
    assert!(parse_extended_json(&nested(201)).is_err());
}
