//! What only shows over time or over size: inserts into trees larger than the cache, overwriting for minutes with and
//! without a snapshot that is held, a queue through which a million documents pass, starts on a gigabyte.
//!
//! Each takes minutes, so each runs only where it is named by `--only`. Both sides work in turns.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kilim_bson::{Document, RawValue, doc};
use kilim_testkit::link::{Link, whole};
use kilim_testkit::subject::{Kind, Running, Subject, disk_bytes};

use crate::data::{DATABASE, DOCS, create_index, document, fill, mix};
use crate::load::{Measure, measure};
use crate::report::{Row, bytes, compare, figure};
use crate::workload::Target;
use crate::{Options, Sides, queues};

pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let named = |name: &str| options.only.iter().any(|only| only == name);
    let mut rows = Vec::new();
    if named("random_inserts") {
        rows.extend(random_inserts(sides, options)?);
    }
    for (name, held) in [("overwrites", false), ("snapshot_overwrites", true)] {
        if named(name) {
            rows.extend(overwrites(sides, options, name, held)?);
        }
    }
    for by in ["_id", "at"] {
        if named("queue_million") {
            rows.extend(queue_million(sides, options, by)?);
        }
    }
    if named("restart") {
        rows.extend(restart(sides, options)?);
    }
    Ok(rows)
}

/// A side's server, with a cache of this size as far as it can be told.
fn start(sides: &Sides, side: usize, place: &Path, cache_bytes: u64) -> Result<(Subject, Running)> {
    let mut subject = sides.subject(side, place)?;
    subject.arguments = match subject.kind {
        Kind::Kilim => vec!["--cache-bytes".into(), cache_bytes.to_string()],
        // It takes no less than a quarter of a gigabyte.
        Kind::Mongod => {
            let gigabytes = (cache_bytes as f64 / (1u64 << 30) as f64).max(0.25);
            vec!["--wiredTigerCacheSizeGB".into(), gigabytes.to_string()]
        }
    };
    let running = subject.start()?;
    Ok((subject, running))
}

/// What the process has had written to its disk, by the kernel's account.
fn written_bytes(running: &Running) -> Result<u64> {
    number_of(&format!("/proc/{}/io", running.pid()), "write_bytes:")
}

/// The most memory that the process has occupied so far.
fn peak_bytes(running: &Running) -> Result<u64> {
    Ok(number_of(&format!("/proc/{}/status", running.pid()), "VmHWM:")? * 1024)
}

