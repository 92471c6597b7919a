//! `getParameter`: settings that tools ask for.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::limits;
use kilim_error::{Error, ErrorCode, Result};

use super::set_parameter::append_settings;
use crate::argument::arguments;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let known = parameters(call);
    match call.body.get("getParameter") {
        Some(RawValue::String("*")) => return Ok(known),
        Some(RawValue::Document(options))
            if matches!(options.get("allParameters"), Some(RawValue::Bool(true))) =>
        {
            return Ok(known);
        }
        _ => {}
    }
    let mut reply = Document::new();
    for argument in arguments("getParameter", call.body) {
        if let Some(value) = known.get(argument.name) {
            reply.push(argument.name, value.to_value());
        }
    }
    match reply.is_empty() {
        true => Err(Error::user(ErrorCode::InvalidOptions, "no option found to get")),
        false => Ok(reply),
    }
}

fn parameters(call: &Call<'_, '_>) -> Document {
    let mut known = doc! {
        "featureCompatibilityVersion": {"version": "7.0"},
        "authenticationMechanisms": Value::Array(Default::default()),
        "enableTestCommands": i32::from(call.engine.options.test_commands),
        "cursorTimeoutMillis": limits::CURSOR_IDLE.as_millis() as i64,
        "localLogicalSessionTimeoutMinutes": (limits::SESSION_IDLE.as_secs() / 60) as i32,
        "transactionLifetimeLimitSeconds": limits::TRANSACTION_LIFETIME.as_secs() as i32,
        "maxTransactionLockRequestTimeoutMillis": limits::TRANSACTION_LOCK_WAIT.as_millis() as i32,
        "requireApiVersion": false,
        "quiet": false,
    };
    append_settings(call.engine, &mut known);
    known
}
