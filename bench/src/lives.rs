//! Starts and sizes: what is measured once a life instead of once an operation.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use kilim_bson::doc;
use kilim_testkit::subject::disk_bytes;

use crate::data::{DATABASE, DOCS, create_index, document, fill};
use crate::report::{Row, bytes, figure};
use crate::{Options, Sides};

const MILLION: u32 = 1_000_000;
/// Compaction and checkpoints end within this when nothing is written.
const QUIET: Duration = Duration::from_secs(60);

pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if options.wants("start_empty") {
        rows.push(start_empty(sides, options)?);
    }
    if options.wants("binary_size") {
        let [a, b] = [std::fs::metadata(sides.binary(0))?.len(), std::fs::metadata(sides.binary(1))?.len()];
        rows.push(figure("binary size", [a, b].map(bytes), "< 30 MB", Some(a < 30_000_000)));
    }
    if options.long {
        rows.extend(million(sides, options)?);
    }
    Ok(rows)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn start_empty(sides: &Sides, options: &Options) -> Result<Row> {
    eprintln!("start_empty");
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds {
        for (side, times) in times.iter_mut().enumerate() {
            let place = tempfile::tempdir_in(&options.data)?;
            let running = sides.subject(side, place.path())?.start()?;
            times.push(running.ready_after);
            running.kill();
        }
    }
    let median = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let reached = median[0] < Duration::from_millis(100);
    Ok(figure("start on an empty directory", median.map(milliseconds), "< 100 ms", Some(reached)))
}

/// A million documents: disk after a quiet minute, then a kill in the middle of writes, and the start.
fn million(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let (mut disk, mut data_only, mut start) = ([0; 2], [0; 2], [Duration::ZERO; 2]);
    for side in 0..2 {
        eprintln!("million documents, {}", sides.names()[side]);
        let place = tempfile::tempdir_in(&options.data)?;
        let subject = sides.subject(side, place.path())?;
        let running = subject.start()?;
        let mut link = running.connect()?;
        fill(&mut link, DOCS, 0, MILLION, MILLION)?;
        create_index(&mut link, DOCS, "k")?;
        thread::sleep(QUIET);
        disk[side] = disk_bytes(&subject.data)?;
        let stats = link.run(DATABASE, doc! {"collStats": DOCS})?;
        let size = |name: &str| kilim_testkit::link::whole(stats.get(name)).unwrap_or(0) as u64;
        data_only[side] = size("storageSize") + size("totalIndexSize");
        // Recovery has something to recover: writes since the last checkpoint or flush.
        for id in MILLION..MILLION + 2_000 {
            let insert =
                doc! {"insert": DOCS, "documents": [document(id, MILLION)], "writeConcern": {"w": 1}};
            link.run(DATABASE, insert)?;
        }
        running.kill();
        start[side] = subject.start()?.ready_after;
    }
    let ratio = |sizes: [u64; 2]| sizes[0] as f64 / sizes[1] as f64;
    let target = format!("≤ 1.0, is {:.2}", ratio(disk));
    let reached = start[0] < Duration::from_secs(1);
    Ok(vec![
        figure("disk, 1 M documents", disk.map(bytes), &target, Some(ratio(disk) <= 1.0)),
        figure(
            "  collection and indexes alone",
            data_only.map(bytes),
            &format!("{:.2}", ratio(data_only)),
            None,
        ),
        figure("start on 1 GB after kill -9", start.map(milliseconds), "< 1 s", Some(reached)),
    ])
}
