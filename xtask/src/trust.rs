//! `cargo xtask trust`: the storage engine under attack for as long as one likes.
//!
//! Runs the simulation and the damage programme of `kilim-storage` with optimisations, from a seed of choice, and
//! prints how many lives and cases there were. A seed that fails is named, and becomes a test once it is fixed. With
//! `--cuts N`, only crashes of a whole engine on a simulated disk, until there were so many.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::arguments::Arguments;
use crate::workspace::{self, captured};

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let cases: u64 = arguments.value("--cases")?.unwrap_or(10_000);
    let seed: u64 = arguments.value("--seed")?.unwrap_or(1);
    let schedules: u64 = arguments.value("--schedules")?.unwrap_or(20_000);
    let cuts: Option<u64> = arguments.value("--cuts")?;
    arguments.finish()?;
    if let Some(cuts) = cuts {
        return crashes_of_an_engine(cuts, seed);
    }
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", "kilim-storage", "--lib", "--"]);
    command.args(["simulation::trust_", "--ignored", "--nocapture", "--test-threads", "1"]);
    for (variable, value) in
        [("KILIM_TRUST_SECONDS", seconds), ("KILIM_TRUST_CASES", cases), ("KILIM_TRUST_SEED", seed)]
    {
        command.env(variable, value.to_string());
    }
    ensure!(command.status()?.success(), "the store broke a promise");
    let mut models = models();
    models.arg("--release").env("KILIM_MODEL_SCHEDULES", schedules.to_string());
    println!(
        "{schedules} schedules of each model\n{}",
        captured(&mut models).context("a schedule broke a promise")?
    );
    Ok(())
}

fn crashes_of_an_engine(cuts: u64, seed: u64) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", "kilim-engine", "--test", "engine", "--"]);
    command.args(["power::", "--nocapture"]);
    command.env("KILIM_CUTS", cuts.to_string()).env("KILIM_SEED", seed.to_string());
    ensure!(command.status()?.success(), "the database broke a promise");
    Ok(())
}

/// Some schedules of each model, as a part of `cargo xtask test`.
pub fn check_schedules() -> Result<String> {
    let said = captured(&mut models()).context("a schedule broke a promise")?;
    let passed =
        said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(" passed").next());
    let passed = passed.context("the models do not say how many there are")?;
    ensure!(passed != "0", "no model was run");
    Ok(format!("{passed} models"))
}

/// The commit queue and the intents under shuttle, whose locks only this feature brings.
fn models() -> Command {
    let mut command = workspace::cargo();
    command.args([
        "test",
        "--quiet",
        "--package",
        "kilim-storage",
        "--features",
        "model",
        "--lib",
        "model::",
    ]);
    command
}
