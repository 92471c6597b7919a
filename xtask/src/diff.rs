//! `cargo xtask diff`: generated commands to Kilim and mongod until they differ.

use std::time::Duration;

use anyhow::{Result, bail};
use kilim_testkit::generate::{self, Outcome};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::server::{Server, ServerOptions};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let seed: Option<u64> = arguments.value("--seed")?;
    let at: Option<String> = arguments.value("--at")?;
    arguments.finish()?;
    let oracle = Oracle::start(&workspace::tools())?;
    let server = match &at {
        Some(_) => None,
        None => Some(Server::start(&workspace::build_kilim()?, &ServerOptions::default())?),
    };
    let address = at.as_deref().or(server.as_ref().map(Server::address)).unwrap_or_default();
    let seed = match seed {
        Some(seed) => seed,
        None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs(),
    };
    match generate::search(&oracle.address(), address, seed, Duration::from_secs(seconds))? {
        Outcome::Agreed { histories, commands } => {
            println!("seed {seed}: {histories} histories, {commands} commands, no difference");
            Ok(())
        }
        Outcome::Differed { seed, spec } => {
            println!("{spec}");
            bail!(
                "they differ at seed {seed}; above is the shortest history found, as a spec of what mongod says"
            )
        }
    }
}
