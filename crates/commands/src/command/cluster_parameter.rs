//! `setClusterParameter` and `getClusterParameter`: settings that outlive the server. There is one, `changeStreamOptions`.

use kilim_bson::{Array, Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_engine::listen::{self, OPTIONS_PARAMETER};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

const SET: &str = "setClusterParameter";
const GET: &str = "getClusterParameter";

pub fn set(call: &mut Call<'_, '_>) -> Result<Document> {
    refuse_arguments(call, SET)?;
    let value = match call.body.get(SET) {
        Some(RawValue::Document(value)) => value,
        other => return Err(wrong_type(SET, SET, other.unwrap_or(RawValue::Null), "type 'object'")),
    };
    let illegal = |message: String| Err(Error::user(ErrorCode::IllegalOperation, message));
    let (name, options) = value.iter().next().unwrap_or(("", RawValue::Null));
    if name != OPTIONS_PARAMETER {
        return illegal(format!("Unknown Cluster Parameter {name}"));
    }
    let Some(options) = options.as_document() else {
        return illegal("Cluster parameter value must be an object".to_owned());
    };
    let expiry = parse_expiry(options)?;
    let time = Value::Timestamp(Timestamp::from_bits(call.engine.store.now()));
    let value = doc! {
        "_id": OPTIONS_PARAMETER, "clusterParameterTime": time, "preAndPostImages": {"expireAfterSeconds": expiry},
    };
    listen::set_options_parameter(&mut call.unit, &value)?;
    Ok(Document::new())
}

/// How long images are shown: a number of seconds, or "off".
fn parse_expiry(options: RawDocument<'_>) -> Result<Value> {
    let bad = |message: String| Error::user(ErrorCode::BadValue, message);
    let failed =
        |message: String| bad(format!("Failed parsing new {OPTIONS_PARAMETER} valueBSON field '{message}"));
    let missing = |name: &str| failed(format!("{OPTIONS_PARAMETER}.{name}' is missing but a required field"));
    let unknown = |path: &str| failed(format!("{OPTIONS_PARAMETER}.{path}' is an unknown field."));
    if let Some((name, _)) = options.iter().find(|(name, _)| *name != "preAndPostImages") {
        return Err(unknown(name));
    }
    let images = options.get("preAndPostImages").ok_or_else(|| missing("preAndPostImages"))?;
    let wrong = |path: &str, value: RawValue<'_>, expected: &str| {
        let found = value.element_type().name();
        failed(format!("{OPTIONS_PARAMETER}.{path}' is the wrong type '{found}', expected {expected}"))
    };
    let images = images.as_document().ok_or_else(|| wrong("preAndPostImages", images, "type 'object'"))?;
    if let Some((name, _)) = images.iter().find(|(name, _)| *name != "expireAfterSeconds") {
        return Err(unknown(&format!("preAndPostImages.{name}")));
    }
    let expiry = images.get("expireAfterSeconds").ok_or_else(|| missing("expireAfterSeconds"))?;
    let seconds = match expiry {
        RawValue::String("off") => return Ok(Value::String("off".to_owned())),
        RawValue::String(_) => {
            return Err(bad("Non-numeric value of 'expireAfterSeconds' should be 'off'".to_owned()));
        }
        RawValue::Int32(seconds) => i64::from(seconds),
        RawValue::Int64(seconds) => seconds,
        RawValue::Double(seconds) => seconds as i64,
        RawValue::Decimal128(seconds) => seconds.to_f64() as i64,
        other => {
            let path = "preAndPostImages.expireAfterSeconds";
            return Err(wrong(path, other, "types '[string, long']"));
        }
    };
    match seconds > 0 {
        true => Ok(Value::Int64(seconds)),
        false => Err(bad("Numeric value of 'expireAfterSeconds' should be positive".to_owned())),
    }
}

pub fn get(call: &mut Call<'_, '_>) -> Result<Document> {
    refuse_arguments(call, GET)?;
    let names: Vec<&str> = match call.body.get(GET) {
        Some(RawValue::String("*")) => vec![OPTIONS_PARAMETER],
        Some(RawValue::String(name)) => vec![name],
        Some(RawValue::Array(names)) => {
            let name = |(at, name): (usize, RawValue<'_>)| match name {
                RawValue::String(_) => Ok(()),
                other => Err(wrong_type(GET, &format!("{GET}.{at}"), other, "type 'string'")),
            };
            names.iter().enumerate().try_for_each(name)?;
            names.iter().filter_map(RawValue::as_str).collect()
        }
        other => return Err(wrong_type(GET, GET, other.unwrap_or(RawValue::Null), "types '[string']")),
    };
    if names.is_empty() {
        let message = "Must supply at least one cluster server parameter name to getClusterParameter";
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    let mut found = Vec::new();
    for name in names {
        if name != OPTIONS_PARAMETER {
            return Err(Error::user(ErrorCode::NoSuchKey, format!("Unknown server parameter: {name}")));
        }
        let stored = listen::options_parameter(call.engine, &call.operation)?;
        found.push(Value::Document(stored.unwrap_or_else(|| {
            let time = Value::Timestamp(Timestamp { seconds: 0, increment: 0 });
            doc! {
                "_id": name, "clusterParameterTime": time, "preAndPostImages": {"expireAfterSeconds": "off"},
            }
        })));
    }
    let mut reply = Document::new();
    reply.push("clusterParameters", found.into_iter().collect::<Array>());
    Ok(reply)
}

fn refuse_arguments(call: &Call<'_, '_>, command: &'static str) -> Result<()> {
    match arguments(command, call.body).next() {
        Some(argument) => Err(argument.unknown()),
        None => Ok(()),
    }
}

fn wrong_type(command: &str, field: &str, value: RawValue<'_>, expected: &str) -> Error {
    let found = value.element_type().name();
    let message = format!("BSON field '{command}.{field}' is the wrong type '{found}', expected {expected}");
    Error::user(ErrorCode::TypeMismatch, message)
}
