//! `cargo xtask histories` and `cargo xtask why`: declared patterns under many random histories, and under the
//! workloads that hand-written recipes fail. Built with optimisations, since there are many.

use anyhow::{Result, ensure};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let count: u64 = arguments.value("--count")?.unwrap_or(10_000);
    let seed: u64 = arguments.value("--seed")?.unwrap_or(1);
    arguments.finish()?;
    test("pattern_history::", &[("KILIM_HISTORIES", count), ("KILIM_SEED", seed)])
}

pub fn why(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    test("pattern_why::", &[("KILIM_WHY", 1)])
}

fn test(name: &str, environment: &[(&str, u64)]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", "kilim-engine", "--test", "engine", "--"]);
    command.args([name, "--nocapture", "--test-threads", "1"]);
    for (variable, value) in environment {
        command.env(variable, value.to_string());
    }
    ensure!(command.status()?.success(), "something was not true");
    Ok(())
}
