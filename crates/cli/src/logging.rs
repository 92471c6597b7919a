//! Structured logs on standard error. They name connections, codes and places, never what documents hold.

mod mongod;
mod queue;

use std::io;
use std::panic::PanicHookInfo;
use std::time::Duration;

use clap::ValueEnum;
use tracing::error;
use tracing_subscriber::EnvFilter;

use self::queue::LogQueue;

/// How long an ending process waits for its last lines: a log that nobody reads must not keep it.
const LAST_LINES: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text an event.
    Text,
    /// One JSON object a line.
    Json,
    /// One JSON object a line, with the keys that mongod's logs have: t, s, c, id, ctx, msg, attr.
    Mongod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Writes the last lines when it goes.
pub(crate) struct Log {
    queue: LogQueue,
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.flush(LAST_LINES);
    }
}

pub(crate) fn start(format: LogFormat, level: LogLevel) -> io::Result<Log> {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // A directive counts for every target that begins with its name, so for all crates of ours;
    // libraries speak only when something is wrong.
    let filter = if level == "error" { level.to_string() } else { format!("warn,kilim={level}") };
    let queue = LogQueue::to_stderr()?;
    let subscriber = tracing_subscriber::fmt()
        .with_writer(queue.clone())
        .with_env_filter(EnvFilter::new(filter))
        .with_thread_names(false);
    match format {
        LogFormat::Text => {
            subscriber.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init();
        }
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
        LogFormat::Mongod => subscriber.event_format(mongod::Format).init(),
    }
    let log = Log { queue: queue.clone() };
    std::panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        // The process may be about to abort.
        queue.flush(LAST_LINES);
    }));
    Ok(log)
}

/// A panic's place is always told, its message only if it is a literal: one that was formatted may
/// quote a document.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("(formatted, withheld)");
    error!(place, message, backtrace = %std::backtrace::Backtrace::capture(), "panic");
}
