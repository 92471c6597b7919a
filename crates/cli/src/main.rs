//! The `kilim` binary: the command line, and what it starts.

mod allocator;
mod apply;
mod backup;
mod check;
mod config;
mod confirm;
mod connect;
mod data_directory;
mod demo;
mod hidden;
mod interruption;
mod logging;
mod manual;
mod migrate;
mod output;
mod pattern;
mod progress;
mod salvage;
mod serve;
mod size;
mod table;
mod text;
mod tls;
mod transfer;
mod user;
mod watch;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

use crate::output::{complain, show};

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
    /// Show changes as they happen.
    Watch(watch::Watch),
    /// Make, list, change and remove users.
    User(user::User),
    /// Make certificates for a first try.
    Tls(tls::Tls),
    /// Copy the data of a running server, as of one moment, to a directory.
    Backup(backup::Backup),
    /// Check the data of a server that is not running: pages, indexes, counts, patterns.
    Check(check::Check),
    /// Copy what can be read of damaged data to a new directory.
    Salvage(salvage::Salvage),
    /// Make a new directory of one that an earlier Kilim made.
    Migrate(migrate::Migrate),
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
    // A file that may not grow is an error like a full disk. The signal would end the program without a word.
    // SAFETY: ignoring a signal is always valid.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    match run() {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => output::end_with_the_reader(),
        Err(error) => {
            // The first line says what failed, those below why, each nearer to the cause.
            let mut reasons = error.chain();
            complain!("kilim: {}", reasons.next().map_or_else(String::new, ToString::to_string));
            reasons.for_each(|reason| complain!("  {reason}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    let given: Vec<OsString> = std::env::args_os().collect();
    let (parsed, file) = config::with_file(Arguments::command(), &given)?;
    let arguments = match Arguments::try_parse_from(&parsed) {
        Ok(arguments) => arguments,
        // The arguments alone are right: it is the file that has the mistake.
        Err(error) if error.use_stderr() && file.is_some() && Arguments::try_parse_from(&given).is_ok() => {
            complain!("kilim: {} is wrong:", file.unwrap_or_default().display());
            error.exit()
        }
        Err(error) if error.use_stderr() => error.exit(),
        // Help and the version are what was asked for, so they must arrive.
        Err(help) => {
            match std::io::stdout().is_terminal() {
                true => help.print()?,
                false => show!("{}", help.render())?,
            }
            output::stdout().flush()?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    hidden::hide_passwords();
    let code = match arguments.command {
        // Whether anybody read where it listens says nothing of how it went.
        Command::Serve(serve) => {
            let again = move || -> anyhow::Result<serve::Serve> {
                let (parsed, file) = config::with_file(Arguments::command(), &given)?;
                let parsed = Arguments::try_parse_from(parsed).with_context(|| match &file {
                    Some(file) => format!("{} is wrong", file.display()),
                    None => "the command line is wrong".to_owned(),
                })?;
                match parsed.command {
                    Command::Serve(serve) => Ok(serve),
                    _ => anyhow::bail!("the command is another one"),
                }
            };
            return serve.run(again).map(|()| ExitCode::SUCCESS);
        }
        Command::Pattern(pattern) => pattern.run(),
        Command::Apply(apply) => apply.run(),
        Command::Demo(demo) => demo.run(),
        Command::Dump(dump) => dump.run(),
        Command::Restore(restore) => restore.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
        Command::Watch(watch) => watch.run(),
        Command::User(user) => user.run(),
        Command::Tls(tls) => tls.run(),
        Command::Backup(backup) => backup.run(),
        Command::Check(check) => check.run(),
        Command::Salvage(salvage) => salvage.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Completions(completions) => completions.run(Arguments::command()),
        Command::Man(manual) => manual.run(Arguments::command()),
    }?;
    // What is still buffered may fail, too, and would do so unseen.
    output::stdout().flush()?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
