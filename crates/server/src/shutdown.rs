//! The signals that ask the process to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// SIGTERM and SIGINT, caught. The first asks for an orderly end; another one while that is under
/// way ends the process at once.
pub struct Signals {
    caught: signal_hook::iterator::Signals,
    ending: Arc<AtomicBool>,
}

impl Signals {
    pub fn catch() -> io::Result<Signals> {
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, ending.clone())?;
        }
        Ok(Signals { caught: signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?, ending })
    }

    /// Waits for one, and names it.
    pub fn wait(&mut self) -> &'static str {
        let signal = self.caught.forever().next();
        self.ending.store(true, Ordering::SeqCst);
        if signal == Some(SIGINT) { "SIGINT" } else { "SIGTERM" }
    }
}
