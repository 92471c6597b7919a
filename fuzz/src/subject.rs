//! Inputs as documents, and the documents that questions are asked of.

use std::sync::LazyLock;

use kilim_bson::{Document, RawDocument, RawValue, parse_extended_json};

/// The document that an input means.
pub fn document(input: &[u8]) -> Option<Document> {
    parse_extended_json(std::str::from_utf8(input).ok()?).ok()
}

/// Documents of many shapes, to be asked and changed.
pub fn subjects() -> &'static [Document] {
    const SUBJECTS: &[&str] = &[
        "{}",
        r#"{"_id": 1, "a": 1, "b": {"c": 2, "d": [1, 2, 3]}}"#,
        r#"{"_id": 2, "a": [1, "x", null, {"b": 1}, [2]], "b": [{"c": 1}, {"c": [2, 3]}, 4]}"#,
        r#"{"_id": 3, "a": {"$numberDouble": "NaN"}, "b": {"$numberLong": "9223372036854775807"}, "c": {"$numberDecimal": "1E+6000"}}"#,
        r#"{"_id": 4, "a": "text", "b": {"$date": {"$numberLong": "-1"}}, "c": {"$minKey": 1}, "0": {"1": [[]]}}"#,
        r#"{"_id": {"x": 1}, "a": {"$timestamp": {"t": 1, "i": 2}}, "b": {"$regularExpression": {"pattern": "^a", "options": "i"}}}"#,
    ];
    static PARSED: LazyLock<Vec<Document>> = LazyLock::new(|| {
        SUBJECTS.iter().map(|text| parse_extended_json(text).expect("subjects are documents")).collect()
    });
    &PARSED
}

/// Reads every value of a document, and of those within.
pub fn walk(document: RawDocument<'_>) -> usize {
    document.iter().map(|(name, value)| name.len() + weight(value)).sum()
}

fn weight(value: RawValue<'_>) -> usize {
    match value {
        RawValue::Document(document) => 1 + walk(document),
        RawValue::Array(array) => 1 + walk(array.as_document()),
        RawValue::JavaScriptWithScope { code, scope } => code.len() + walk(scope),
        RawValue::String(text) => text.len(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 1,
    }
}
