//! `kilim pattern …`: declare patterns, look at them, check them, end them.
//!
//! Each verb is a command of the server with a readable answer; `--json` gives the server's own.

mod check;
mod control;
mod declare;
mod drawing;
mod overview;
pub(crate) mod waiting;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::connect::Place;
pub(crate) use declare::{declarations, place_of, read};
pub(crate) use overview::collection;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Pattern {
    #[command(flatten)]
    place: Place,

    /// Answer as JSON, for programs.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Declare a pattern, and wait until it is filled.
    Create(declare::Create),
    /// List the patterns of a database or of a collection.
    List(overview::List),
    /// Show one pattern: its state, its counters, its declaration.
    Show(Named),
    /// Compute patterns again from their sources and compare; exit code 3 if something is wrong.
    Verify(check::Check),
    /// The same, and put right what is wrong.
    Repair(check::Check),
    /// End a pattern. Its fields stay as plain ones, unless told otherwise.
    Drop(control::Drop),
    /// Leave a pattern's fields as they are for a while.
    Pause(Named),
    /// Maintain a paused pattern again, and fill what it missed.
    Resume(control::Resume),
    /// Show background work.
    Jobs(overview::Jobs),
    /// Wait until a pattern is filled.
    Wait(control::Wait),
    /// End a step between versions: the older one is not shown any more.
    Complete(Named),
    /// Take a step between versions back: the older one is in force again.
    Rollback(control::Rollback),
}

/// Which pattern.
#[derive(Debug, Clone, Args)]
pub(crate) struct Named {
    /// The collection that receives the maintained fields.
    collection: String,
    /// The pattern's name.
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  kilim pattern create orders customerCard extendedReference \\
      '{from: customers, localField: customerId, as: customer, fields: {name: 1}}' --db shop
  kilim pattern create --file card.yaml --dry-run --db shop
  kilim pattern list --uri mongodb://127.0.0.1:27017/shop
  kilim pattern verify orders customerCard --db shop
  kilim pattern list --yaml --db shop > patterns.yaml      what `kilim apply` reads

KILIM_URI names the server and the database once for all:
  export KILIM_URI=mongodb://127.0.0.1:27017/shop

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 verify found something wrong.";

/// The exit code of a check that found something.
pub(crate) const FOUND: u8 = 3;

impl Pattern {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut session = self.place.open(None)?;
        match self.verb {
            Verb::Create(create) => create.run(&mut session, self.json),
            Verb::List(list) => list.run(&mut session, self.json),
            Verb::Show(named) => overview::show(&named, &mut session, self.json),
            Verb::Verify(check) => check.run("verifyPattern", &mut session, self.json),
            Verb::Repair(check) => check.run("repairPattern", &mut session, self.json),
            Verb::Drop(drop) => drop.run(&mut session, self.json),
            Verb::Pause(named) => control::pause(&named, &mut session, self.json),
            Verb::Resume(resume) => resume.run(&mut session, self.json),
            Verb::Jobs(jobs) => jobs.run(&mut session, self.json),
            Verb::Wait(wait) => wait.run(&mut session, self.json),
            Verb::Complete(named) => control::complete(&named, &mut session, self.json),
            Verb::Rollback(rollback) => rollback.run(&mut session, self.json),
        }
    }
}
