//! `cargo xtask diff`: generated commands to Kilim and mongod until they differ.

use std::time::Duration;

use anyhow::{Result, ensure};
use kilim_testkit::generate;
use kilim_testkit::oracle::Oracle;
use kilim_testkit::server::{Server, ServerOptions};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let seed: Option<u64> = arguments.value("--seed")?;
    let count_max: usize = arguments.value("--count")?.unwrap_or(1);
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
    let search = generate::search(&oracle.address(), address, seed, Duration::from_secs(seconds), count_max)?;
    for found in &search.found {
        println!("# seed {}\n{}", found.seed, found.spec);
    }
    println!(
        "seed {seed}: {} histories, {} commands, {} differences",
        search.histories,
        search.commands,
        search.found.len()
    );
    ensure!(
        search.found.is_empty(),
        "they differ; above are the shortest histories found, with mongod's answers"
    );
    Ok(())
}
