//! Values as mongod prints them in an evaluation's messages: `{a: 1, b: [1, "x"]}`.
//!
//! Not the form of [`crate::text`]: nothing is cut, doubles have six digits, dates are written out.

use std::fmt::Write;

use kilim_bson::{RawDocument, RawValue};

use super::date::format_iso;
use crate::filter::number::short;
use crate::text;

pub(crate) fn show(value: RawValue<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value).expect("writing to a string does not fail");
    out
}

fn write_value(out: &mut String, value: RawValue<'_>) -> std::fmt::Result {
    match value {
        RawValue::Double(number) => out.write_str(&short(number)),
        RawValue::String(text) | RawValue::Symbol(text) => write!(out, "\"{text}\""),
        RawValue::Document(document) => write_container(out, document, ('{', '}'), true),
        RawValue::Array(array) => write_container(out, array.as_document(), ('[', ']'), false),
        RawValue::Binary { subtype, bytes } => {
            write!(out, "BinData({subtype}, \"")?;
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02X}"))?;
            out.write_str("\")")
        }
        RawValue::ObjectId(id) => write!(out, "{id}"),
        RawValue::DateTime(millis) => match format_iso(millis) {
            Ok(date) => out.write_str(&date),
            Err(_) => out.write_str("illegal date"),
        },
        RawValue::JavaScript(code) => write!(out, "Code(\"{code}\")"),
        RawValue::JavaScriptWithScope { code, scope } => {
            write!(out, "CodeWScope(\"{code}\", {})", text::document(scope))
        }
        _ => {
            text::write_value(out, value);
            Ok(())
        }
    }
}

fn write_container(
    out: &mut String,
    content: RawDocument<'_>,
    (open, close): (char, char),
    names: bool,
) -> std::fmt::Result {
    out.write_char(open)?;
    for (index, (name, value)) in content.iter().enumerate() {
        if index > 0 {
            out.write_str(", ")?;
        }
        if names {
            write!(out, "{name}: ")?;
        }
        write_value(out, value)?;
    }
    out.write_char(close)
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Value, array, doc};

    use super::show;

    #[test]
    fn values_print_as_an_evaluation_prints_them() {
        let cases: Vec<(Value, &str)> = vec![
            (Value::Double(7.0), "7"),
            (Value::Double(7e10), "7e+10"),
            (Value::Double(1.0 / 3.0), "0.333333"),
            (Value::Double(f64::NAN), "nan"),
            ("a\"b\n".into(), "\"a\"b\n\""),
            (doc! {"a": 1, "b": [1, "x", {"c": null}]}.into(), "{a: 1, b: [1, \"x\", {c: null}]}"),
            (array![].into(), "[]"),
            (Value::Binary { subtype: 0, bytes: b"abc".to_vec() }, "BinData(0, \"616263\")"),
            (Value::DateTime(1_513_696_117_123), "2017-12-19T15:08:37.123Z"),
            (Value::DateTime(i64::MAX), "illegal date"),
            (
                Value::JavaScriptWithScope { code: "f()".into(), scope: doc! {"a": 1} },
                "CodeWScope(\"f()\", { a: 1 })",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(show(value.as_raw()), expected);
        }
    }
}
