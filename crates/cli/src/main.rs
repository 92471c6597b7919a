//! The `kilim` binary: the command line, and what it starts.

mod apply;
mod confirm;
mod connect;
mod demo;
mod logging;
mod manual;
mod pattern;
mod progress;
mod serve;
mod size;
mod table;
mod text;
mod transfer;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

// A document database allocates in small pieces from many threads, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A document database that speaks MongoDB's protocol.
#[derive(Debug, Parser)]
#[command(name = "kilim", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server.
    Serve(serve::Serve),
    /// Declare, list, check and drop patterns.
    Pattern(pattern::Pattern),
    /// Make the patterns of a database what a file says.
    Apply(apply::Apply),
    /// Show what happens to a small shop that is kept by hand, and to one whose patterns are declared.
    Demo(demo::Demo),
    /// Write collections to files, as of one moment.
    Dump(transfer::DumpArguments),
    /// Read what `dump` wrote, or mongodump.
    Restore(transfer::RestoreArguments),
    /// Read JSON or a table into a collection.
    Import(transfer::ImportArguments),
    /// Write a collection as JSON or as a table.
    Export(transfer::ExportArguments),
    /// Print what a shell needs to complete kilim's arguments.
    Completions(manual::Completions),
    /// Print a manual page.
    Man(manual::Manual),
}

const EXAMPLES: &str = "\
Examples:
  kilim serve                          data in ./kilim-data, on 127.0.0.1:27017
  kilim serve --ephemeral --port 0     in memory, on a free port: for tests
  kilim demo                           what recipes by hand get wrong, and declared patterns do not
  kilim pattern list --db shop         the declared patterns of a database
  kilim apply patterns.yaml            make them what a file says
  kilim serve --help                   all options of a command

Then connect with any MongoDB client:
  mongosh mongodb://127.0.0.1:27017";

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(serve) => serve.run().map(|()| ExitCode::SUCCESS),
        Command::Pattern(pattern) => {
            end_with_the_reader();
            pattern.run()
        }
        Command::Apply(apply) => {
            end_with_the_reader();
            apply.run()
        }
        Command::Demo(demo) => demo.run(),
        Command::Dump(dump) => dump.run(),
        Command::Restore(restore) => restore.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => {
            end_with_the_reader();
            export.run()
        }
        Command::Completions(completions) => {
            end_with_the_reader();
            completions.run(Arguments::command())
        }
        Command::Man(manual) => {
            end_with_the_reader();
            manual.run(Arguments::command())
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // The first line says what failed, those below why, each nearer to the cause.
            let mut reasons = error.chain();
            eprintln!("kilim: {}", reasons.next().map_or_else(String::new, ToString::to_string));
            reasons.for_each(|reason| eprintln!("  {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// `kilim pattern list | head -1` ends quietly when `head` does. Not for commands that serve: their clients
/// may hang up.
fn end_with_the_reader() {
    // SAFETY: no thread has been started, and the default action is always valid.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
