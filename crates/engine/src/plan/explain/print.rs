//! Bounds and values as MongoDB prints them in explain: `[5, inf.0]`, `["", {})`.

use std::fmt::Write;

use kilim_bson::{RawDocument, RawValue, Value};

use crate::plan::{Cut, Interval, IntervalList};

/// Texts that need more than 160 bytes with their end are cut after 150, code after 70.
const TEXT_SHOWN: usize = 150;
const CODE_SHOWN: usize = 70;
const BYTES_SHOWN: usize = 80;

/// Each interval of a list, from the end at which the scan begins. In an index with a collation, `collated`, texts
/// are shown as keys.
pub fn print_intervals(list: &IntervalList, reversed: bool, collated: bool) -> Vec<String> {
    let intervals = list.intervals().iter();
    if reversed {
        intervals.rev().map(|interval| print_interval(interval, true, collated)).collect()
    } else {
        intervals.map(|interval| print_interval(interval, false, collated)).collect()
    }
}

fn print_interval(interval: &Interval, reversed: bool, collated: bool) -> String {
    let low_inclusive = !interval.low.after;
    let high_inclusive = interval.high.after;
    let ends = |first: &Cut, first_inclusive: bool, second: &Cut, second_inclusive: bool| {
        let mut text = String::new();
        text.push(if first_inclusive { '[' } else { '(' });
        push_endpoint(&mut text, first, collated);
        text.push_str(", ");
        push_endpoint(&mut text, second, collated);
        text.push(if second_inclusive { ']' } else { ')' });
        text
    };
    if reversed {
        ends(&interval.high, high_inclusive, &interval.low, low_inclusive)
    } else {
        ends(&interval.low, low_inclusive, &interval.high, high_inclusive)
    }
}

fn push_endpoint(text: &mut String, cut: &Cut, collated: bool) {
    match cut.endpoint.stored() {
        // What is no collation's key is shown as one too: its bytes.
        Value::String(key) | Value::Symbol(key) if collated => {
            let bytes: Vec<u8> = match cut.endpoint.is_collated() {
                true => key.chars().map(|char| char as u8).collect(),
                false => key.into_bytes(),
            };
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = write!(text, "CollationKey(0x{hex})");
        }
        value => push_value(text, value.as_raw()),
    }
}

/// Nesting is bounded by what BSON validation lets through.
fn push_value(text: &mut String, value: RawValue<'_>) {
    let _ = match value {
        RawValue::Double(number) => {
            push_double(text, number);
            Ok(())
        }
        RawValue::String(content) | RawValue::Symbol(content) => {
            if content.len() >= 160 {
                write!(text, "\"{}...\"", beginning(content, TEXT_SHOWN))
            } else {
                write!(text, "\"{content}\"")
            }
        }
        RawValue::Document(document) => {
            push_fields(text, document, true);
            Ok(())
        }
        RawValue::Array(array) => {
            push_fields(text, array.as_document(), false);
            Ok(())
        }
        RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            let hex = |range: std::ops::Range<usize>| {
                bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            };
            let groups = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
            write!(text, "UUID(\"{}\")", groups.join("-"))
        }
        RawValue::Binary { subtype, bytes } => {
            let shown = &bytes[..bytes.len().min(BYTES_SHOWN)];
            let hex: String = shown.iter().map(|byte| format!("{byte:02X}")).collect();
            let more = if shown.len() < bytes.len() { "..." } else { "" };
            write!(text, "BinData({subtype}, {hex}{more})")
        }
        RawValue::Undefined => write!(text, "undefined"),
        RawValue::ObjectId(id) => write!(text, "ObjectId('{id}')"),
        RawValue::Bool(value) => write!(text, "{value}"),
        RawValue::DateTime(millis) => write!(text, "new Date({millis})"),
        RawValue::Null => write!(text, "null"),
        RawValue::Regex { pattern, options } => write!(text, "/{pattern}/{options}"),
        RawValue::DbPointer { namespace, id } => write!(text, "DBRef('{namespace}',{id})"),
        RawValue::JavaScript(code) if code.len() > 80 => {
            write!(text, "{}...", beginning(code, CODE_SHOWN))
        }
        RawValue::JavaScript(code) => write!(text, "{code}"),
        RawValue::JavaScriptWithScope { code, scope } => {
            let _ = write!(text, "CodeWScope( {code}, ");
            push_fields(text, scope, true);
            write!(text, ")")
        }
        RawValue::Int32(number) => write!(text, "{number}"),
        RawValue::Timestamp(time) => write!(text, "Timestamp({}, {})", time.seconds, time.increment),
        RawValue::Int64(number) => write!(text, "{number}"),
        RawValue::Decimal128(number) if number.is_nan() => write!(text, "nan.0"),
        RawValue::Decimal128(number) => write!(text, "{number}"),
        RawValue::MaxKey => write!(text, "MaxKey"),
        RawValue::MinKey => write!(text, "MinKey"),
    };
}

