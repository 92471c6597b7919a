//! Documents: refused or read; what is valid survives canonical text.

use kilim_bson::{
    JsonFormat, RawDocument, RawValue, compare_documents, parse_extended_json, to_extended_json,
};

pub fn check(input: &[u8]) {
    let mut bytes = input.to_vec();
    // A document knows its length; the fuzzer need not guess it.
    if let (Ok(length), true) = (i32::try_from(bytes.len()), bytes.len() >= 5) {
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        *bytes.last_mut().expect("five bytes") = 0;
    }
    let Ok(document) = RawDocument::parse(&bytes) else { return };
    crate::walk(document);
    assert!(compare_documents(document, document).is_eq());
    let copied: kilim_bson::Document =
        document.iter().map(|(name, value)| (name, value.to_value())).collect();
    assert_eq!(copied.as_bytes(), document.as_bytes(), "a copy, value by value, is the same");
    let text = to_extended_json(document, JsonFormat::Canonical);
    let relaxed = to_extended_json(document, JsonFormat::Relaxed);
    if !is_plain(document) {
        let _ = (parse_extended_json(&text), parse_extended_json(&relaxed));
        return;
    }
    let again = parse_extended_json(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(text, to_extended_json(again.as_raw(), JsonFormat::Canonical));
    let again = parse_extended_json(&relaxed).unwrap_or_else(|error| panic!("{error}: {relaxed}"));
    assert!(compare_documents(again.as_raw(), document).is_eq(), "{relaxed}");
}

/// Whether text keeps all of it: some names that begin with a dollar sign mean something else there, and the options of
/// a regular expression come in their order.
fn is_plain(document: RawDocument<'_>) -> bool {
    document.iter().all(|(name, value)| !name.starts_with('$') && is_plain_value(value))
}

fn is_plain_value(value: RawValue<'_>) -> bool {
    match value {
        // The names of an array's elements are not written.
        RawValue::Array(array) => array.iter().all(is_plain_value),
        RawValue::Regex { options, .. } => options.chars().is_sorted(),
        other => other.as_container().is_none_or(is_plain),
    }
}
