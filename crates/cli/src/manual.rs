//! `kilim completions` and `kilim man`: what shells and `man` show, made from the command line's definition.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::stdout;

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell that is to complete.
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  kilim completions bash > ~/.local/share/bash-completion/completions/kilim
  kilim completions zsh  > \"${fpath[1]}/_kilim\"
  kilim completions fish > ~/.config/fish/completions/kilim.fish";

#[derive(Debug, Args)]
#[command(after_help = MANUAL)]
pub(crate) struct Manual {
    /// The command whose page is wanted, such as `pattern create`; none for kilim itself.
    command: Vec<String>,
}

const MANUAL: &str = "\
Examples:
  kilim man | man -l -
  kilim man pattern create > kilim-pattern-create.1";

impl Completions {
    pub(crate) fn run(&self, mut kilim: Command) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut kilim, "kilim", &mut script);
        print(&script)
    }
}

impl Manual {
    pub(crate) fn run(&self, mut kilim: Command) -> Result<ExitCode> {
        // Gives subcommands their full names and the arguments that they share.
        kilim.build();
        let mut command = &kilim;
        for name in &self.command {
            command = command.find_subcommand(name).ok_or_else(|| {
                anyhow!("kilim has no command '{}': see `kilim --help`", self.command.join(" "))
            })?;
        }
        let mut page = Vec::new();
        let name = match self.command.is_empty() {
            true => "kilim".to_owned(),
            false => format!("kilim-{}", self.command.join("-")),
        };
        clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
        print(&page)
    }
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    stdout().write_all(bytes)?;
    Ok(ExitCode::SUCCESS)
}
