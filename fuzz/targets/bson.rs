//! Documents: refused or read; what is valid survives canonical text.
#![no_main]

use kilim_bson::{JsonFormat, RawDocument, parse_extended_json, to_extended_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    if let (Ok(length), true) = (i32::try_from(bytes.len()), bytes.len() >= 5) {
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        *bytes.last_mut().expect("five bytes") = 0;
    }
    let Ok(document) = RawDocument::parse(&bytes) else { return };
    kilim_fuzz::walk(document);
    assert!(kilim_bson::compare_documents(document, document).is_eq());
    let text = to_extended_json(document, JsonFormat::Canonical);
    // Names such as "$oid" mean something else in text.
    if text.contains("\"$") && parse_extended_json(&text).is_err() {
        return;
    }
    let again = parse_extended_json(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let text_again = to_extended_json(again.as_raw(), JsonFormat::Canonical);
    assert_eq!(text, text_again);
});
