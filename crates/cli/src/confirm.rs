//! A question before something is done that was not asked for in so many words.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};

/// Asks on the terminal. Without one there is nobody to ask, so `--yes` is needed.
pub(crate) fn confirmed(question: &str) -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("there is no terminal to confirm on: add --yes");
    }
    let mut terminal = std::io::stderr();
    write!(terminal, "{question} [y/N] ").and_then(|()| terminal.flush()).context("cannot ask")?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
