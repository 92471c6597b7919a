//! Change streams whose listeners wait on connections of their own, as applications do: what an event costs the server, how
//! long after the acknowledgement it arrives, what idle streams hold, and how large the log becomes.
//!
//! Each takes its time, so each runs only where it is named by `--only`. Both sides work one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kilim_bson::{Document, RawValue, doc};
use kilim_testkit::link::{Fault, Link, whole};
use kilim_testkit::subject::{Kind, Running, Subject, disk_bytes};

use crate::data::{DATABASE, mix};
use crate::report::{Row, bytes, figure};
use crate::streams::open;
use crate::{Options, Sides};

const WATCHED: &str = "listened";

/// Listeners, inserts a second, and inserts in one command.
const LOADS: [(&str, usize, u64, u64); 3] =
    [("listeners_1", 1, 20_000, 100), ("listeners_100", 100, 200, 1), ("listeners_1000", 1_000, 20, 1)];

/// What idle streams and their connections may hold each.
const IDLE_BYTES: f64 = 100e3;

pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let named = |name: &str| options.only.iter().any(|only| only == name);
    let mut rows = Vec::new();
    for (name, listeners, rate, batch) in LOADS {
        if named(name) {
            let seconds = if options.quick { 2 } else { 20 };
            let load = Load { listeners, rate, batch, seconds };
            rows.extend(delivered(sides, options, name, &load)?);
        }
    }
    if named("streams_memory") {
        rows.extend(idle(sides, options)?);
    }
    if named("log_disk") {
        rows.extend(log_disk(sides, options)?);
    }
    Ok(rows)
}

/// One side's server on a directory that ends with it.
fn start(
    sides: &Sides,
    side: usize,
    options: &Options,
    arguments: &[&str],
) -> Result<(Subject, Running, tempfile::TempDir)> {
    let place = tempfile::Builder::new().prefix("kilim-listeners-").tempdir_in(&options.data)?;
    let mut subject = sides.subject(side, place.path())?;
    subject.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let running = subject.start()?;
    Ok((subject, running, place))
}

struct Load {
    listeners: usize,
    rate: u64,
    batch: u64,
    seconds: u64,
}

/// What came of a load.
struct Delivered {
    cpu_per_event: f64,
    /// From the acknowledgement of a write to its event, in the order of their length.
    delays: Vec<Duration>,
    inserts_per_second: f64,
}

impl Delivered {
    fn percentile(&self, share: f64) -> f64 {
        let at = (self.delays.len() as f64 * share) as usize;
        self.delays.get(at.min(self.delays.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64)
    }
}

/// One side after the other, in rounds. What is told is the round in the middle, by CPU.
fn delivered(sides: &Sides, options: &Options, name: &str, load: &Load) -> Result<Vec<Row>> {
    let mut rounds = Vec::new();
    for round in 1..=options.rounds.max(1) {
        let mut found = Vec::new();
        for side in 0..2 {
            eprintln!("{name}: {}, round {round}", sides.names()[side]);
            let (_subject, running, _place) = start(sides, side, options, &[])?;
            found.push(listened(&running, load).with_context(|| name.to_owned())?);
        }
        rounds.push(found);
    }
    let ratio = |found: &Vec<Delivered>| found[0].cpu_per_event / found[1].cpu_per_event;
    rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let found = &rounds[rounds.len() / 2];
    let [a, b] = [&found[0], &found[1]];
    let cpu = ratio(found);
    let spread = format!("{:.2}–{:.2}", ratio(&rounds[0]), ratio(&rounds[rounds.len() - 1]));
    let p99 = a.percentile(0.99) / b.percentile(0.99);
    let both = |f: &dyn Fn(&Delivered) -> String| [f(a), f(b)];
    let micros = |seconds: f64| format!("{:.0} µs", seconds * 1e6);
    Ok(vec![
        figure(
            &format!("{name}: server CPU per event delivered"),
            both(&|found| format!("{:.2} µs", found.cpu_per_event * 1e6)),
            &format!("CPU ≤ 0.33, is {cpu:.2} ({spread})"),
            Some(cpu <= 0.33),
        ),
        figure(
            "  from acknowledgement to event, p99",
            both(&|found| micros(found.percentile(0.99))),
            &format!("≤ 1, is {p99:.2}"),
            Some(p99 <= 1.0),
        ),
        figure("  the same, p50", both(&|found| micros(found.percentile(0.5))), "", None),
        figure("  inserts a second", both(&|found| format!("{:.0}", found.inserts_per_second)), "", None),
    ])
}

/// Inserts at a given rate while listeners wait, each on a connection of its own.
fn listened(running: &Running, load: &Load) -> Result<Delivered> {
    let total = (load.rate * load.seconds) as usize;
    let began = Instant::now();
    // When a write was acknowledged, in nanoseconds since `began`; 0 while it is not.
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..total).map(|_| AtomicU64::new(0)).collect());
    let mut writer = running.connect()?;
    writer.run(DATABASE, doc! {"create": WATCHED})?;
    let mut listeners = Vec::new();
    for _ in 0..load.listeners {
        let mut link = running.connect()?;
        let cursor = open(&mut link, WATCHED)?;
        let acknowledged = acknowledged.clone();
        listeners.push(spawn(move || listen(&mut link, cursor, began, &acknowledged))?);
    }
    let before = running.cpu()?;
    let first = Instant::now();
    for number in (0..load.rate * load.seconds).step_by(load.batch as usize) {
        let due = first + Duration::from_secs_f64(number as f64 / load.rate as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let documents: Vec<Document> = (number..number + load.batch)
            .map(|id| doc! {"_id": id as i32, "text": format!("{:016x}", mix(id)), "n": id as i64})
            .collect();
        let insert = doc! {"insert": WATCHED, "documents": documents, "writeConcern": {"w": "majority"}};
        writer.run(DATABASE, insert)?;
        let now = began.elapsed().as_nanos() as u64;
        for id in number..number + load.batch {
            acknowledged[id as usize].store(now, Ordering::Release);
        }
    }
    let took = first.elapsed();
    let mut delays = Vec::new();
    for listener in listeners {
        delays.extend(listener.join().expect("a listener does not panic")?);
    }
    let cpu = running.cpu()? - before;
    ensure!(delays.len() == total * load.listeners, "{} of {} events", delays.len(), total * load.listeners);
    delays.sort_unstable();
    Ok(Delivered {
        cpu_per_event: cpu.as_secs_f64() / delays.len() as f64,
        delays,
        inserts_per_second: total as f64 / took.as_secs_f64(),
    })
}

