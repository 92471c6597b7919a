//! Figures for Prometheus: `GET /metrics` on a port of its own, in the text format that it scrapes.
//!
//! Each request has a thread and a few seconds, so that a slow client holds up neither others nor the end of the server.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kilim_commands::COMMANDS;
use kilim_engine::Engine;
use kilim_tls::ServerTls;
use tracing::debug;

use crate::stream::Stream;

/// What a request and its answer may take together. Who asks more slowly is not Prometheus.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at once; further ones are closed unanswered. A scraper comes every few seconds, alone.
const REQUESTS_MAX: usize = 16;
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// A running endpoint; dropping it ends it.
pub struct MetricsEndpoint {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsEndpoint {
    /// It encrypts as the server does.
    pub fn start(
        address: SocketAddr,
        engine: Arc<Engine>,
        tls: Option<Arc<ServerTls>>,
    ) -> io::Result<MetricsEndpoint> {
        let socket = TcpListener::bind(address)?;
        let address = socket.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let running = Arc::new(());
        let work = move || {
            for stream in socket.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let answered =
                    stream.and_then(|stream| answer_apart(stream, &engine, tls.as_ref(), &running));
                if let Err(error) = answered {
                    debug!(%error, "a request for metrics cannot be answered");
                }
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
        Ok(MetricsEndpoint { address, stopping, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // It waits for a connection: this is one.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers on a thread of its own, which ends soon whatever the client does. `running` is held by each.
fn answer_apart(
    stream: TcpStream,
    engine: &Arc<Engine>,
    tls: Option<&Arc<ServerTls>>,
    running: &Arc<()>,
) -> io::Result<()> {
    if Arc::strong_count(running) > REQUESTS_MAX {
        return Err(io::Error::other("too many requests at once"));
    }
    // Not held while the client is waited for: the engine may be closed meanwhile.
    let (engine, tls, held) = (Arc::downgrade(engine), tls.cloned(), running.clone());
    let work = move || {
        let _held = held;
        if let Err(error) = answer(stream, &engine, tls.as_deref()) {
            debug!(%error, "a request for metrics failed");
        }
    };
    thread::Builder::new().name("metrics-request".to_owned()).spawn(work).map(drop)
}

fn answer(stream: TcpStream, engine: &Weak<Engine>, tls: Option<&ServerTls>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let stream = Stream::new(stream, PATIENCE)?;
    if let Some(tls) = tls {
        stream.secure(tls, deadline)?;
    }
    let left = || Some(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(left())?;
        let count = (&stream).read(&mut buffer)?;
        if count == 0 || request.len() > REQUEST_BYTES_MAX {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..count]);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // Whoever scrapes may be told to ask with parameters, which mean nothing here.
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let Some(engine) = engine.upgrade() else { return Ok(()) };
    let (status, body) = match (method, path) {
        (b"GET", b"/metrics") => ("200 OK", text(&engine)),
        (b"GET", _) => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        body.len()
    );
    drop(engine);
    let reply = [head, body].concat();
    let mut rest = reply.as_bytes();
    while !rest.is_empty() {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(left())?;
        let count = (&stream).write(rest)?;
        rest = &rest[count..];
    }
    stream.close();
    Ok(())
}

/// All figures.
fn text(engine: &Engine) -> String {
    let metrics = &engine.metrics;
    let mut out = Page(String::with_capacity(8 << 10));
    out.gauge("kilim_uptime_seconds", "Time since the start.", engine.started.elapsed().as_secs_f64());
    out.gauge("kilim_connections", "Open connections.", metrics.connections_current.get() as f64);
    out.counter("kilim_connections_total", "Connections since the start.", metrics.connections_total.get());
    out.counter("kilim_network_bytes_in_total", "Bytes received.", metrics.bytes_in.get());
    out.counter("kilim_network_bytes_out_total", "Bytes sent.", metrics.bytes_out.get());
    out.gauge("kilim_cursors_open", "Open cursors.", engine.cursors.count() as f64);
    out.gauge("kilim_operations_running", "Commands that run now.", engine.operations.list().len() as f64);
    out.head("kilim_documents_total", "counter", "Documents, by what happened to them.");
    for (what, counter) in [
        ("returned", &metrics.documents_returned),
        ("inserted", &metrics.documents_inserted),
        ("updated", &metrics.documents_updated),
        ("deleted", &metrics.documents_deleted),
        ("expired", &engine.expiry.removed),
    ] {
        out.labelled("kilim_documents_total", &[("what", what)], counter.get());
    }
    out.head("kilim_commands_total", "counter", "Commands that ended.");
    let counts = metrics.by_command(COMMANDS.len());
    for (spec, count) in COMMANDS.iter().zip(counts).filter(|(_, count)| count.total.get() > 0) {
        out.labelled("kilim_commands_total", &[("command", spec.name)], count.total.get());
    }
    out.head("kilim_command_errors_total", "counter", "Commands that ended with an error.");
    for (spec, count) in COMMANDS.iter().zip(counts).filter(|(_, count)| count.failed.get() > 0) {
        out.labelled("kilim_command_errors_total", &[("command", spec.name)], count.failed.get());
    }
    let latencies =
        [("read", &metrics.reads), ("write", &metrics.writes), ("command", &metrics.other_commands)];
    out.head("kilim_operation_seconds_total", "counter", "Time that operations took together.");
    for (kind, latency) in latencies {
        out.labelled("kilim_operation_seconds_total", &[("kind", kind)], latency.micros.get() as f64 / 1e6);
    }
    out.head("kilim_operations_total", "counter", "Operations that ended.");
    for (kind, latency) in latencies {
        out.labelled("kilim_operations_total", &[("kind", kind)], latency.operations.get());
    }
    out.counter("kilim_write_conflicts_total", "Writes that met another.", metrics.write_conflicts.get());
    out.head("kilim_transactions_total", "counter", "Transactions, by how they went.");
    for (how, counter) in [
        ("started", &metrics.transactions_started),
        ("committed", &metrics.transactions_committed),
        ("aborted", &metrics.transactions_aborted),
    ] {
        out.labelled("kilim_transactions_total", &[("how", how)], counter.get());
    }
    out.gauge("kilim_disk_bytes", "Size of the data on disk.", engine.store.disk_bytes() as f64);
    change_log(engine, &mut out);
    patterns(engine, &mut out);
    out.0
}

/// How far back the change log reaches, and who listens.
fn change_log(engine: &Engine, out: &mut Page) {
    out.gauge("kilim_change_streams", "Open change streams.", engine.feed.streams() as f64);
    let Some(stats) = engine.store.log_stats() else { return };
    let seconds = |time: u64| (time >> 32) as f64;
    let name = "kilim_change_log_begins_seconds";
    out.gauge(name, "The oldest change that is kept, as a time.", seconds(stats.begins));
    let newest = seconds(engine.store.durable_time());
    out.gauge("kilim_change_log_newest_seconds", "The newest commit on disk, as a time.", newest);
    out.gauge("kilim_change_log_bytes", "Size of the change log.", stats.bytes as f64);
}

/// What declared patterns do.
fn patterns(engine: &Engine, out: &mut Page) {
    let registry = engine.patterns();
    out.head("kilim_pattern_writes_total", "counter", "Documents written by maintenance.");
    for pattern in registry.iter() {
        let ns = pattern.target.to_string();
        let labels = [("ns", ns.as_str()), ("pattern", &*pattern.declaration.name)];
        out.labelled("kilim_pattern_writes_total", &labels, pattern.counters.maintained.get());
    }
    out.head("kilim_pattern_drift_total", "counter", "Documents that checks found wrong.");
    for pattern in registry.iter() {
        let ns = pattern.target.to_string();
        let labels = [("ns", ns.as_str()), ("pattern", &*pattern.declaration.name)];
        out.labelled("kilim_pattern_drift_total", &labels, pattern.counters.drift.get());
    }
}

/// A page being written.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }
}
