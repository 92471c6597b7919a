//! `cargo xtask crash`: the crash and history runs of the test kit, on a binary built here.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::arguments::Arguments;
use crate::workspace::{self, captured};

/// Short enough for every test run.
const SHORT: &[&[&str]] = &[
    &["kill", "--rounds", "10", "--life-ms", "800"],
    &["power", "--operations", "20", "--checkpoint", "4096", "--stride", "2"],
    &["power", "--operations", "200"],
    &["full-disk"],
    &["full-disk-by-surprise"],
    &["failed-sync"],
    &["bank", "--transactions", "4000"],
    &["list-append", "--transactions", "4000"],
    &["maintained", "--transactions", "2000"],
    &["unique-key", "--transactions", "4000"],
];

/// For the night. Large documents make the store flush, compact and change journals within the run.
const LONG: &[&[&str]] = &[
    &["kill", "--rounds", "300", "--life-ms", "1000"],
    &["kill", "--rounds", "40", "--life-ms", "4000", "--pad", "100000"],
    &["power", "--operations", "1000"],
    &["power", "--operations", "600", "--pad", "150000", "--stride", "3"],
    &["power", "--operations", "300", "--checkpoint", "4096", "--count", "5000"],
    &["full-disk"],
    &["full-disk-by-surprise"],
    &["failed-sync"],
    &["bank", "--transactions", "100000", "--kills", "100"],
    &["list-append", "--transactions", "100000", "--kills", "100"],
    &["maintained", "--transactions", "10000", "--kills", "100"],
    &["unique-key", "--transactions", "100000", "--kills", "100"],
];

/// Without arguments the short list, with `--long` the long one; anything else is one run of one's own.
pub fn run(arguments: Arguments) -> Result<()> {
    let binary = workspace::build_kilim()?;
    let given = arguments.rest();
    match given.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => perform(&binary, SHORT, |said| print!("{said}")),
        ["--long"] => perform(&binary, LONG, |said| print!("{said}")),
        ref run => {
            let status = command(&binary, run).status()?;
            ensure!(status.success(), "the crash run failed");
            Ok(())
        }
    }
}

/// A short round of each.
pub fn check(binary: &Path) -> Result<String> {
    perform(binary, SHORT, |_| ())?;
    Ok(format!("{} runs", SHORT.len()))
}

fn perform(binary: &Path, runs: &[&[&str]], report: impl Fn(&str)) -> Result<()> {
    for run in runs {
        let said = captured(&mut command(binary, run))
            .with_context(|| format!("cargo xtask crash {}", run.join(" ")))?;
        report(&said);
    }
    Ok(())
}

fn command(binary: &Path, run: &[&str]) -> std::process::Command {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "kilim-testkit", "--bin", "crash", "--"]).args(run);
    command.arg("--kilim").arg(binary);
    command
}
