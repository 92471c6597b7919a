//! What ends a command from outside: Ctrl-C, a closed terminal, `kill`.
//!
//! A client command ends at once, wherever it waits. First it removes what it was about to make, so that nothing
//! unfinished stays behind. Then the process ends by the signal itself, so that shells and scripts see what happened.

use std::io;

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
