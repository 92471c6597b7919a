//! Log lines with the keys of mongod's, for what reads those.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use kilim_bson::{Document, JsonFormat, RawValue, to_extended_json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(super) struct Format;

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.message == SLOW {
            fields.rest = slow_query(&fields.rest);
        }
        let metadata = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        let thread = std::thread::current();
        let mut line = Document::new();
        line.push("t", RawValue::DateTime(now));
        line.push("s", severity(metadata.level()));
        line.push("c", component(metadata.target()));
        line.push("id", id(&fields.message));
        match kilim_server::served_connection() {
            Some(connection) => line.push("ctx", format!("conn{connection}")),
            None => line.push("ctx", thread.name().unwrap_or("thread")),
        };
        line.push("msg", fields.message.as_str());
        if !fields.rest.is_empty() {
            line.push("attr", fields.rest.as_raw());
        }
        writeln!(writer, "{}", to_extended_json(line.as_raw(), JsonFormat::Relaxed))
    }
}

fn severity(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "E",
        Level::WARN => "W",
        Level::INFO => "I",
        Level::DEBUG => "D1",
        Level::TRACE => "D2",
    }
}

/// mongod's name for the part of the server that speaks.
fn component(target: &str) -> &'static str {
    let is = |name: &str| target.starts_with(name);
    match () {
        () if is("kilim_server") => "NETWORK",
        () if is("kilim_storage") => "STORAGE",
        () if is("kilim_engine::index") => "INDEX",
        () if is("kilim_engine::maintenance") => "PATTERN",
        () if is("kilim_commands") => "COMMAND",
        () => "CONTROL",
    }
}

const SLOW: &str = "Slow query";

/// A slow command's line as tools read mongod's: `command` is a document, though here it has no more than the name.
fn slow_query(fields: &Document) -> Document {
    let collection = fields.get("ns").and_then(RawValue::as_str).and_then(|ns| Some(ns.split_once('.')?.1));
    let mut shown = Document::new();
    for (name, value) in fields.iter() {
        match (name, value, collection) {
            ("command", RawValue::String(command), Some(collection)) if collection != "$cmd" => {
                shown.push(name, command_of(command, RawValue::String(collection)).as_raw());
            }
            ("command", RawValue::String(command), _) => {
                shown.push(name, command_of(command, RawValue::Int32(1)).as_raw());
            }
            _ => shown.push(name, value),
        }
    }
    shown
}

fn command_of(name: &str, argument: RawValue<'_>) -> Document {
    let mut command = Document::new();
    command.push(name, argument);
    command
}

/// A number for each message: tools tell lines apart by it. Those that mongod has, too, have its own.
fn id(message: &str) -> i32 {
    match message {
        SLOW => return 51803,
        "Document would fail validation" => return 20294,
        _ => {}
    }
    let hash = message
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    90_000_000 + (hash % 1_000_000) as i32
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Document,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.rest.push(name, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            name => self.rest.push(name, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.rest.push(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.rest.push(field.name(), i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.rest.push(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.rest.push(field.name(), value);
    }
}
