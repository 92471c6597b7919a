//! `profile`: which commands of a database are written down in its `system.profile`.

use std::time::Duration;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::profile::ProfileLevel;
use kilim_error::{Error, ErrorCode, Result};

use super::coll_stats::number;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "profile";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let level = Argument { command: NAME, name: NAME, value }.integer()?;
    let (mut slow, mut sample_rate) = (None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "slowms" => slow = Some(argument.integer()?),
            "sampleRate" => sample_rate = Some(argument.double()?),
            "filter" => match argument.value {
                // There is none that it could take away.
                RawValue::String("unset") => {}
                RawValue::Document(_) => return Err(argument.unsupported()),
                _ => return bad("Expected an object, or the string 'unset'."),
            },
            _ => return Err(argument.unknown()),
        }
    }
    if sample_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
        return bad("'sampleRate' must be between 0.0 and 1.0 inclusive");
    }
    let engine = call.engine;
    let (profiler, metrics) = (&engine.profiler, &engine.metrics);
    let database = call.generic.database;
    let was = match profiler.level(database) {
        ProfileLevel::Off => 0,
        ProfileLevel::Slow => 1,
        ProfileLevel::All => 2,
    };
    let reply = doc! {
        "was": was,
        "slowms": number(metrics.slow_limit().as_millis() as i64),
        "sampleRate": profiler.sample_rate(),
    };
    match level {
        0 => profiler.set_level(database, ProfileLevel::Off),
        1 => profiler.set_level(database, ProfileLevel::Slow),
        2 => profiler.set_level(database, ProfileLevel::All),
        // Any other only asks.
        _ => {}
    }
    if let Some(slow) = slow {
        metrics.set_slow_limit(Duration::from_millis(slow.max(0) as u64));
    }
    if let Some(rate) = sample_rate {
        profiler.set_sample_rate(rate);
    }
    Ok(reply)
}
