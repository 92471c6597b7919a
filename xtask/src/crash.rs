//! `cargo xtask crash`: the crash and history runs of the test kit, on a binary built here.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::arguments::Arguments;
use crate::workspace::{self, captured};

/// Short enough for every test run; `cargo xtask crash kill --rounds 300` is for the night.
const SHORT: &[&[&str]] = &[
    &["kill", "--rounds", "8", "--life-ms", "800"],
    &["power", "--operations", "300", "--stride", "4"],
    &["full-disk"],
    &["failed-sync"],
    &["bank", "--transactions", "2000"],
    &["list-append", "--transactions", "2000"],
    &["unique-key", "--transactions", "2000"],
];

pub fn run(arguments: Arguments) -> Result<()> {
    let binary = workspace::build_kilim()?;
    let given = arguments.rest();
    if given.is_empty() {
        println!("{}", check(&binary)?);
        return Ok(());
    }
    let status = command(&binary, &given.iter().map(String::as_str).collect::<Vec<_>>()).status()?;
    ensure!(status.success(), "the crash run failed");
    Ok(())
}

/// A short round of each.
pub fn check(binary: &Path) -> Result<String> {
    for run in SHORT {
        captured(&mut command(binary, run))
            .with_context(|| format!("cargo xtask crash {}", run.join(" ")))?;
    }
    Ok(format!("{} runs", SHORT.len()))
}

fn command(binary: &Path, run: &[&str]) -> std::process::Command {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "kilim-testkit", "--bin", "crash", "--"]).args(run);
    command.arg("--kilim").arg(binary);
    command
}
