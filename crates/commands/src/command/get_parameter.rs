//! `getParameter`: settings, one by one or all of them.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::parameter::{PARAMETERS, Parameter};
use crate::argument::nested;
use crate::dispatch::Call;

const NAME: &str = "getParameter";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut all, mut details) = (false, false);
    match call.body.get(NAME) {
        Some(RawValue::String("*")) => all = true,
        Some(RawValue::Document(options)) => {
            for option in nested(NAME, options) {
                match option.name {
                    "allParameters" => all = option.boolean()?,
                    "showDetails" => details = option.boolean()?,
                    _ => return Err(option.unknown()),
                }
            }
        }
        _ => {}
    }
    let mut reply = Document::new();
    for parameter in PARAMETERS {
        if all || call.body.get(parameter.name).is_some() {
            reply.push(parameter.name, shown(call, parameter, details));
        }
    }
    match reply.is_empty() {
        true => Err(Error::user(ErrorCode::InvalidOptions, "no option found to get")),
        false => Ok(reply),
    }
}

fn shown(call: &Call<'_, '_>, parameter: &Parameter, details: bool) -> Value {
    let value = (parameter.get)(call.engine);
    match details {
        false => value,
        true => Value::Document(doc! {
            "value": value,
            "settableAtRuntime": parameter.set.is_some(),
            "settableAtStartup": parameter.at_start,
        }),
    }
}