/// Takes every event, each in its turn. One that comes before the writer has read the acknowledgement has no delay.
fn listen(
    link: &mut Link,
    cursor: i64,
    began: Instant,
    acknowledged: &[AtomicU64],
) -> Result<Vec<Duration>, Fault> {
    let mut delays = Vec::with_capacity(acknowledged.len());
    while delays.len() < acknowledged.len() {
        let reply =
            link.run(DATABASE, doc! {"getMore": cursor, "collection": WATCHED, "maxTimeMS": 10_000})?;
        let now = began.elapsed().as_nanos() as u64;
        let batch =
            reply.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("nextBatch"));
        for event in batch.and_then(RawValue::as_array).into_iter().flat_map(|batch| batch.iter()) {
            let event = event.as_document();
            let key = event.and_then(|event| event.get("documentKey")).and_then(RawValue::as_document);
            let id = key.and_then(|key| whole(key.get("_id"))).and_then(|id| usize::try_from(id).ok());
            // Events come in the order of their writes.
            if id != Some(delays.len()) {
                return Err(Fault::unexpected(format!("event {id:?} where {} was due", delays.len())));
            }
            let at = match acknowledged[delays.len()].load(Ordering::Acquire) {
                0 => now,
                at => at,
            };
            delays.push(Duration::from_nanos(now.saturating_sub(at)));
        }
    }
    Ok(delays)
}

fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    Ok(thread::Builder::new().stack_size(256 * 1024).spawn(run)?)
}

/// A thousand streams of one collection, each on a connection that awaits data: what they hold, and what they cost while nothing
/// happens.
fn idle(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let count = if options.quick { 200 } else { 1_000 };
    let mut held = Vec::new();
    for side in 0..2 {
        eprintln!("streams_memory: {}", sides.names()[side]);
        let (_subject, running, _place) = start(sides, side, options, &[])?;
        running.connect()?.run(DATABASE, doc! {"create": WATCHED})?;
        // What a first stream and a first connection make for all.
        let _first = waiting(&running, 10)?;
        thread::sleep(Duration::from_secs(2));
        let before = running.resident_bytes()?;
        let _waiting = waiting(&running, count)?;
        // The least of some looks: the allocator gives memory back a while later.
        let mut most = u64::MAX;
        let (cpu, switches) = (running.cpu()?, switches(&running)?);
        const LOOKS: u64 = 10;
        for _ in 0..LOOKS {
            thread::sleep(Duration::from_secs(1));
            most = most.min(running.resident_bytes()?);
        }
        let each = most.saturating_sub(before) as f64 / count as f64;
        let cpu = (running.cpu()? - cpu).as_secs_f64() * 1e3 / LOOKS as f64;
        // Threads that have ended took theirs along.
        let switched = self::switches(&running)?.saturating_sub(switches) / LOOKS;
        held.push((each, cpu, switched));
        running.kill();
    }
    let both = |f: &dyn Fn(&(f64, f64, u64)) -> String| [f(&held[0]), f(&held[1])];
    Ok(vec![
        figure(
            &format!("streams_memory: {count} idle streams, each"),
            both(&|(each, _, _)| format!("{:.1} KB", each / 1e3)),
            "≤ 100 KB",
            Some(held[0].0 <= IDLE_BYTES),
        ),
        figure("  CPU of all of them, a second", both(&|(_, cpu, _)| format!("{cpu:.2} ms")), "", None),
        figure(
            "  wake-ups of all threads, a second",
            both(&|(_, _, switched)| switched.to_string()),
            "",
            None,
        ),
    ])
}

