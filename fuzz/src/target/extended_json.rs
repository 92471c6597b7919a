//! Text: refused or read; what was read survives being written, exactly in canonical form.

use kilim_bson::{JsonFormat, RawDocument, parse_extended_json, to_extended_json};

pub fn check(input: &[u8]) {
    let Some(document) = crate::document(input) else { return };
    RawDocument::parse(document.as_bytes()).expect("what the parser makes is valid");
    let canonical = to_extended_json(document.as_raw(), JsonFormat::Canonical);
    let again = parse_extended_json(&canonical).unwrap_or_else(|error| panic!("{error}: {canonical}"));
    assert_eq!(document.as_bytes(), again.as_bytes(), "{canonical}");
    let relaxed = to_extended_json(document.as_raw(), JsonFormat::Relaxed);
    parse_extended_json(&relaxed).unwrap_or_else(|error| panic!("{error}: {relaxed}"));
}
