//! The meaning of extended JSON: which objects are values in disguise.
//!
//! An object with one of the type names among its fields must be exactly that type's wrapper; `$ref`
//! and query operators such as `$in` are ordinary fields.

use kilim_error::{Error, ErrorCode, Result};

use super::syntax::{self, Json};
use super::{base64, date, in_order};
use crate::{Array, Decimal128, Document, ObjectId, RawDocument, Timestamp, Value, Writer};

/// Reads a document from canonical or relaxed extended JSON.
pub fn parse_extended_json(text: &str) -> Result<Document> {
    match value(syntax::parse(text)?)? {
        Value::Document(document) => {
            // The text's brackets are bounded a little more widely than a document's levels.
            RawDocument::parse(document.as_bytes())?;
            Ok(document)
        }
        _ => Err(invalid("expected a document")),
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::user(ErrorCode::FailedToParse, format!("invalid extended JSON: {}", what.into()))
}

fn value(json: Json<'_>) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(text) => number(text)?,
        Json::String(text) => Value::String(text),
        Json::Array(values) => Value::Array(values.into_iter().map(value).collect::<Result<Array>>()?),
        Json::Object(fields) => object(fields)?,
    })
}

/// The smallest type that holds a number as written: int, long, else double.
fn number(text: &str) -> Result<Value> {
    if !text.contains(['.', 'e', 'E'])
        && let Ok(whole) = text.parse::<i64>()
    {
        return Ok(i32::try_from(whole).map_or(Value::Int64(whole), Value::Int32));
    }
    text.parse().map(Value::Double).map_err(|_| invalid(format!("'{text}' is no number")))
}

