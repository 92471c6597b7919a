//! What ends a command from outside: Ctrl-C, a closed terminal, `kill`.
//!
//! A client command ends at once, wherever it waits. First it removes what it was about to make, so that nothing
//! unfinished stays behind. Then the process ends by the signal itself, so that shells and scripts see what happened.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use kilim_engine::backup::{check_out, unfinished};
use kilim_transfer::Unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Has `act` run when the process is interrupted, in a thread of its own. It is given what ends the process.
pub(crate) fn catch(act: impl FnOnce(&dyn Fn()) + Send + 'static) -> io::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(wanted)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            act(&|| end_by(signal));
            end_by(signal);
        }
    })?;
    Ok(())
}

/// What is unfinished is removed when the command is interrupted.
pub(crate) fn removing() -> Result<Unfinished> {
    removing_and(|| ())
}

/// What is unfinished is removed when the command is interrupted, and then something else is done.
pub(crate) fn removing_and(act: impl FnOnce() + Send + 'static) -> Result<Unfinished> {
    let unfinished = Unfinished::default();
    let own = unfinished.clone();
    let remove = move |end: &dyn Fn()| {
        own.remove_and(|| {
            act();
            end();
        });
    };
    catch(remove).context("cannot catch signals")?;
    Ok(unfinished)
}

/// Has the directory that a store is about to be made in removed when the command is interrupted. Refuses a place that
/// is taken, so what is there then is this command's own.
pub(crate) fn expect_store(unfinished_ones: &Unfinished, out: &Path) -> Result<()> {
    check_out(out)?;
    unfinished_ones.expect_tree(&unfinished(out)?);
    Ok(())
}

/// Ends the process as the signal would have.
fn end_by(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // The signal is blocked: the exit code that a shell would show.
    std::process::exit(128 + signal)
}

/// Whether the process was started with a signal ignored, as `nohup` does it; then it stays ignored.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeroes are a valid sigaction, and without a new one the call only fills it in.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut current) == 0 && current.sa_sigaction == libc::SIG_IGN
    }
}
