//! `cargo xtask check`: what needs no run of the code.

use anyhow::Result;

use crate::arguments::Arguments;
use crate::workspace::{self, captured};
use crate::{arrows, layers, links, records, world};

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    formatting()?;
    arrows::check()?;
    layers::check()?;
    records::check()?;
    world::check()?;
    links::check()?;
    clippy()
}

pub fn formatting() -> Result<()> {
    captured(workspace::cargo().args(["fmt", "--all", "--check"])).map(drop)
}

pub fn clippy() -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    captured(&mut command).map(drop)
}
