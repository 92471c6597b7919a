//! `cargo xtask test`: everything that CI runs, in order, cheap things first; stops at the first failure.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::arguments::Arguments;
use crate::workspace::{self, captured};
use crate::{arrows, check, clients, compat, crash, links, packages, records, spec, transfer};

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    let started = Instant::now();
    step("formatting", || check::formatting().map(|()| String::new()))?;
    step("arrows between crates", || arrows::check().map(|()| String::new()))?;
    step("records in one module", || records::check().map(|()| String::new()))?;
    step("links in the docs", || links::check().map(|()| String::new()))?;
    step("COMPAT.md is current", || compat::check().map(|()| String::new()))?;
    step("clippy", || check::clippy().map(|()| String::new()))?;
    step("unit and property tests", unit)?;
    let mut binary = PathBuf::new();
    step("build kilim", || {
        binary = workspace::build_kilim()?;
        Ok(String::new())
    })?;
    step("specs", || spec::check_on_kilim(&binary))?;
    step("fetch clients", || {
        packages::python()?;
        packages::node()?;
        Ok(String::new())
    })?;
    step("insert, kill -9, recover, find", || clients::kill_slice(&binary))?;
    step("real clients", || clients::check(&binary))?;
    step("dumps to mongod and back", || transfer::check(&binary))?;
    step("crashes and histories", || crash::check(&binary))?;
    println!("all passed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs one step and prints how long it took; `work` gives a note, perhaps empty.
fn step(name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
    print!("{name:<32}");
    std::io::stdout().flush()?;
    let started = Instant::now();
    let outcome = work();
    let seconds = started.elapsed().as_secs_f64();
    match outcome {
        Ok(note) => {
            println!("{seconds:>7.1} s   {note}");
            Ok(())
        }
        Err(error) => {
            println!("{seconds:>7.1} s   FAILED");
            Err(anyhow!("{error:#}\n\ncargo xtask test stopped at: {name}"))
        }
    }
}

/// nextest where it is installed, because it is quicker and its reports are shorter.
fn unit() -> Result<String> {
    let nextest =
        workspace::cargo().args(["nextest", "--version"]).output().is_ok_and(|it| it.status.success());
    let mut command = workspace::cargo();
    if nextest {
        command.args(["nextest", "run", "--workspace", "--cargo-quiet", "--status-level", "fail"]);
        command.args(["--final-status-level", "fail", "--no-fail-fast"]);
    } else {
        command.args(["test", "--quiet", "--workspace"]);
    }
    captured(&mut command).context("tests failed")?;
    Ok(if nextest { "nextest".to_owned() } else { "cargo test".to_owned() })
}
