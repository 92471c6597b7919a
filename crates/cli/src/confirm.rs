//! A question before something is done that was not asked for in so many words.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Result, bail};

/// Asks on the terminal. Without one there is nobody to ask, so `--yes` is needed.
pub(crate) fn confirmed(question: &str) -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("there is no terminal to confirm on: add --yes");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
