//! `cargo xtask soak`: one server under mixed load, patterns, schema changes, held snapshots, change streams and hostile clients,
//! at a wish with kills (`--kill-every S`) and full disks (`--full-every S`), for as long as one likes; fails if it grows, or if what it stores is not true in the end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use kilim_testkit::soak::{self, Plan, Report};
use kilim_testkit::subject::{Kind, Subject};

use crate::arguments::Arguments;
use crate::workspace;

/// Small enough that both are full soon: what grows after that is neither the cache nor the change log.
const BOUNDS: [&str; 4] = ["--cache-bytes", "16MB", "--change-log-size", "16MB"];

/// In every test run.
const SHORT: Plan = Plan {
    time: Duration::from_secs(20),
    seed: 1,
    kill_every: Some(Duration::from_secs(8)),
    full_every: Some(Duration::from_secs(5)),
};

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(600);
    let seed = arguments.value("--seed")?.unwrap_or(1);
    let kill_every = arguments.value("--kill-every")?.map(Duration::from_secs);
    let full_every = arguments.value("--full-every")?.map(Duration::from_secs);
    let release = arguments.flag("--release");
    let given: Option<PathBuf> = arguments.value("--kilim")?;
    arguments.finish()?;
    let binary = match given {
        Some(binary) => binary,
        None if release => workspace::build_release()?,
        None => workspace::build_kilim()?,
    };
    let began = Instant::now();
    let report = soak(&binary, &Plan { time: Duration::from_secs(seconds), seed, kill_every, full_every })?;
    println!("{}\n{} in {:.0} s", report.samples, summary(&report), began.elapsed().as_secs_f64());
    report.samples.check()
}

/// A short form, as a part of `cargo xtask test`.
pub fn check(binary: &Path) -> Result<String> {
    let report = soak(binary, &SHORT)?;
    report.samples.check()?;
    Ok(summary(&report))
}

fn soak(binary: &Path, plan: &Plan) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let mut subject = Subject::new(Kind::Kilim, binary, &folder.path().join("data"))?;
    subject.arguments = BOUNDS.map(str::to_owned).to_vec();
    let outcome = soak::run(&subject, plan);
    if outcome.is_err() {
        // The data of a failed run is evidence.
        eprintln!("kept in {}", folder.keep().display());
    }
    outcome
}

fn summary(report: &Report) -> String {
    let Report { operations, kills, refused, .. } = report;
    format!(
        "{operations} operations, {kills} kills, {refused} writes refused by a full disk, all of it true and valid"
    )
}
