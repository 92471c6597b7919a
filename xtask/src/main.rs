//! The day's verbs: `cargo xtask` lists them. What CI runs, `cargo xtask test` runs.

mod arguments;
mod arrows;
mod spec;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use arguments::Arguments;

/// Name, how it is called, what it does, and what runs it.
struct Verb {
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    run: fn(Arguments) -> Result<()>,
}

const VERBS: &[Verb] = &[Verb {
    name: "spec",
    usage: "[--record] [--filter STR] [--target kilim|mongod] [--at HOST:PORT]",
    help: "run the specs, or record their expectations from mongod",
    run: spec::run,
}];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut given = std::env::args().skip(1);
    let Some(name) = given.next().filter(|name| !matches!(name.as_str(), "help" | "--help" | "-h")) else {
        for verb in VERBS {
            println!("cargo xtask {} {}\n    {}", verb.name, verb.usage, verb.help);
        }
        return Ok(());
    };
    match VERBS.iter().find(|verb| verb.name == name) {
        Some(verb) => (verb.run)(Arguments::new(given, verb.usage)),
        None => bail!("no verb is called {name:?}; `cargo xtask` lists them"),
    }
}