fn number_of(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Half a kilobyte with three fields that an index scatters.
fn scattered_document(id: u32) -> Document {
    let random = |salt: u64| mix(u64::from(id) << 2 | salt) as i64;
    let text: String =
        (0..24).map(|part| format!("{:016x} ", mix(u64::from(id) * 64 + part) >> 12)).collect();
    doc! {"_id": id as i32, "a": random(1), "b": random(2), "c": random(3), "text": &text[..400]}
}

/// Inserts with three random keys each into a collection that becomes four times as large as the cache.
fn random_inserts(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    const CACHE: u64 = 64 << 20;
    const CHUNK: u32 = 20_000;
    let chunks = if options.quick { 6 } else { 30 };
    let place = tempfile::Builder::new().prefix("kilim-random-").tempdir_in(&options.data)?;
    let servers = [start(sides, 0, place.path(), CACHE)?, start(sides, 1, place.path(), CACHE)?];
    let mut links: Vec<Link> = Vec::new();
    for (_, running) in &servers {
        let mut link = running.connect()?;
        for field in ["a", "b", "c"] {
            create_index(&mut link, "scattered", field)?;
        }
        links.push(link);
    }
    // Time, processor's time and bytes written, of the first half and of the second.
    let mut sums = [[[0.0; 3]; 2]; 2];
    let mut inserted_bytes = 0u64;
    for chunk in 0..chunks {
        eprintln!("random_inserts: {} of {chunks}", chunk + 1);
        let documents: Vec<Document> = (chunk * CHUNK..(chunk + 1) * CHUNK).map(scattered_document).collect();
        inserted_bytes += documents.iter().map(|document| document.as_bytes().len() as u64).sum::<u64>();
        for turn in 0..2 {
            let side = (chunk as usize + turn) % 2;
            let running = &servers[side].1;
            let before = (Instant::now(), running.cpu()?, written_bytes(running)?);
            for batch in documents.chunks(1000) {
                let insert = doc! {"insert": "scattered", "documents": batch.to_vec(), "ordered": false,
                "writeConcern": {"w": 1, "j": true}};
                links[side].run(DATABASE, insert)?;
            }
            let sum = &mut sums[side][usize::from(chunk >= chunks / 2)];
            sum[0] += before.0.elapsed().as_secs_f64();
            sum[1] += (running.cpu()? - before.1).as_secs_f64();
            sum[2] += (written_bytes(running)? - before.2) as f64;
        }
    }
    let total = f64::from(chunks * CHUNK);
    let all = |side: usize, what: usize| sums[side][0][what] + sums[side][1][what];
    let ratio = |what: usize| all(0, what) / all(1, what);
    let second = sums[1][1][0] / sums[0][1][0];
    let both = |f: &dyn Fn(usize) -> String| [f(0), f(1)];
    Ok(vec![
        figure(
            "random inserts, documents/s",
            both(&|side| format!("{:.0}", total / all(side, 0))),
            &format!("rate ≥ 0.9, is {:.2}; second half {second:.2}", 1.0 / ratio(0)),
            Some(1.0 / ratio(0) >= 0.9),
        ),
        figure(
            "  CPU µs/document",
            both(&|side| format!("{:.1}", all(side, 1) * 1e6 / total)),
            &format!("{:.2}", ratio(1)),
            None,
        ),
        figure(
            "  bytes written per byte",
            both(&|side| format!("{:.1}", all(side, 2) / inserted_bytes as f64)),
            &format!("{:.2}", ratio(2)),
            None,
        ),
        told("  most memory", &servers, |_, running| peak_bytes(running))?,
        told("  disk", &servers, |subject, _| Ok(disk_bytes(&subject.data)?))?,
    ])
}

fn told(
    name: &str,
    servers: &[(Subject, Running); 2],
    of: impl Fn(&Subject, &Running) -> Result<u64>,
) -> Result<Row> {
    let [a, b] = [of(&servers[0].0, &servers[0].1)?, of(&servers[1].0, &servers[1].1)?];
    Ok(figure(name, [a, b].map(bytes), &format!("{:.2}", a as f64 / b as f64), None))
}

const OVERWRITTEN: u32 = 100_000;

/// Documents are replaced at random for minutes; then nine of ten are deleted. With `held`, a cursor that has read one
/// document stays open meanwhile.
fn overwrites(sides: &Sides, options: &Options, name: &str, held: bool) -> Result<Vec<Row>> {
    const CACHE: u64 = 256 << 20;
    let place = tempfile::Builder::new().prefix("kilim-over-").tempdir_in(&options.data)?;
    let servers = [start(sides, 0, place.path(), CACHE)?, start(sides, 1, place.path(), CACHE)?];
    let live_bytes = (0..1000).map(|id| document(id, OVERWRITTEN).as_bytes().len() as u64).sum::<u64>()
        * u64::from(OVERWRITTEN / 1000);
    let mut links: Vec<Link> = Vec::new();
    let mut cursors = Vec::new();
    for (_, running) in &servers {
        let mut link = running.connect()?;
        fill(&mut link, DOCS, 0, OVERWRITTEN, OVERWRITTEN)?;
        create_index(&mut link, DOCS, "k")?;
        if held {
            let find = doc! {"find": DOCS, "filter": {}, "batchSize": 1, "noCursorTimeout": true};
            let reply = link.run(DATABASE, find)?;
            let cursor = reply.get("cursor").and_then(RawValue::as_document).and_then(|c| whole(c.get("id")));
            cursors.push(cursor.context("no cursor")?);
        }
        links.push(link);
    }
    let end = Instant::now() + Duration::from_secs(u64::from(options.minutes) * 60);
    let (mut most, mut replaced, mut round) = ([0u64; 2], 0u64, 0u64);
    let mut told_at = Instant::now();
    while Instant::now() < end {
        for (side, link) in links.iter_mut().enumerate() {
            let updates: Vec<Document> = (0..500u64)
                .map(|at| {
                    let random = mix(round * 500 + at);
                    let id = (random % u64::from(OVERWRITTEN)) as u32;
                    // Another text of the same length, and another key in the index.
                    let mut new = document((random >> 32) as u32 % OVERWRITTEN, OVERWRITTEN);
                    new = new.iter().filter(|(name, _)| *name != "_id").fold(
                        doc! {"_id": id as i32},
                        |mut new, (name, value)| {
                            new.push(name, value.to_value());
                            new
                        },
                    );
                    doc! {"q": {"_id": id as i32}, "u": new}
                })
                .collect();
            link.run(
                DATABASE,
                doc! {"update": DOCS, "updates": updates, "writeConcern": {"w": 1, "j": true}},
            )?;
            if round % 8 == 0 {
                most[side] = most[side].max(disk_bytes(&servers[side].0.data)?);
            }
        }
        round += 1;
        replaced += 500;
        if told_at.elapsed() > Duration::from_secs(60) {
            told_at = Instant::now();
            let now = [disk_bytes(&servers[0].0.data)?, disk_bytes(&servers[1].0.data)?].map(bytes);
            eprintln!("{name}: {replaced} replaced, disk {} / {}", now[0], now[1]);
        }
    }
    let title = format!("{name}, {} minutes, {replaced} replaced: ", options.minutes);
    let over = |sizes: [u64; 2], live: u64| sizes.map(|size| format!("{:.2}", size as f64 / live as f64));
    let reached = (!held).then_some(most[0] <= 3 * live_bytes);
    let mut rows = vec![
        figure(&(title + "most disk / live data"), over(most, live_bytes), "≤ 3", reached),
        told("  most memory", &servers, |_, running| peak_bytes(running))?,
    ];
    let sizes =
        || -> Result<[u64; 2]> { Ok([disk_bytes(&servers[0].0.data)?, disk_bytes(&servers[1].0.data)?]) };
    if held {
        for (link, cursor) in links.iter_mut().zip(&cursors) {
            link.run(DATABASE, doc! {"killCursors": DOCS, "cursors": [*cursor]})?;
        }
        thread::sleep(Duration::from_secs(60));
        rows.push(figure("  a minute after its end", over(sizes()?, live_bytes), "", None));
        return Ok(rows);
    }
    for link in &mut links {
        let all = doc! {"q": {"_id": {"$gte": OVERWRITTEN as i32 / 10}}, "limit": 0};
        link.run(DATABASE, doc! {"delete": DOCS, "deletes": [all]})?;
    }
    thread::sleep(Duration::from_secs(60));
    let after = sizes()?;
    let reached = after[0] <= 3 * live_bytes / 10;
    let row = "  a minute after deleting nine of ten: disk / live data";
    rows.push(figure(row, over(after, live_bytes / 10), "≤ 3", Some(reached)));
    Ok(rows)
}

/// A queue of a thousand documents, measured after each quarter of a million that have passed.
fn queue_million(sides: &Sides, options: &Options, by: &'static str) -> Result<Vec<Row>> {
    let quarter = if options.quick { 25_000 } else { 250_000 };
    let place = tempfile::Builder::new().prefix("kilim-queue-").tempdir_in(&options.data)?;
    let servers = [sides.subject(0, place.path())?.start()?, sides.subject(1, place.path())?.start()?];
    let workload = queues::long(by);
    for running in &servers {
        create_index(&mut running.connect()?, workload.name, "at")?;
    }
    let mut rows = Vec::new();
    for passed in (1..=4).map(|quarters| quarters * quarter) {
        eprintln!("queue_million by {by}: {passed}");
        for running in &servers {
            queues::let_pass(&mut running.connect()?, workload.name, passed - quarter, passed)?;
        }
        let mut sums = [Measure::default(), Measure::default()];
        let mut pairs = Vec::new();
        for round in 0..options.rounds {
            let mut cpu = [0.0; 2];
            for turn in 0..2 {
                let side = (round + turn) % 2;
                // Ids behind those that passed, apart for every measurement.
                let turn = (passed / quarter) as usize * 16 + round;
                let measured = measure(&servers[side], &workload, turn, workload.operations)?;
                cpu[side] = measured.cpu_per_operation();
                sums[side].add(&measured);
            }
            pairs.push(cpu);
        }
        rows.push(compare(format!("queue by {by} after {passed}"), &sums, &pairs, Target::CpuAtMost(0.5)));
    }
    Ok(rows)
}

/// Starts on a gigabyte: after clean stops, and after a kill in the middle of bulk inserts.
fn restart(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let documents = if options.quick { 100_000 } else { 1_000_000 };
    let mut clean = [Duration::ZERO; 2];
    let mut killed = [Duration::ZERO; 2];
    let mut disk = [0; 2];
    for side in 0..2 {
        eprintln!("restart: {}", sides.names()[side]);
        let place = tempfile::Builder::new().prefix("kilim-restart-").tempdir_in(&options.data)?;
        let subject = sides.subject(side, place.path())?;
        let mut running = subject.start()?;
        let mut link = running.connect()?;
        fill(&mut link, DOCS, 0, documents, documents)?;
        create_index(&mut link, DOCS, "k")?;
        let mut times = Vec::new();
        for _ in 0..options.rounds {
            running.stop()?;
            running = subject.start()?;
            times.push(running.ready_after);
        }
        disk[side] = disk_bytes(&subject.data)?;
        clean[side] = median(times);
        let mut times = Vec::new();
        for round in 0..options.rounds as u32 {
            let first = documents * (round + 2);
            fill(&mut running.connect()?, "more", first, first + 50_000, documents)?;
            running.kill();
            running = subject.start()?;
            times.push(running.ready_after);
            let reply = running.connect()?.run(DATABASE, doc! {"count": "more"})?;
            ensure!(whole(reply.get("n")) >= Some(49_000 * i64::from(round + 1)), "documents are missing");
        }
        killed[side] = median(times);
    }
    let milliseconds = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let reached = clean[0] < Duration::from_millis(100);
    Ok(vec![
        figure("start after a clean stop", clean.map(milliseconds), "< 100 ms", Some(reached)),
        figure("start after kill -9 in bulk inserts", killed.map(milliseconds), "", None),
        figure("disk", disk.map(bytes), &format!("{:.2}", disk[0] as f64 / disk[1] as f64), None),
    ])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
