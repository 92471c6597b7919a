//! Values as mongod prints them in error messages: `a: { b: [ 1, "x" ] }`.
//!
//! Clients and tests compare messages, so the form is contract: long strings and binaries are cut, a whole
//! double carries `.0`.

use std::fmt::Write;

use kilim_bson::{RawDocument, RawValue};

use crate::filter::number::display_uuid;

/// Strings longer than this are cut; what remains of them is [`STRING_KEPT`] bytes.
const STRING_MAX: usize = 160;
const STRING_KEPT: usize = 150;
/// The same for code and binaries.
const BLOB_MAX: usize = 80;
const BLOB_KEPT: usize = 70;

/// `name: value`.
pub(crate) fn element(name: &str, value: RawValue<'_>) -> String {
    let mut text = format!("{name}: ");
    write_value(&mut text, value);
    text
}

/// `{ a: 1, b: 2 }`.
pub fn document(document: RawDocument<'_>) -> String {
    value(RawValue::Document(document))
}

/// A value alone: `[ 1, "x" ]`.
pub fn value(value: RawValue<'_>) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

pub(crate) fn write_value(text: &mut String, value: RawValue<'_>) {
    match value {
        RawValue::Double(number) => write_double(text, number),
        RawValue::String(string) | RawValue::Symbol(string) => {
            if string.len() + 1 > STRING_MAX {
                push_all(text, &["\"", cut(string, STRING_KEPT), "...\""]);
            } else {
                push_all(text, &["\"", string, "\""]);
            }
        }
        RawValue::Document(document) => write_container(text, document, ("{", "}"), true),
        RawValue::Array(array) => write_container(text, array.as_document(), ("[", "]"), false),
        RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16 => text.push_str(&display_uuid(bytes)),
        RawValue::Binary { subtype, bytes } => {
            push(text, format_args!("BinData({subtype}, "));
            let kept = if bytes.len() > BLOB_MAX { &bytes[..BLOB_KEPT] } else { bytes };
            kept.iter().for_each(|byte| push(text, format_args!("{byte:02X}")));
            text.push_str(if bytes.len() > BLOB_MAX { "...)" } else { ")" });
        }
        RawValue::Undefined => text.push_str("undefined"),
        RawValue::ObjectId(id) => push(text, format_args!("ObjectId('{id}')")),
        RawValue::Bool(value) => push(text, format_args!("{value}")),
        RawValue::DateTime(millis) => push(text, format_args!("new Date({millis})")),
        RawValue::Null => text.push_str("null"),
        RawValue::Regex { pattern, options } => push(text, format_args!("/{pattern}/{options}")),
        RawValue::DbPointer { namespace, id } => push(text, format_args!("DBRef('{namespace}',{id})")),
        RawValue::JavaScript(code) => {
            if code.len() + 1 > BLOB_MAX {
                push_all(text, &[cut(code, BLOB_KEPT), "..."]);
            } else {
                text.push_str(code);
            }
        }
        RawValue::JavaScriptWithScope { code, scope } => {
            push(text, format_args!("CodeWScope( {code}, "));
            write_value(text, RawValue::Document(scope));
            text.push(')');
        }
        RawValue::Int32(number) => push(text, format_args!("{number}")),
        RawValue::Timestamp(time) => {
            push(text, format_args!("Timestamp({}, {})", time.seconds, time.increment))
        }
        RawValue::Int64(number) => push(text, format_args!("{number}")),
        RawValue::Decimal128(number) => push(text, format_args!("{number}")),
        RawValue::MaxKey => text.push_str("MaxKey"),
        RawValue::MinKey => text.push_str("MinKey"),
    }
}

fn write_container(text: &mut String, content: RawDocument<'_>, (open, close): (&str, &str), names: bool) {
    text.push_str(open);
    for (index, (name, value)) in content.iter().enumerate() {
        text.push_str(if index == 0 { " " } else { ", " });
        if names {
            push_all(text, &[name, ": "]);
        }
        write_value(text, value);
    }
    text.push_str(if content.is_empty() { "" } else { " " });
    text.push_str(close);
}

/// As C's `%.16g`, then `.0` where that has no point: mongod prints even `inf.0`.
fn write_double(text: &mut String, number: f64) {
    let start = text.len();
    if number.is_nan() {
        text.push_str(if number.is_sign_negative() { "-nan" } else { "nan" });
    } else if number.is_infinite() {
        text.push_str(if number < 0.0 { "-inf" } else { "inf" });
    } else {
        let scientific = format!("{number:.15e}");
        let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
        let exponent: i32 = exponent.parse().expect("an exponent is a number");
        if (-4..16).contains(&exponent) {
            let decimals = usize::try_from(15 - exponent).expect("exponent is below 16");
            text.push_str(without_trailing_zeros(&format!("{number:.decimals$}")));
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            let mantissa = without_trailing_zeros(mantissa);
            push(text, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
        }
    }
    if !text[start..].contains('.') {
        text.push_str(".0");
    }
}

fn without_trailing_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a string does not fail");
}

fn push_all(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
}

#[cfg(test)]
mod tests {
    use kilim_bson::{RawValue, Value, array, doc};

    use super::element;

    #[test]
    fn values_print_as_mongod_prints_them() {
        let cases: Vec<(Value, &str)> = vec![
            (Value::Double(1.5), "1.5"),
            (Value::Double(1.0), "1.0"),
            (Value::Double(-0.0), "-0.0"),
            (Value::Double(1e30), "1e+30.0"),
            (Value::Double(1e-7), "1e-07.0"),
            (Value::Double(1e16), "1e+16.0"),
            (Value::Double(100000.0), "100000.0"),
            (Value::Double(1234567.891), "1234567.891"),
            (Value::Double(0.1), "0.1"),
            (Value::Double(f64::INFINITY), "inf.0"),
            (Value::Double(f64::NEG_INFINITY), "-inf.0"),
            (Value::Double(f64::NAN), "nan.0"),
            ("a\"b\n".into(), "\"a\"b\n\""),
            (
                Value::Binary { subtype: 4, bytes: (0..16).collect() },
                "UUID(\"00010203-0405-0607-0809-0a0b0c0d0e0f\")",
            ),
            (Value::Binary { subtype: 5, bytes: b"abcd".to_vec() }, "BinData(5, 61626364)"),
            (Value::DateTime(-315_532_800_000), "new Date(-315532800000)"),
            (Value::Regex { pattern: "a/b".into(), options: "i".into() }, "/a/b/i"),
            (
                Value::JavaScriptWithScope { code: "f()".into(), scope: doc! {"a": 1} },
                "CodeWScope( f(), { a: 1 })",
            ),
            (doc! {"a": [1, {"b": 2}], "c": {}}.into(), "{ a: [ 1, { b: 2 } ], c: {} }"),
            (array![[]].into(), "[ [] ]"),
            (Value::MinKey, "MinKey"),
        ];
        for (value, expected) in cases {
            assert_eq!(element("q", value.as_raw()), format!("q: {expected}"));
        }
        let long = "x".repeat(200);
        assert_eq!(element("q", RawValue::String(&long)), format!("q: \"{}...\"", &long[..150]));
    }
}
