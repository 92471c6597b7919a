//! Dump and restore beside a copy by a driver: from Kilim to files and into another Kilim, against reading all of a
//! mongod's documents and inserting them into another mongod.
//!
//! The copy is the cheapest that a driver can make: it reads a batch, and inserts the bytes as they came. What is
//! counted is the time that passes, and the processor's in both servers and in whoever carries the documents.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kilim_bson::{RawDocument, RawValue, doc};
use kilim_testkit::link::{Link, whole};
use kilim_testkit::subject::Running;

use crate::data::{DATABASE, DOCS, create_index, fill};
use crate::report::{Row, figure};
use crate::{Options, Sides};

const NAME: &str = "dump_restore";
/// Documents of one insert, as many as drivers and tools commonly send.
const BATCH: usize = 1000;

pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    // A million documents four times take minutes: only where they are asked for.
    if !options.only.iter().any(|only| only == NAME) {
        return Ok(Vec::new());
    }
    let documents = if options.quick { 100_000 } else { 1_000_000 };
    let place = tempfile::Builder::new().prefix("kilim-transfer-").tempdir_in(&options.data)?;
    let [source, other] = [Pair::start(sides, 0, place.path())?, Pair::start(sides, 1, place.path())?];
    for from in [&source.from, &other.from] {
        eprintln!("{NAME}: {documents} documents");
        let mut link = from.connect()?;
        fill(&mut link, DOCS, 0, documents, documents)?;
        create_index(&mut link, DOCS, "k")?;
    }
    let (mut dumped, mut restored, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        eprintln!("{NAME}: round {}", round + 1);
        let folder = place.path().join("dump");
        let tool = |verb: &[&str], server: &Running| -> Result<()> {
            let status = Command::new(sides.binary(0))
                .args([verb[0], "--uri", &format!("mongodb://{}", server.address)])
                .args(&verb[1..])
                .arg(&folder)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            ensure!(status.success(), "kilim {} failed", verb[0]);
            Ok(())
        };
        let by_tools = || -> Result<[Cost; 2]> {
            let dump = source.measure(|| tool(&["dump", "--db", DATABASE, "--out"], &source.from))?;
            let restore = source.measure(|| tool(&["restore", "--drop"], &source.to))?;
            Ok([dump, restore])
        };
        let by_driver = || other.measure(|| copy(&other.from, &other.to));
        let ([dump, restore], driver) = if round % 2 == 0 {
            let tools = by_tools()?;
            (tools, by_driver()?)
        } else {
            let driver = by_driver()?;
            (by_tools()?, driver)
        };
        for pair in [&source, &other] {
            let reply = pair.to.connect()?.run(DATABASE, doc! {"count": DOCS})?;
            ensure!(whole(reply.get("n")) == Some(i64::from(documents)), "documents are missing");
        }
        std::fs::remove_dir_all(&folder)?;
        dumped.push(dump);
        restored.push(restore);
        copied.push(driver);
    }
    let [dump, restore, copy] = [dumped, restored, copied].map(median);
    let sum = Cost { elapsed: dump.elapsed + restore.elapsed, cpu: dump.cpu + restore.cpu };
    let row = |name: &str, cost: Cost, judged: bool| {
        let ratio = cost.elapsed.as_secs_f64() / copy.elapsed.as_secs_f64();
        let target = format!("time {ratio:.2}×, CPU {:.2}×", cost.cpu.as_secs_f64() / copy.cpu.as_secs_f64());
        figure(name, [cost.to_string(), copy.to_string()], &target, judged.then_some(ratio <= 1.0))
    };
    Ok(vec![
        row(&format!("dump of {documents} documents / driver's copy"), dump, true),
        row("  restore / driver's copy", restore, true),
        row("  both / driver's copy", sum, false),
    ])
}

/// A server that has the documents and one that gets them.
struct Pair {
    from: Running,
    to: Running,
}

impl Pair {
    fn start(sides: &Sides, side: usize, place: &Path) -> Result<Pair> {
        let start = |name: &str| {
            let place = place.join(name);
            std::fs::create_dir_all(&place)?;
            sides.subject(side, &place)?.start()
        };
        Ok(Pair { from: start("from")?, to: start("to")? })
    }

    fn cpu(&self) -> Result<Duration> {
        Ok(self.from.cpu()? + self.to.cpu()? + own_cpu())
    }

    fn measure(&self, work: impl FnOnce() -> Result<()>) -> Result<Cost> {
        let (start, cpu) = (Instant::now(), self.cpu()?);
        work()?;
        Ok(Cost { elapsed: start.elapsed(), cpu: self.cpu()? - cpu })
    }
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    elapsed: Duration,
    cpu: Duration,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} s, CPU {:.1} s", self.elapsed.as_secs_f64(), self.cpu.as_secs_f64())
    }
}

fn median(mut costs: Vec<Cost>) -> Cost {
    let middle = costs.len() / 2;
    costs.sort_unstable_by_key(|cost| cost.cpu);
    let cpu = costs[middle].cpu;
    costs.sort_unstable_by_key(|cost| cost.elapsed);
    Cost { elapsed: costs[middle].elapsed, cpu }
}

/// What this process and the tools that it ran have used so far.
fn own_cpu() -> Duration {
    let used = |whose| {
        // SAFETY: all zeros are a `rusage`, and the call writes to it while it is there.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(whose, &raw mut usage), 0, "both processes can be asked for");
            usage
        };
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    used(libc::RUSAGE_SELF) + used(libc::RUSAGE_CHILDREN)
}

/// All documents of one server into another, and its index.
fn copy(from: &Running, to: &Running) -> Result<()> {
    let (mut from, mut to) = (from.connect()?, to.connect()?);
    let _ = to.run(DATABASE, doc! {"drop": DOCS});
    let mut reply = from.run(DATABASE, doc! {"find": DOCS, "batchSize": BATCH as i32})?;
    let mut name = "firstBatch";
    loop {
        let cursor = reply.get("cursor").and_then(RawValue::as_document).context("no cursor")?;
        let batch = cursor.get(name).and_then(RawValue::as_array).context("no batch")?;
        let documents: Vec<RawDocument<'_>> = batch.iter().filter_map(RawValue::as_document).collect();
        insert(&mut to, documents)?;
        let id = whole(cursor.get("id")).context("no cursor")?;
        if id == 0 {
            break;
        }
        reply = from.run(DATABASE, doc! {"getMore": id, "collection": DOCS})?;
        name = "nextBatch";
    }
    create_index(&mut to, DOCS, "k")?;
    Ok(())
}

fn insert(to: &mut Link, documents: Vec<RawDocument<'_>>) -> Result<()> {
    for batch in documents.chunks(BATCH) {
        let command = doc! {"insert": DOCS, "ordered": false};
        let reply = to.reply_to_many(DATABASE, command.as_raw(), "documents", batch.to_vec())?;
        ensure!(whole(reply.get("n")) == Some(batch.len() as i64), "an insert failed");
    }
    Ok(())
}
