//! BSON out as extended JSON. Nesting is bounded by validation, so this recurses.

use std::fmt::Write as _;

use super::{base64, date, in_order};
use crate::{RawDocument, RawValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFormat {
    /// Every type is kept.
    Canonical,
    /// Numbers and dates are written plainly where JSON can hold them.
    Relaxed,
}

pub fn to_extended_json(document: RawDocument<'_>, format: JsonFormat) -> String {
    let mut writer = JsonWriter { out: String::with_capacity(document.as_bytes().len() * 2), format };
    writer.document(document);
    writer.out
}

pub fn value_to_extended_json(value: RawValue<'_>, format: JsonFormat) -> String {
    let mut writer = JsonWriter { out: String::new(), format };
    writer.value(value);
    writer.out
}

struct JsonWriter {
    out: String,
    format: JsonFormat,
}

impl JsonWriter {
    fn document(&mut self, document: RawDocument<'_>) {
        self.out.push('{');
        for (index, (name, value)) in document.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.string(name);
            self.out.push(':');
            self.value(value);
        }
        self.out.push('}');
    }

    fn value(&mut self, value: RawValue<'_>) {
        let relaxed = self.format == JsonFormat::Relaxed;
        match value {
            RawValue::Double(value) if relaxed && value.is_finite() => self.put(format_args!("{value:?}")),
            RawValue::Double(value) => self.number("$numberDouble", format_args!("{}", Double(value))),
            RawValue::Int32(value) if relaxed => self.put(format_args!("{value}")),
            RawValue::Int32(value) => self.number("$numberInt", format_args!("{value}")),
            RawValue::Int64(value) if relaxed => self.put(format_args!("{value}")),
            RawValue::Int64(value) => self.number("$numberLong", format_args!("{value}")),
            RawValue::Decimal128(value) => self.number("$numberDecimal", format_args!("{value}")),
            RawValue::String(text) => self.string(text),
            RawValue::Document(document) => self.document(document),
            RawValue::Array(array) => {
                self.out.push('[');
                for (index, value) in array.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.value(value);
                }
                self.out.push(']');
            }
            RawValue::Binary { subtype, bytes } => {
                self.out.push_str("{\"$binary\":{\"base64\":\"");
                base64::encode(&mut self.out, bytes);
                self.put(format_args!("\",\"subType\":\"{subtype:02x}\"}}}}"));
            }
            RawValue::Undefined => self.out.push_str("{\"$undefined\":true}"),
            RawValue::ObjectId(id) => self.put(format_args!("{{\"$oid\":\"{id}\"}}")),
            RawValue::Bool(value) => self.put(format_args!("{value}")),
            RawValue::DateTime(millis) => match date::format(millis).filter(|_| relaxed) {
                Some(text) => self.put(format_args!("{{\"$date\":\"{text}\"}}")),
                None => self.put(format_args!("{{\"$date\":{{\"$numberLong\":\"{millis}\"}}}}")),
            },
            RawValue::Null => self.out.push_str("null"),
            RawValue::Regex { pattern, options } => {
                self.out.push_str("{\"$regularExpression\":{\"pattern\":");
                self.string(pattern);
                self.out.push_str(",\"options\":");
                self.string(&in_order(options));
                self.out.push_str("}}");
            }
            RawValue::DbPointer { namespace, id } => {
                self.out.push_str("{\"$dbPointer\":{\"$ref\":");
                self.string(namespace);
                self.put(format_args!(",\"$id\":{{\"$oid\":\"{id}\"}}}}}}"));
            }
            RawValue::JavaScript(code) => self.wrapped("$code", code),
            RawValue::Symbol(text) => self.wrapped("$symbol", text),
            RawValue::JavaScriptWithScope { code, scope } => {
                self.out.push_str("{\"$code\":");
                self.string(code);
                self.out.push_str(",\"$scope\":");
                self.document(scope);
                self.out.push('}');
            }
            RawValue::Timestamp(timestamp) => self.put(format_args!(
                "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}",
                timestamp.seconds, timestamp.increment
            )),
            RawValue::MaxKey => self.out.push_str("{\"$maxKey\":1}"),
            RawValue::MinKey => self.out.push_str("{\"$minKey\":1}"),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("writing to a string does not fail");
    }

    fn number(&mut self, kind: &str, text: std::fmt::Arguments<'_>) {
        self.put(format_args!("{{\"{kind}\":\"{text}\"}}"));
    }

    fn wrapped(&mut self, kind: &str, text: &str) {
        self.put(format_args!("{{\"{kind}\":"));
        self.string(text);
        self.out.push('}');
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut rest = text;
        while let Some(at) = rest.find(|letter: char| letter == '"' || letter == '\\' || letter < ' ') {
            self.out.push_str(&rest[..at]);
            match rest.as_bytes()[at] {
                b'"' => self.out.push_str("\\\""),
                b'\\' => self.out.push_str("\\\\"),
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                0x08 => self.out.push_str("\\b"),
                0x0C => self.out.push_str("\\f"),
                other => self.put(format_args!("\\u{other:04x}")),
            }
            rest = &rest[at + 1..];
        }
        self.out.push_str(rest);
        self.out.push('"');
    }
}

/// A double in the words of extended JSON.
struct Double(f64);

impl std::fmt::Display for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("Infinity"),
            f64::NEG_INFINITY => f.write_str("-Infinity"),
            value => write!(f, "{value:?}"),
        }
    }
}
