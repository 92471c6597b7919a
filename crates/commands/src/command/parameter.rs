//! The parameters of `getParameter` and `setParameter`, a row each.

use kilim_bson::Value;
use kilim_engine::{Engine, limits};
use kilim_error::{Error, ErrorCode, Result};

use super::set_feature_compatibility_version::VERSION;
use crate::argument::Argument;

/// What users may log in by.
const MECHANISMS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// The form of users' and roles' documents, by mongod's count. Whoever restores a dump compares it.
const AUTH_SCHEMA: i32 = 5;

/// The most talkative level of the log.
const LOG_LEVEL_MAX: i64 = 5;

/// Changes a parameter's value.
pub type Setter = fn(&Engine, &Argument<'_>) -> Result<()>;

pub struct Parameter {
    pub name: &'static str,
    pub get: fn(&Engine) -> Value,
    /// How it is changed while the server runs; `None` where it cannot be.
    pub set: Option<Setter>,
    /// Whether an option of the server's start sets it.
    pub at_start: bool,
}

const fn fixed(name: &'static str, at_start: bool, get: fn(&Engine) -> Value) -> Parameter {
    Parameter { name, get, set: None, at_start }
}

const fn changing(name: &'static str, get: fn(&Engine) -> Value, set: Setter) -> Parameter {
    Parameter { name, get, set: Some(set), at_start: true }
}

/// By name, as getParameter shows them.
pub const PARAMETERS: &[Parameter] = &[
    fixed("authSchemaVersion", false, |_| Value::Int32(AUTH_SCHEMA)),
    fixed("authenticationMechanisms", true, |_| Value::from(MECHANISMS.map(Value::from).to_vec())),
    changing(
        "cursorTimeoutMillis",
        |engine| Value::Int64(engine.settings.cursor_idle_ms()),
        |engine, argument| {
            engine.settings.set_cursor_idle_ms(whole(argument, i64::MIN, i64::MAX)?);
            Ok(())
        },
    ),
    fixed("enableTestCommands", true, |engine| Value::Bool(engine.options.test_commands)),
    fixed("featureCompatibilityVersion", false, |_| Value::Document(kilim_bson::doc! {"version": VERSION})),
    changing(
        "internalQueryMaxAllowedDensifyDocs",
        |engine| Value::Int32(i32::try_from(engine.settings.densified_documents_max()).unwrap_or(i32::MAX)),
        |engine, argument| {
            engine.settings.set_densified_documents_max(positive(argument, i64::from(i32::MAX))?);
            Ok(())
        },
    ),
    fixed("localLogicalSessionTimeoutMinutes", true, |_| {
        Value::Int32((limits::SESSION_IDLE.as_secs() / 60) as i32)
    }),
    changing(
        "logLevel",
        |engine| Value::Int32(engine.log.level()),
        |engine, argument| {
            let level = argument.value.is_number().then(|| argument.integer()).transpose()?;
            let Some(level) = level.filter(|&level| level >= 0) else {
                let message = format!("Invalid value for logLevel: {}", argument.value.element_type().name());
                return Err(Error::user(ErrorCode::BadValue, message));
            };
            // As on mongod, beyond the most talkative there is nothing.
            engine.log.set_level(level.min(LOG_LEVEL_MAX) as i32);
            Ok(())
        },
    ),
    changing(
        "maxTransactionLockRequestTimeoutMillis",
        |engine| Value::Int32(engine.settings.transaction_lock_wait_ms() as i32),
        |engine, argument| {
            let millis = whole(argument, i64::from(i32::MIN), i64::from(i32::MAX))?;
            engine.settings.set_transaction_lock_wait_ms(millis);
            Ok(())
        },
    ),
    changing(
        "notablescan",
        |engine| Value::Bool(engine.settings.no_table_scan()),
        |engine, argument| {
            engine.settings.set_no_table_scan(truth(argument));
            Ok(())
        },
    ),
    changing(
        "patternScrubEnabled",
        |engine| Value::Bool(engine.scrubbing.is_enabled()),
        |engine, argument| {
            engine.scrubbing.enable(argument.boolean()?);
            Ok(())
        },
    ),
    fixed("quiet", true, |_| Value::Bool(false)),
    changing(
        "requireApiVersion",
        |engine| Value::Bool(engine.settings.requires_api_version()),
        |engine, argument| {
            engine.settings.set_requires_api_version(truth(argument));
            Ok(())
        },
    ),
    changing(
        "scramIterationCount",
        |engine| Value::Int32(engine.settings.scram_sha_1_iterations() as i32),
        |engine, argument| {
            engine.settings.set_scram_sha_1_iterations(iterations(argument)?);
            Ok(())
        },
    ),
    changing(
        "scramSHA256IterationCount",
        |engine| Value::Int32(engine.settings.scram_sha_256_iterations() as i32),
        |engine, argument| {
            engine.settings.set_scram_sha_256_iterations(iterations(argument)?);
            Ok(())
        },
    ),
    changing(
        "transactionLifetimeLimitSeconds",
        |engine| Value::Int32(engine.settings.transaction_lifetime().as_secs() as i32),
        |engine, argument| {
            let seconds = whole(argument, 1, i64::from(i32::MAX))?;
            engine.settings.set_transaction_lifetime_seconds(seconds as u64);
            Ok(())
        },
    ),
    changing(
        "ttlMonitorEnabled",
        |engine| Value::Bool(engine.expiry.is_enabled()),
        |engine, argument| {
            engine.expiry.enable(argument.boolean()?);
            Ok(())
        },
    ),
    changing(
        "ttlMonitorSleepSecs",
        |engine| Value::Int32(i32::try_from(engine.expiry.pause().as_secs()).unwrap_or(i32::MAX)),
        |engine, argument| {
            engine.expiry.set_pause_seconds(positive(argument, i64::from(i32::MAX))?);
            Ok(())
        },
    ),
];

/// The parameter of that name.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

fn iterations(argument: &Argument<'_>) -> Result<u32> {
    let least = i64::from(limits::SCRAM_ITERATIONS_MIN);
    Ok(whole(argument, least, i64::from(i32::MAX))? as u32)
}

/// A whole number within bounds, as parameters are read.
fn whole(argument: &Argument<'_>, min: i64, max: i64) -> Result<i64> {
    let bad = |message: String| Error::user(ErrorCode::BadValue, message);
    let name = argument.name;
    let value = argument
        .integer()
        .map_err(|_| bad(format!("Failed validating {name}: Unable to coerce value to integral type")))?;
    match value {
        value if value < min => Err(bad(format!(
            "Invalid value for parameter {name}: {value} is not greater than or equal to {min}"
        ))),
        value if value > max => Err(bad(format!(
            "Invalid value for parameter {name}: {value} is not less than or equal to {max}"
        ))),
        value => Ok(value),
    }
}

/// A whole number above 0.
fn positive(argument: &Argument<'_>, max: i64) -> Result<u64> {
    let value = whole(argument, i64::MIN, max)?;
    u64::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| {
        let name = argument.name;
        let message = format!("Invalid value for parameter {name}: {value} is not greater than 0");
        Error::user(ErrorCode::BadValue, message)
    })
}

/// Whatever is given counts as in JavaScript.
fn truth(argument: &Argument<'_>) -> bool {
    argument.boolean().unwrap_or(true)
}
