//! Questions on the terminal: before something is done that was not asked for in so many words, and for a password.

use std::io::{BufRead, IsTerminal, Write};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail, ensure};

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

/// Asks on the terminal, which does not show the answer.
pub(crate) fn ask_password(question: &str) -> Result<String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("there is no terminal to ask for a password on");
    }
    let mut terminal = std::io::stderr();
    write!(terminal, "{question}").and_then(|()| terminal.flush()).context("cannot ask")?;
    let mut before = std::mem::MaybeUninit::<libc::termios>::uninit();
    let descriptor = stdin.as_raw_fd();
    // SAFETY: the descriptor is a terminal's, and the struct is filled by the call before it is read.
    let before = unsafe {
        ensure!(libc::tcgetattr(descriptor, before.as_mut_ptr()) == 0, "the terminal says nothing of itself");
        before.assume_init()
    };
    let silent = libc::termios { c_lflag: before.c_lflag & !libc::ECHO, ..before };
    // SAFETY: both calls read a struct that outlives them.
    let set = |how: &libc::termios| unsafe { libc::tcsetattr(descriptor, libc::TCSAFLUSH, how) };
    ensure!(set(&silent) == 0, "the terminal would show the password");
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    set(&before);
    // The end of the line was not shown either.
    let _ = writeln!(terminal);
    read.context("cannot read the password")?;
    Ok(answer.trim_end_matches(['\r', '\n']).to_owned())
}
