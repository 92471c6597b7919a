//! `cargo xtask bench`: the comparison in `bench/`, built for speed, with the mongod that specs come from.

use anyhow::{Result, ensure};
use kilim_testkit::oracle;

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(arguments: Arguments) -> Result<()> {
    let mongod = oracle::find_or_install(&workspace::tools())?;
    let binary = workspace::build_release()?;
    let status = workspace::cargo()
        .args(["run", "--quiet", "--release", "--package", "kilim-bench", "--"])
        .args(arguments.rest())
        .env("KILIM_BINARY", binary)
        .env("KILIM_MONGOD", mongod)
        .status()?;
    ensure!(status.success(), "the benchmark failed");
    Ok(())
}
