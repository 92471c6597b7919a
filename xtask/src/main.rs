//! The day's verbs: `cargo xtask` lists them. What CI runs, `cargo xtask test` runs.

mod arguments;
mod arrows;
mod bench;
mod check;
mod clients;
mod compat;
mod crash;
mod diff;
mod fuzz;
mod histories;
mod layers;
mod links;
mod manual;
mod packages;
mod records;
mod soak;
mod spec;
mod test;
mod transfer;
mod trust;
mod workspace;
mod world;

use std::process::ExitCode;

use anyhow::{Result, bail};
use arguments::Arguments;

struct Verb {
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    run: fn(Arguments) -> Result<()>,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "check",
        usage: "",
        help: "formatting, clippy, arrows between crates, links in the docs",
        run: check::run,
    },
    Verb {
        name: "test",
        usage: "[--only PART,…]",
        help: "all that CI runs; fetches the clients it needs",
        run: test::run,
    },
    Verb {
        name: "spec",
        usage: "[--record] [--filter STR] [--target kilim|mongod] [--storage memory|disk] [--at HOST:PORT]",
        help: "run the specs, or record their expectations from mongod",
        run: spec::run,
    },
    Verb {
        name: "clients",
        usage: "[--target kilim|mongod] [--storage memory|disk] [--filter STR]",
        help: "run the scripts in tests/clients with real drivers and mongosh",
        run: clients::run,
    },
    Verb {
        name: "diff",
        usage: "[--seconds N] [--seed N] [--count N] [--only commands|pipelines|collations] [--storage memory|disk] [--statistics] [--at HOST:PORT]",
        help: "send generated commands to Kilim and mongod until they differ",
        run: diff::run,
    },
    Verb {
        name: "crash",
        usage: "[RUN [options]]",
        help: "kill servers, cut their power, fail their disks; without RUN, a short round of each",
        run: crash::run,
    },
    Verb {
        name: "histories",
        usage: "[--of patterns|buckets|outliers|versions|series|streams] [--count N] [--seed N]",
        help: "random histories: maintained equals computed, packed equals plain, replayed equals stored",
        run: histories::run,
    },
    Verb {
        name: "why",
        usage: "",
        help: "the workloads that hand-written recipes fail, with declared patterns: stored beside true",
        run: histories::why,
    },
    Verb {
        name: "fuzz",
        usage: "[--seconds N] [--executions N] [--seed N] [--target NAME,…] [--sanitize]",
        help: "feed parsers, commands and recovery with what nobody would write",
        run: fuzz::run,
    },
    Verb {
        name: "trust",
        usage: "[--seconds N] [--cases N] [--schedules N] [--seed N] | --cuts N [--seed N]",
        help: "lives of the storage engine on disks that fail, damage to each of its files, schedules of commits",
        run: trust::run,
    },
    Verb {
        name: "soak",
        usage: "[--seconds N] [--seed N] [--kill-every SECONDS] [--full-every SECONDS] [--release | --kilim PATH]",
        help: "keep one server under mixed load and hostile clients, and fail if it grows",
        run: soak::run,
    },
    Verb {
        name: "transfer",
        usage: "",
        help: "carry dumps from Kilim to mongod and back, and compare",
        run: transfer::run,
    },
    Verb { name: "bench", usage: "[options]", help: "measure Kilim beside mongod", run: bench::run },
    Verb {
        name: "compat",
        usage: "[--check]",
        help: "write COMPAT.md from the specs, or fail if it is stale",
        run: compat::run,
    },
];

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
