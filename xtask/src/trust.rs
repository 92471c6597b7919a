//! `cargo xtask trust`: the storage engine under attack for as long as one likes.
//!
//! Runs the simulation and the damage programme of `kilim-storage` with optimisations, from a seed of choice, and
//! prints how many lives and cases there were. A seed that fails is named, and becomes a test once it is fixed.

use anyhow::{Result, ensure};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let cases: u64 = arguments.value("--cases")?.unwrap_or(10_000);
    let seed: u64 = arguments.value("--seed")?.unwrap_or(1);
    arguments.finish()?;
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", "kilim-storage", "--lib", "--"]);
    command.args(["simulation::trust_", "--ignored", "--nocapture", "--test-threads", "1"]);
    for (variable, value) in
        [("KILIM_TRUST_SECONDS", seconds), ("KILIM_TRUST_CASES", cases), ("KILIM_TRUST_SEED", seed)]
    {
        command.env(variable, value.to_string());
    }
    ensure!(command.status()?.success(), "the store broke a promise");
    Ok(())
}
