//! `cargo xtask histories` and `cargo xtask why`: declared patterns, shapes or change streams under many random histories,
//! and patterns under the workloads that hand-written recipes fail. Built with optimisations, since there are many.

use anyhow::{Result, bail, ensure};

use crate::arguments::Arguments;
use crate::workspace;

/// What may be asked for: its name, and the package, the tests and the test that run its histories.
const KINDS: [(&str, [&str; 3]); 6] = [
    ("patterns", ["kilim-engine", "engine", "pattern_history::"]),
    ("buckets", ["kilim-engine", "engine", "pattern_bucket_history::"]),
    ("outliers", ["kilim-engine", "engine", "pattern_outlier_history::"]),
    ("versions", ["kilim-engine", "engine", "pattern_version_history::"]),
    ("series", ["kilim", "time_series", "measurements_are_what"]),
    ("streams", ["kilim-commands", "change_streams", "final_state"]),
];

pub fn run(mut arguments: Arguments) -> Result<()> {
    let count: u64 = arguments.value("--count")?.unwrap_or(10_000);
    let seed: u64 = arguments.value("--seed")?.unwrap_or(1);
    let of: String = arguments.value("--of")?.unwrap_or_else(|| "patterns".to_owned());
    arguments.finish()?;
    let Some((_, tests)) = KINDS.iter().find(|(name, _)| *name == of) else {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        bail!("there are histories of {}, not of {of:?}", names.join(", "));
    };
    test(*tests, &[("KILIM_HISTORIES", count), ("KILIM_SEED", seed)])
}

pub fn why(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    test(["kilim-engine", "engine", "pattern_why::"], &[("KILIM_WHY", 1)])
}

fn test([package, tests, name]: [&str; 3], environment: &[(&str, u64)]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--quiet", "--release", "--package", package, "--test", tests, "--"]);
    command.args([name, "--nocapture", "--test-threads", "1"]);
    for (variable, value) in environment {
        command.env(variable, value.to_string());
    }
    ensure!(command.status()?.success(), "something was not true");
    Ok(())
}