fn push_fields(text: &mut String, document: RawDocument<'_>, named: bool) {
    let (open, close) = if named { ('{', '}') } else { ('[', ']') };
    text.push(open);
    for (at, (name, value)) in document.iter().enumerate() {
        text.push_str(if at == 0 { " " } else { ", " });
        if named {
            let _ = write!(text, "{name}: ");
        }
        push_value(text, value);
    }
    if !document.is_empty() {
        text.push(' ');
    }
    text.push(close);
}

fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Sixteen significant digits as C's `%.16g` prints them, and `.0` where no point shows.
fn push_double(text: &mut String, number: f64) {
    let start = text.len();
    if number.is_nan() {
        text.push_str("nan");
    } else if number.is_infinite() {
        text.push_str(if number < 0.0 { "-inf" } else { "inf" });
    } else {
        let scientific = format!("{number:.15e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..16).contains(&exponent) {
            let decimals = (15 - exponent).max(0) as usize;
            text.push_str(&without_trailing_zeros(&format!("{number:.decimals$}")));
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(text, "{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs());
        }
    }
    if !text[start..].contains('.') {
        text.push_str(".0");
    }
}

fn without_trailing_zeros(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_bson::{ObjectId, Value, array, doc};

    #[test]
    fn values_print_as_mongod_prints_them() {
        for (value, expected) in [
            (Value::from(5), "5".to_owned()),
            (5.0.into(), "5.0".into()),
            (0.1.into(), "0.1".into()),
            ((1.0 / 3.0).into(), "0.3333333333333333".into()),
            (123456789012345678.0.into(), "1.234567890123457e+17".into()),
            (1e16.into(), "1e+16.0".into()),
            (1e15.into(), "1000000000000000.0".into()),
            (1.5e-7.into(), "1.5e-07".into()),
            ((-0.0).into(), "-0.0".into()),
            (1e100.into(), "1e+100.0".into()),
            (12345.678.into(), "12345.678".into()),
            (f64::NEG_INFINITY.into(), "-inf.0".into()),
            (f64::NAN.into(), "nan.0".into()),
            ("x".repeat(159).into(), format!("\"{}\"", "x".repeat(159))),
            ("x".repeat(160).into(), format!("\"{}...\"", "x".repeat(150))),
            (Value::JavaScript("q".repeat(300)), format!("{}...", "q".repeat(70))),
            (
                doc! {"a": 1.0, "b c": null, "k": [], "l": {}, "m": [1, "z"]}.into(),
                "{ a: 1.0, b c: null, k: [], l: {}, m: [ 1, \"z\" ] }".into(),
            ),
            (array![[1]].into(), "[ [ 1 ] ]".into()),
            (Value::ObjectId(ObjectId::from_bytes([1; 12])), "ObjectId('010101010101010101010101')".into()),
            (Value::Binary { subtype: 0, bytes: b"abc".to_vec() }, "BinData(0, 616263)".into()),
            (
                Value::Binary { subtype: 4, bytes: vec![0x78; 16] },
                "UUID(\"78787878-7878-7878-7878-787878787878\")".into(),
            ),
            (Value::DateTime(1577934245678), "new Date(1577934245678)".into()),
            (
                Value::JavaScriptWithScope { code: "x".into(), scope: doc! {"y": 1} },
                "CodeWScope( x, { y: 1 })".into(),
            ),
        ] {
            let mut text = String::new();
            push_value(&mut text, value.as_raw());
            assert_eq!(text, expected);
        }
    }
}
