use proptest::prelude::*;

use super::*;
use crate::arbitrary::{document, value};
use crate::{RawDocument, Value, compare_documents, doc};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|letter| !letter.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// Stored bytes of `{a: …}` without the length, canonical text of the value, relaxed text if it differs.
const VALID: &[(&str, &str, &str)] = &[
    ("01 6100 000000000000F03F", r#"{"$numberDouble":"1.0"}"#, "1.0"),
    ("01 6100 0000000000000080", r#"{"$numberDouble":"-0.0"}"#, "-0.0"),
    ("01 6100 000000000000F07F", r#"{"$numberDouble":"Infinity"}"#, ""),
    ("01 6100 000000000000F0FF", r#"{"$numberDouble":"-Infinity"}"#, ""),
    ("01 6100 000000000000F87F", r#"{"$numberDouble":"NaN"}"#, ""),
    ("02 6100 02000000 6200", r#""b""#, ""),
    ("02 6100 05000000 610062 0A 00", r#""a\u0000b\n""#, ""),
    ("03 6100 08000000 0A 6200 00", r#"{"b":null}"#, ""),
    ("03 6100 05000000 00", "{}", ""),
    ("04 6100 0C000000 10 3000 01000000 00", r#"[{"$numberInt":"1"}]"#, "[1]"),
    ("05 6100 00000000 00", r#"{"$binary":{"base64":"","subType":"00"}}"#, ""),
    ("05 6100 02000000 80 FFFF", r#"{"$binary":{"base64":"//8=","subType":"80"}}"#, ""),
    ("05 6100 06000000 02 02000000 FFFF", r#"{"$binary":{"base64":"//8=","subType":"02"}}"#, ""),
    ("06 6100", r#"{"$undefined":true}"#, ""),
    ("07 6100 56E1FC72E0C917E9C4714161", r#"{"$oid":"56e1fc72e0c917e9c4714161"}"#, ""),
    ("08 6100 01", "true", ""),
    (
        "09 6100 C5D8D6CC3B010000",
        r#"{"$date":{"$numberLong":"1356351330501"}}"#,
        r#"{"$date":"2012-12-24T12:15:30.501Z"}"#,
    ),
    ("09 6100 0000000000000000", r#"{"$date":{"$numberLong":"0"}}"#, r#"{"$date":"1970-01-01T00:00:00Z"}"#),
    ("09 6100 FFFFFFFFFFFFFFFF", r#"{"$date":{"$numberLong":"-1"}}"#, ""),
    ("09 6100 00DC1FD277E60000", r#"{"$date":{"$numberLong":"253402300800000"}}"#, ""),
    ("0A 6100", "null", ""),
    ("0B 6100 6162 00 696D00", r#"{"$regularExpression":{"pattern":"ab","options":"im"}}"#, ""),
    (
        "0C 6100 02000000 6200 56E1FC72E0C917E9C4714161",
        r#"{"$dbPointer":{"$ref":"b","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}}"#,
        "",
    ),
    ("0D 6100 02000000 6200", r#"{"$code":"b"}"#, ""),
    ("0E 6100 02000000 6200", r#"{"$symbol":"b"}"#, ""),
    (
        "0F 6100 16000000 02000000 6200 0C000000 10 7800 01000000 00",
        r#"{"$code":"b","$scope":{"x":{"$numberInt":"1"}}}"#,
        r#"{"$code":"b","$scope":{"x":1}}"#,
    ),
    ("10 6100 FFFFFFFF", r#"{"$numberInt":"-1"}"#, "-1"),
    ("11 6100 2A000000 15CD5B07", r#"{"$timestamp":{"t":123456789,"i":42}}"#, ""),
    ("12 6100 0000000000000080", r#"{"$numberLong":"-9223372036854775808"}"#, "-9223372036854775808"),
    ("13 6100 01000000000000000000000000004030", r#"{"$numberDecimal":"1"}"#, ""),
    ("7F 6100", r#"{"$maxKey":1}"#, ""),
    ("FF 6100", r#"{"$minKey":1}"#, ""),
];

#[test]
fn every_type_goes_out_and_comes_back() {
    for (element, canonical, relaxed) in VALID {
        let mut whole = bytes(element);
        whole.push(0);
        let mut stored = (whole.len() as i32 + 4).to_le_bytes().to_vec();
        stored.extend(whole);
        let document = RawDocument::parse(&stored).expect("the table holds valid bytes");
        let text = |value: &str| format!("{{\"a\":{value}}}");
        let expected = text(canonical);
        assert_eq!(to_extended_json(document, JsonFormat::Canonical), expected);
        assert_eq!(parse_extended_json(&expected).unwrap().as_bytes(), stored, "{expected}");
        let relaxed = text(if relaxed.is_empty() { canonical } else { relaxed });
        assert_eq!(to_extended_json(document, JsonFormat::Relaxed), relaxed);
        let back = parse_extended_json(&relaxed).unwrap();
        assert!(compare_documents(back.as_raw(), document).is_eq(), "{relaxed}");
    }
}

#[test]
fn other_spellings_are_read() {
    let date = |millis| doc! {"a": (Value::DateTime(millis))};
    let cases = [
        (r#" { "a" : [ 1 , 2.5 ] } "#, doc! {"a": [1, 2.5]}),
        (r#"{"a":2147483648}"#, doc! {"a": 2147483648i64}),
        (r#"{"a":9223372036854775808}"#, doc! {"a": 9223372036854775808.0}),
        (r#"{"a":1e3}"#, doc! {"a": 1000.0}),
        (r#"{"a":"\u00e9\ud83d\ude00\/"}"#, doc! {"a": "é😀/"}),
        (r#"{"a":{"$date":"1970-01-01T01:00:00+01:00"}}"#, date(0)),
        (r#"{"a":{"$date":"1969-12-31T23:59:59.99Z"}}"#, date(-10)),
        (r#"{"a":{"$date":"2020-02-29T00:00:00.1234-0130"}}"#, date(1582939800123)),
        (r#"{"a":{"$in":[1]}}"#, doc! {"a": {"$in": [1]}}),
        (r#"{"a":{"$ref":"b","$id":1}}"#, doc! {"a": {"$ref": "b", "$id": 1}}),
        (r#"{"a":{"$regex":"b","$options":"i"}}"#, doc! {"a": {"$regex": "b", "$options": "i"}}),
        (
            r#"{"a":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}}"#,
            doc! {"a": (Value::Binary { subtype: 4, bytes: (0..16).map(|n| n * 0x11).collect() })},
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_extended_json(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_is_no_extended_json_is_refused() {
    let cases = [
        "",
        "[]",
        "1",
        "{",
        "{}x",
        "{a:1}",
        "{'a':1}",
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":01}"#,
        r#"{"a":1.}"#,
        r#"{"a":+1}"#,
        r#"{"a":nul}"#,
        r#"{"a":"b}"#,
        "{\"a\":\"\n\"}",
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12"}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":"\ud800\u0041"}"#,
        r#"{"a\u0000":1}"#,
        r#"{"a":{"$oid":"12"}}"#,
        r#"{"a":{"$oid":"56e1fc72e0c917e9c47141zz"}}"#,
        r#"{"a":{"$oid":"+6e1fc72e0c917e9c4714161"}}"#,
        r#"{"a":{"$oid":"56e1fc72e0c917e9c4714161","b":1}}"#,
        r#"{"a":{"$numberInt":1}}"#,
        r#"{"a":{"$numberInt":"2147483648"}}"#,
        r#"{"a":{"$numberLong":"9223372036854775808"}}"#,
        r#"{"a":{"$numberDouble":"inf"}}"#,
        r#"{"a":{"$numberDecimal":"x"}}"#,
        r#"{"a":{"$numberDecimal":"1234567890123456789012345678901234.5"}}"#,
        r#"{"a":{"$binary":{"base64":"/","subType":"00"}}}"#,
        r#"{"a":{"$binary":{"base64":"","subType":"x"}}}"#,
        r#"{"a":{"$binary":{"base64":""}}}"#,
        r#"{"a":{"$date":"2020-02-30T00:00:00Z"}}"#,
        r#"{"a":{"$date":"2020-13-01T00:00:00Z"}}"#,
        r#"{"a":{"$date":1}}"#,
        r#"{"a":{"$minKey":2}}"#,
        r#"{"a":{"$code":"b","$scope":1}}"#,
        r#"{"a":{"$code":"b","c":1}}"#,
        r#"{"a":{"$timestamp":{"t":-1,"i":0}}}"#,
        r#"{"a":{"$timestamp":{"t":1}}}"#,
        r#"{"a":{"$regularExpression":{"pattern":"a\u0000","options":""}}}"#,
        r#"{"a":{"$uuid":"0011"}}"#,
    ];
    for text in cases {
        assert!(parse_extended_json(text).is_err(), "{text}");
    }
    let deep = "[".repeat(100_000);
    assert!(parse_extended_json(&format!("{{\"a\":{deep}")).is_err());
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse_extended_json(&nested(200)).is_ok());
    assert!(parse_extended_json(&nested(201)).is_err());
}

/// NaN has many bits but one name, and so have coefficients out of range.
fn is_written_exactly(value: &Value) -> bool {
    let clean = |text: String| text.contains("NaN") || text.contains("$numberDecimal");
    !clean(value_to_extended_json(value.as_raw(), JsonFormat::Canonical))
}

proptest! {
    #[test]
    fn canonical_text_keeps_every_byte(document in document(value())) {
        let text = to_extended_json(document.as_raw(), JsonFormat::Canonical);
        // A random field may be named as a wrapper only by chance, and never is: names are short.
        let back = parse_extended_json(&text).unwrap();
        if is_written_exactly(&Value::Document(document.clone())) {
            prop_assert_eq!(back.as_bytes(), document.as_bytes());
        }
        prop_assert_eq!(to_extended_json(back.as_raw(), JsonFormat::Canonical), text);
    }

    #[test]
    fn relaxed_text_keeps_every_value(document in document(value())) {
        let text = to_extended_json(document.as_raw(), JsonFormat::Relaxed);
        let back = parse_extended_json(&text).unwrap();
        prop_assert!(compare_documents(back.as_raw(), document.as_raw()).is_eq(), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[\\[\\]{}\":,a0-9.$\\\\u -]{0,40}") {
        let _ = parse_extended_json(&text);
    }
}
