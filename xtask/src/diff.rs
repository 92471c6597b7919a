//! `cargo xtask diff`: generated commands to Kilim and mongod until they differ.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kilim_testkit::generate::{self, About, Search, Task};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::server::{Server, ServerOptions};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let seed: Option<u64> = arguments.value("--seed")?;
    let count_max: usize = arguments.value("--count")?.unwrap_or(1);
    let at: Option<String> = arguments.value("--at")?;
    let only: Option<String> = arguments.value("--only")?;
    let statistics = arguments.flag("--statistics");
    arguments.finish()?;
    let about: &[About] = match only.as_deref() {
        None => &[About::Commands, About::Pipelines, About::Collations],
        Some("commands") => &[About::Commands],
        Some("pipelines") => &[About::Pipelines],
        Some("collations") => &[About::Collations],
        Some(other) => bail!("histories are about commands, pipelines or collations, not {other:?}"),
    };
    let server = match &at {
        Some(_) => None,
        None => Some(Server::start(&workspace::build_kilim()?, &ServerOptions::default())?),
    };
    let kilim = at.as_deref().or(server.as_ref().map(Server::address)).unwrap_or_default();
    let mut seed = match seed {
        Some(seed) => seed,
        None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs(),
    };
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut found = 0;
    loop {
        let oracle = Oracle::start(&workspace::tools())?;
        let mongod = oracle.address();
        let time = deadline.saturating_duration_since(Instant::now());
        let task = Task { mongod: &mongod, kilim, seed, time, count_max: count_max - found, about };
        let search = generate::search(&task)?;
        report(&search, seed, statistics);
        found += search.found.len();
        // Some pipelines end mongod 6.0: then another one takes over behind them.
        match search.mongod_lost {
            Some(lost) => println!("mongod ended at seed {lost}"),
            None => break,
        }
        seed += search.histories as u64;
    }
    ensure!(found == 0, "they differ; above are the shortest histories found, with mongod's answers");
    Ok(())
}

fn report(search: &Search, seed: u64, statistics: bool) {
    for found in &search.found {
        println!("# seed {}\n{}", found.seed, found.spec);
    }
    let share = |asked: &generate::Asked| asked.answered * 100 / asked.questions.max(1);
    if statistics {
        for (name, asked) in &search.operators {
            println!("{:6} questions, {:3} % answered {name}", asked.questions, share(asked));
        }
    }
    for (reason, count) in &search.refused {
        println!("{count:6} refused: {reason}");
    }
    for (reason, count) in &search.permitted {
        println!("{count:6} permitted: {reason}");
    }
    let all = search.operators.get("").copied().unwrap_or_default();
    println!(
        "seed {seed}: {} histories, {} commands, {} questions ({} % answered), {} differences",
        search.histories,
        search.commands,
        all.questions,
        share(&all),
        search.found.len()
    );
}
