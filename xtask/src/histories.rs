//! `cargo xtask histories` and `cargo xtask why`: declared patterns or change streams under many random histories, and
//! patterns under the workloads that hand-written recipes fail. Built with optimisations, since there are many.

use anyhow::{Result, ensure};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let count: u64 = arguments.value("--count")?.unwrap_or(10_000);
    let seed: u64 = arguments.value("--seed")?.unwrap_or(1);
    let streams = arguments.flag("--streams");
    arguments.finish()?;
    let environment = [("KILIM_HISTORIES", count), ("KILIM_SEED", seed)];
    match streams {
        false => test(ENGINE, "pattern_history::", &environment),
        true => test(STREAMS, "final_state", &environment),
    }
}

/// The package and the name of the tests.
const ENGINE: [&str; 2] = ["kilim-engine", "engine"];
const STREAMS: [&str; 2] = ["kilim-commands", "change_streams"];

pub fn why(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    test(ENGINE, "pattern_why::", &[("KILIM_WHY", 1)])
}

fn test([package, tests]: [&str; 2], name: &str, environment: &[(&str, u64)]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", package, "--test", tests, "--"]);
    command.args([name, "--nocapture", "--test-threads", "1"]);
    for (variable, value) in environment {
        command.env(variable, value.to_string());
    }
    ensure!(command.status()?.success(), "something was not true");
    Ok(())
}
