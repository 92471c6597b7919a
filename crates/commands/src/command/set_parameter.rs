//! `setParameter`: changes a setting of the running server.

use kilim_bson::{Document, Value, doc};
use kilim_engine::Engine;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

/// A setting that can be changed: its name, its value, and how it is set.
struct Setting {
    name: &'static str,
    get: fn(&Engine) -> Value,
    set: fn(&Engine, &Argument<'_>) -> Result<()>,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "patternScrubEnabled",
        get: |engine| Value::Bool(engine.scrubbing.is_enabled()),
        set: |engine, argument| {
            engine.scrubbing.enable(argument.boolean()?);
            Ok(())
        },
    },
    Setting {
        name: "ttlMonitorEnabled",
        get: |engine| Value::Bool(engine.expiry.is_enabled()),
        set: |engine, argument| {
            engine.expiry.enable(argument.boolean()?);
            Ok(())
        },
    },
    Setting {
        name: "ttlMonitorSleepSecs",
        get: |engine| Value::Int32(i32::try_from(engine.expiry.pause().as_secs()).unwrap_or(i32::MAX)),
        set: |engine, argument| {
            let bad = |message: String| Error::user(ErrorCode::BadValue, message);
            let seconds = argument.integer().map_err(|_| {
                bad(format!("Failed validating {}: Unable to coerce value to integral type", argument.name))
            })?;
            if !(1..=i64::from(i32::MAX)).contains(&seconds) {
                let name = argument.name;
                return Err(bad(format!(
                    "Invalid value for parameter {name}: {seconds} is not greater than 0"
                )));
            }
            engine.expiry.set_pause_seconds(seconds as u64);
            Ok(())
        },
    },
];

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut was = None;
    for argument in arguments("setParameter", call.body) {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == argument.name) else {
            return Err(Error::user(
                ErrorCode::InvalidOptions,
                format!("attempted to set unrecognized parameter [{}]", argument.name),
            ));
        };
        let before = (setting.get)(call.engine);
        (setting.set)(call.engine, &argument)?;
        was = Some(before);
    }
    let was = was.ok_or_else(|| Error::user(ErrorCode::InvalidOptions, "no option found to set"))?;
    Ok(doc! {"was": was})
}

/// The settings as getParameter shows them.
pub fn append_settings(engine: &Engine, shown: &mut Document) {
    for setting in &SETTINGS {
        shown.push(setting.name, (setting.get)(engine));
    }
}
