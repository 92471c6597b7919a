//! `cargo xtask transfer`: dumps carried from Kilim to mongod and back.

use std::path::Path;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::workspace::{build_kilim, tools};

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    println!("{}", check(&build_kilim()?)?);
    Ok(())
}

pub fn check(binary: &Path) -> Result<String> {
    kilim_testkit::transfer::check(binary, &tools())
}
