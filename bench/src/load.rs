//! Runs a workload on one server and takes the time: wall clock, latencies, and the server's CPU.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kilim_bson::doc;
use kilim_testkit::link::{Fault, Link};
use kilim_testkit::subject::Running;

use crate::workload::{Leaves, Place, Workload};

/// A round ends here at the latest, with what it has done until then.
const ROUND_MAX: Duration = Duration::from_secs(20);
/// Work left behind by writes is waited for no longer than this.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// What was measured; several can be added up.
#[derive(Debug, Clone, Default)]
pub struct Measure {
    pub operations: usize,
    pub elapsed: Duration,
    pub cpu: Duration,
    latencies: Vec<Duration>,
}

impl Measure {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_per_operation(&self) -> f64 {
        self.cpu.as_secs_f64() / self.operations.max(1) as f64
    }

    /// `share` of the operations took at most this, in seconds.
    pub fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(0.0, Duration::as_secs_f64)
    }

    pub fn add(&mut self, other: &Measure) {
        self.operations += other.operations;
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
        self.latencies.extend(&other.latencies);
    }
}

pub fn measure(running: &Running, workload: &Workload, turn: usize, operations: usize) -> Result<Measure> {
    (workload.before)(&mut running.connect()?, turn)?;
    flush(running, workload)?;
    let mut links = Vec::new();
    for _ in 0..workload.connections {
        let mut link = running.connect()?;
        // A connection is set up, on the server's side too, once it has answered.
        link.run("admin", doc! {"ping": 1})?;
        links.push(link);
    }
    settle(running)?;
    let left = AtomicUsize::new(operations);
    let start = Barrier::new(workload.connections + 1);
    let (latencies, elapsed, before) = thread::scope(|scope| -> Result<_> {
        let workers: Vec<_> = links
            .iter_mut()
            .enumerate()
            .map(|(connection, link)| {
                let (left, start) = (&left, &start);
                let mut operation = (workload.make)(Place { connection, turn });
                scope.spawn(move || -> Result<Vec<Duration>, Fault> {
                    start.wait();
                    repeat(link, left, &mut operation)
                })
            })
            .collect();
        let before = running.cpu()?;
        start.wait();
        let began = Instant::now();
        let mut latencies = Vec::with_capacity(operations);
        for worker in workers {
            latencies.extend(worker.join().expect("a worker does not panic").context(workload.name)?);
        }
        Ok((latencies, began.elapsed(), before))
    })?;
    flush(running, workload)?;
    if workload.leaves != Leaves::Nothing {
        settle(running)?;
    }
    let cpu = running.cpu()? - before;
    Ok(Measure { operations: latencies.len(), elapsed, cpu, latencies })
}

/// Has everything that was written put into the files proper.
fn flush(running: &Running, workload: &Workload) -> Result<()> {
    if workload.leaves == Leaves::Most {
        running.connect()?.run("admin", doc! {"fsync": 1})?;
    }
    Ok(())
}

fn repeat(
    link: &mut Link,
    left: &AtomicUsize,
    operation: &mut crate::workload::Operation,
) -> Result<Vec<Duration>, Fault> {
    let mut latencies = Vec::new();
    let began = Instant::now();
    let mut last = began;
    while last - began < ROUND_MAX
        && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    {
        operation(link)?;
        let now = Instant::now();
        latencies.push(now - last);
        last = now;
    }
    Ok(latencies)
}

/// Waits until the server has nothing left to do, as far as its CPU shows.
fn settle(running: &Running) -> Result<()> {
    const STEP: Duration = Duration::from_millis(100);
    let began = Instant::now();
    let mut before = running.cpu()?;
    while began.elapsed() < SETTLE_MAX {
        thread::sleep(STEP);
        let now = running.cpu()?;
        if now - before < STEP / 20 {
            break;
        }
        before = now;
    }
    Ok(())
}
