//! Values to text, one line each.

use std::fmt::Write;

use kilim_bson::{RawDocument, RawValue};

use super::{REST, decimal, placeholder, time};

pub fn print(value: RawValue<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

pub fn print_document(document: RawDocument<'_>) -> String {
    print(RawValue::Document(document))
}

fn write_value(out: &mut String, value: RawValue<'_>) {
    if let Some(known) = placeholder(value) {
        out.push_str(known);
        return;
    }
    // Writing into a String cannot fail.
    let _ = match value {
        RawValue::Double(value) if value.is_infinite() => {
            write!(out, "{}Infinity", if value < 0.0 { "-" } else { "" })
        }
        RawValue::Double(value) => write!(out, "{value:?}"),
        RawValue::String(text) => {
            write_text(out, text);
            Ok(())
        }
        RawValue::Document(document) => {
            write_fields(out, document);
            Ok(())
        }
        RawValue::Array(array) => {
            out.push('[');
            for (index, element) in array.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_value(out, element);
            }
            out.push(']');
            Ok(())
        }
        RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            write!(out, "UUID(\"{}\")", groups.join("-"))
        }
        RawValue::Binary { subtype, bytes } => write!(out, "BinData({subtype}, \"{}\")", base64(bytes)),
        RawValue::Undefined => write!(out, "undefined"),
        RawValue::ObjectId(id) => write!(out, "ObjectId(\"{id}\")"),
        RawValue::Bool(value) => write!(out, "{value}"),
        RawValue::DateTime(millis) => match time::print(millis) {
            Some(text) => write!(out, "ISODate(\"{text}\")"),
            None => write!(out, "Date({millis})"),
        },
        RawValue::Null => write!(out, "null"),
        RawValue::Regex { pattern, options } => {
            if is_literal_regex(pattern, options) {
                write!(out, "/{pattern}/{options}")
            } else {
                write_call(out, "RegExp", &[pattern, options]);
                Ok(())
            }
        }
        RawValue::DbPointer { namespace, id } => {
            out.push_str("DBPointer(");
            write_text(out, namespace);
            write!(out, ", ObjectId(\"{id}\"))")
        }
        RawValue::JavaScript(code) => {
            write_call(out, "Code", &[code]);
            Ok(())
        }
        RawValue::Symbol(text) => {
            write_call(out, "Symbol", &[text]);
            Ok(())
        }
        RawValue::JavaScriptWithScope { code, scope } => {
            out.push_str("Code(");
            write_text(out, code);
            out.push_str(", ");
            write_fields(out, scope);
            out.push(')');
            Ok(())
        }
        RawValue::Int32(value) => write!(out, "{value}"),
        RawValue::Timestamp(stamp) => write!(out, "Timestamp({}, {})", stamp.seconds, stamp.increment),
        RawValue::Int64(value) => write!(out, "Long({value})"),
        RawValue::Decimal128(value) => write!(out, "NumberDecimal(\"{}\")", decimal::print(value)),
        RawValue::MaxKey => write!(out, "MaxKey"),
        RawValue::MinKey => write!(out, "MinKey"),
    };
}

fn write_fields(out: &mut String, document: RawDocument<'_>) {
    out.push('{');
    for (index, (name, value)) in document.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        if name == REST && placeholder(value).is_some() {
            out.push_str(REST);
            continue;
        }
        if is_plain_name(name) {
            out.push_str(name);
        } else {
            write_text(out, name);
        }
        out.push_str(": ");
        write_value(out, value);
    }
    out.push('}');
}

fn write_call(out: &mut String, function: &str, arguments: &[&str]) {
    out.push_str(function);
    out.push('(');
    for (index, argument) in arguments.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        write_text(out, argument);
    }
    out.push(')');
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Line separators end a line for some readers, and specs are lines.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
}

/// Whether `/pattern/options` reads back: no bare slash, nothing that would start a comment.
fn is_literal_regex(pattern: &str, options: &str) -> bool {
    let mut escaped = false;
    for character in pattern.chars() {
        if character.is_control() || (character == '/' && !escaped) {
            return false;
        }
        escaped = character == '\\' && !escaped;
    }
    !pattern.is_empty()
        && !escaped
        && !pattern.starts_with('*')
        && options.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            if digit <= chunk.len() {
                out.push(DIGITS[(group >> (18 - 6 * digit)) as usize & 63] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}
