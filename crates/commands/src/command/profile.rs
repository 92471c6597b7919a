//! `profile`: which commands of a database are written down in its `system.profile`.

use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::profile::ProfileLevel;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Dependencies, Scope};
use kilim_query::filter::Filter;

use super::coll_stats::number;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;
use crate::ended::FIELDS;
use crate::variables::variables_under;

const NAME: &str = "profile";

/// As mongod puts it.
const FILTER_DECIDES: &str = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let level = Argument { command: NAME, name: NAME, value }.integer()?;
    let (mut slow, mut sample_rate, mut filter) = (None, None, None);
    let no_filter = "Expected an object, or the string 'unset'.";
    if let Some(RawValue::Null | RawValue::Undefined) = call.body.get("filter") {
        return bad(no_filter);
    }
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "slowms" => slow = Some(argument.integer()?),
            "sampleRate" => sample_rate = Some(argument.double()?),
            "filter" => match argument.value {
                RawValue::String("unset") => filter = Some(None),
                RawValue::Document(document) => filter = Some(Some(parse_filter(call, document)?)),
                _ => return bad(no_filter),
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
    let mut reply = doc! {
        "was": was,
        "slowms": number(metrics.slow_limit().as_millis() as i64),
        "sampleRate": profiler.sample_rate(),
    };
    let was_filtered = profiler.filter(database);
    if let Some(filter) = &was_filtered {
        reply.push("filter", filter.to_document().as_raw());
    }
    if was_filtered.is_some() || matches!(filter, Some(Some(_))) {
        reply.push("note", FILTER_DECIDES);
    }
    if let Some(filter) = filter {
        profiler.set_filter(database, filter);
    }
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

/// A filter over entries of a profile.
fn parse_filter(call: &Call<'_, '_>, filter: RawDocument<'_>) -> Result<Filter> {
    let variables = variables_under(call, NAME, RawDocument::empty(), None)?;
    let filter = Filter::parse_in(filter, &Scope::new(&variables))?;
    let mut needed = Dependencies::default();
    filter.dependencies(&mut needed);
    let first = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let mut unknown: Vec<String> = needed.fields.iter().map(|path| first(path)).collect();
    unknown.retain(|name| !FIELDS.contains(&name.as_str()));
    unknown.dedup();
    if unknown.is_empty() || needed.whole_document {
        return Ok(filter);
    }
    let message = format!("No such field (or fields) available for profile filter: {}", unknown.join(", "));
    Err(Error::location(4910200, message))
}