fn document(fields: Vec<(String, Json<'_>)>) -> Result<Document> {
    let mut writer = Writer::new();
    for (name, json) in fields {
        if name.contains('\0') {
            return Err(invalid("a field name holds a zero byte"));
        }
        writer.append(&name, value(json)?.as_raw());
    }
    Ok(writer.finish())
}

/// Reads what a wrapper of one field holds.
type Unwrap = fn(Json<'_>) -> Option<Value>;

const WRAPPERS: [(&str, Unwrap); 15] = [
    ("$oid", |json| Some(Value::ObjectId(object_id(json)?))),
    ("$symbol", |json| Some(Value::Symbol(string(json)?))),
    ("$numberInt", |json| Some(Value::Int32(string(json)?.parse().ok()?))),
    ("$numberLong", |json| Some(Value::Int64(string(json)?.parse().ok()?))),
    ("$numberDouble", |json| Some(Value::Double(double(&string(json)?)?))),
    ("$numberDecimal", |json| Some(Value::Decimal128(Decimal128::parse_exact(&string(json)?).ok()?))),
    ("$binary", binary),
    ("$uuid", uuid),
    ("$timestamp", timestamp),
    ("$regularExpression", regex),
    ("$dbPointer", pointer),
    ("$date", date_time),
    ("$minKey", |json| (json == Json::Number("1")).then_some(Value::MinKey)),
    ("$maxKey", |json| (json == Json::Number("1")).then_some(Value::MaxKey)),
    ("$undefined", |json| (json == Json::Bool(true)).then_some(Value::Undefined)),
];

fn object(mut fields: Vec<(String, Json<'_>)>) -> Result<Value> {
    if !fields.iter().any(|(name, _)| name.starts_with('$')) {
        return Ok(Value::Document(document(fields)?));
    }
    for (wrapper, unwrap) in WRAPPERS {
        if fields.iter().any(|(name, _)| name == wrapper) {
            if fields.len() > 1 {
                return Err(invalid(format!("{wrapper} stands beside other fields")));
            }
            let (_, json) = fields.swap_remove(0);
            return unwrap(json).ok_or_else(|| invalid(format!("{wrapper} holds something else")));
        }
    }
    let place =
        |fields: &[(String, Json<'_>)], wanted: &str| fields.iter().position(|(name, _)| name == wanted);
    let Some(code_at) = place(&fields, "$code") else {
        return Ok(Value::Document(document(fields)?));
    };
    let scope_at = place(&fields, "$scope");
    if fields.len() != 1 + usize::from(scope_at.is_some()) {
        return Err(invalid("$code stands beside other fields than $scope"));
    }
    let mut take = |at: usize| std::mem::replace(&mut fields[at].1, Json::Null);
    let code = string(take(code_at)).ok_or_else(|| invalid("$code holds something else"))?;
    match scope_at.map(take) {
        None => Ok(Value::JavaScript(code)),
        Some(Json::Object(fields)) => Ok(Value::JavaScriptWithScope { code, scope: document(fields)? }),
        Some(_) => Err(invalid("$scope holds something else")),
    }
}

fn string(json: Json<'_>) -> Option<String> {
    match json {
        Json::String(text) => Some(text),
        _ => None,
    }
}

/// The values of an object that has exactly the wanted fields.
fn exact<'a, const N: usize>(json: Json<'a>, wanted: [&str; N]) -> Option<[Json<'a>; N]> {
    let Json::Object(mut fields) = json else {
        return None;
    };
    if fields.len() != N {
        return None;
    }
    let mut values = [const { Json::Null }; N];
    for (slot, name) in values.iter_mut().zip(wanted) {
        let at = fields.iter().position(|(found, _)| found == name)?;
        *slot = fields.swap_remove(at).1;
    }
    Some(values)
}

fn object_id(json: Json<'_>) -> Option<ObjectId> {
    let text = string(json)?;
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| ObjectId::parse_hex(&text))?
}

fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // The standard parser also knows names; only digits are left to it.
        _ if text.contains(|letter: char| letter.is_ascii_alphabetic() && !"eE".contains(letter)) => None,
        _ => text.parse().ok(),
    }
}

fn binary(json: Json<'_>) -> Option<Value> {
    let [content, subtype] = exact(json, ["base64", "subType"])?;
    let subtype = string(subtype)?;
    // The standard parser also takes a sign; only digits are left to it.
    if subtype.len() > 2 || !subtype.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let subtype = u8::from_str_radix(&subtype, 16).ok()?;
    Some(Value::Binary { subtype, bytes: base64::decode(&string(content)?)? })
}

fn uuid(json: Json<'_>) -> Option<Value> {
    let text = string(json)?;
    let dashes = [8, 13, 18, 23];
    if text.len() != 36 || !text.is_ascii() || dashes.iter().any(|&at| text.as_bytes()[at] != b'-') {
        return None;
    }
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    if digits.len() != 32 {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    Some(Value::Binary { subtype: 4, bytes: (0..32).step_by(2).map(byte).collect::<Option<_>>()? })
}

fn timestamp(json: Json<'_>) -> Option<Value> {
    let number = |json| match json {
        Json::Number(text) => text.parse().ok(),
        _ => None,
    };
    let [seconds, increment] = exact(json, ["t", "i"])?;
    Some(Value::Timestamp(Timestamp { seconds: number(seconds)?, increment: number(increment)? }))
}

fn regex(json: Json<'_>) -> Option<Value> {
    let [pattern, options] = exact(json, ["pattern", "options"])?;
    let (pattern, options) = (string(pattern)?, string(options)?);
    let plain = |text: &str| !text.contains('\0');
    (plain(&pattern) && plain(&options)).then(|| Value::Regex { pattern, options: in_order(&options) })
}

fn pointer(json: Json<'_>) -> Option<Value> {
    let [namespace, id] = exact(json, ["$ref", "$id"])?;
    let [id] = exact(id, ["$oid"])?;
    Some(Value::DbPointer { namespace: string(namespace)?, id: object_id(id)? })
}

fn date_time(json: Json<'_>) -> Option<Value> {
    match json {
        Json::String(text) => Some(Value::DateTime(date::parse(&text)?)),
        json => {
            let [millis] = exact(json, ["$numberLong"])?;
            Some(Value::DateTime(string(millis)?.parse().ok()?))
        }
    }
}
