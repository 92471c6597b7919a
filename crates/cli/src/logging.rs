//! Structured logs on standard error or in a file. They name connections, codes and places, never what documents hold.

mod mongod;
mod queue;

use std::io;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use kilim_engine::server_log::{ProcessLog, Recent};
use tracing::{error, warn};
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
    set_filter: Box<dyn Fn(EnvFilter) -> bool + Send + Sync>,
    /// What the configuration asks for.
    level: Mutex<LogLevel>,
}

impl Log {
    /// Changes which lines are written.
    pub(crate) fn set_level(&self, level: LogLevel) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
        self.write_from(level);
    }

    /// The server is ready: later warnings are not of its start.
    pub(crate) fn note_ready(&self) {
        self.queue.note_ready();
    }

    fn write_from(&self, level: LogLevel) {
        if !(self.set_filter)(filter(level)) {
            warn!("the log level cannot be changed");
        }
    }
}

impl ProcessLog for Log {
    fn recent(&self) -> Recent {
        self.queue.recent()
    }

    fn set_verbosity(&self, level: i32) {
        self.write_from(match level {
            0 => *self.level.lock().unwrap_or_else(PoisonError::into_inner),
            1 => LogLevel::Debug,
            _ => LogLevel::Trace,
        });
    }

    /// The file was moved away.
    fn reopen(&self) {
        self.queue.reopen();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.flush(LAST_LINES);
    }
}

/// Logs to a file, or else to standard error.
pub(crate) fn start(format: LogFormat, level: LogLevel, file: Option<&Path>) -> io::Result<Log> {
    let queue = match file {
        Some(path) => LogQueue::to_file(path)?,
        None => LogQueue::to_stderr()?,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(queue.clone())
        .with_env_filter(filter(level))
        .with_thread_names(false);
    let set_filter: Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;
    match format {
        LogFormat::Text => {
            let colours = file.is_none() && io::IsTerminal::is_terminal(&io::stderr());
            let subscriber = subscriber.with_ansi(colours).with_filter_reloading();
            let handle = subscriber.reload_handle();
            set_filter = Box::new(move |filter| handle.reload(filter).is_ok());
            subscriber.init();
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
            let handle = subscriber.reload_handle();
            set_filter = Box::new(move |filter| handle.reload(filter).is_ok());
            subscriber.init();
        }
        LogFormat::Mongod => {
            let subscriber = subscriber.event_format(mongod::Format).with_filter_reloading();
            let handle = subscriber.reload_handle();
            set_filter = Box::new(move |filter| handle.reload(filter).is_ok());
            subscriber.init();
        }
    }
    let log = Log { queue: queue.clone(), set_filter, level: Mutex::new(level) };
    std::panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        // The process may be about to abort.
        queue.flush(LAST_LINES);
    }));
    Ok(log)
}

fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    // A directive counts for every target that begins with its name, so for all crates of ours;
    // libraries speak only when something is wrong.
    EnvFilter::new(if level == "error" { level.to_string() } else { format!("warn,kilim={level}") })
}

/// A panic's place is always told, its message only if it is a literal: one that was formatted may
/// quote a document.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("(formatted, withheld)");
    error!(place, message, backtrace = %std::backtrace::Backtrace::capture(), "panic");
}