/// Connections that await data of a stream for two minutes, or until their server ends.
fn waiting(running: &Running, count: usize) -> Result<Vec<JoinHandle<()>>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut link = running.connect()?;
        let hello = doc! {"hello": 1, "client": {"application": {"name": "idle"}, "driver": {"name": "bench", "version": "1"}, "os": {"type": "Linux"}}};
        link.run("admin", hello)?;
        let cursor = open(&mut link, WATCHED)?;
        all.push(spawn(move || {
            // The server's end is the end of the wait.
            let _ = link.run(DATABASE, doc! {"getMore": cursor, "collection": WATCHED, "maxTimeMS": 120_000});
        })?);
    }
    Ok(all)
}

/// How often threads of the process have gone to sleep so far.
fn switches(running: &Running) -> Result<u64> {
    let mut total = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", running.pid()))? {
        // One that has ended meanwhile.
        let Ok(status) = std::fs::read_to_string(thread?.path().join("status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        total += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

/// Ten gigabytes are written over a few documents, with a log of 512 MB, while a stream is open that nobody reads: the disk stays
/// within what the log may have, and the stream is told that it has been left behind.
fn log_disk(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    const DOCUMENT: usize = 100_000;
    const DOCUMENTS: u64 = 200;
    const LOG_MB: u64 = 512;
    let total: u64 = if options.quick { 1 << 30 } else { 10 << 30 };
    let mut found = Vec::new();
    for side in 0..2 {
        eprintln!("log_disk: {}", sides.names()[side]);
        let (log, mongod_log) = (format!("{LOG_MB}MB"), LOG_MB.to_string());
        let arguments = match sides.kind(side) {
            Kind::Kilim => ["--change-log-size", &log],
            Kind::Mongod => ["--oplogSize", &mongod_log],
        };
        let (subject, running, _place) = start(sides, side, options, &arguments)?;
        let data = subject.data.clone();
        let mut link = running.connect()?;
        link.run(DATABASE, doc! {"create": WATCHED})?;
        let slow = open(&mut link, WATCHED)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let most = Arc::new(AtomicUsize::new(0));
        let looking = {
            let (is_over, most) = (is_over.clone(), most.clone());
            spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let now = disk_bytes(&data).unwrap_or(0);
                    most.fetch_max(now as usize, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(500));
                }
            })?
        };
        let (mut written, mut round) = (0, 0u64);
        let began = Instant::now();
        while written < total {
            let updates: Vec<Document> = (0..10)
                .map(|at| {
                    let number = round * 10 + at;
                    let id = (number % DOCUMENTS) as i32;
                    doc! {"q": {"_id": id}, "u": {"text": noise(number, DOCUMENT)}, "upsert": true}
                })
                .collect();
            let update = doc! {"update": WATCHED, "updates": updates, "writeConcern": {"w": "majority"}};
            link.run(DATABASE, update)?;
            (written, round) = (written + 10 * DOCUMENT as u64, round + 1);
        }
        let took = began.elapsed();
        is_over.store(true, Ordering::Relaxed);
        looking.join().expect("a look does not panic");
        let more = doc! {"getMore": slow, "collection": WATCHED};
        let told = match link.run(DATABASE, more) {
            Ok(_) => "reads on".to_owned(),
            Err(Fault::Refused(failure)) => format!("error {}", failure.code),
            Err(error) => return Err(error.into()),
        };
        found.push((most.load(Ordering::Relaxed) as u64, written as f64 / took.as_secs_f64(), told));
    }
    let both = |f: &dyn Fn(&(u64, f64, String)) -> String| [f(&found[0]), f(&found[1])];
    // Beside the log: the documents, the journal, and what the next checkpoint gives back.
    let bound = 3 * LOG_MB * 1_000_000;
    Ok(vec![
        figure(
            &format!("log_disk: {} written, log of {LOG_MB} MB: most disk", bytes(total)),
            both(&|(most, _, _)| bytes(*most)),
            &format!("≤ {}", bytes(bound)),
            Some(found[0].0 <= bound),
        ),
        figure("  MB written a second", both(&|(_, rate, _)| format!("{:.0}", rate / 1e6)), "", None),
        figure("  a stream that was never read", both(&|(_, _, told)| told.clone()), "", None),
    ])
}

/// Text that does not compress.
fn noise(number: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    let mut at = number << 20;
    while text.len() < length {
        text.extend(mix(at).to_le_bytes().map(|byte| char::from(b'0' + byte % 75)));
        at += 1;
    }
    text
}
