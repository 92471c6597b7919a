//! The log of the process, as far as commands have to do with it: `getLog`, `logRotate` and the parameter `logLevel`.
//!
//! The program that serves a database has a log and gives it to the engine. A database within another program has none.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What a program's log can do for commands.
pub trait ProcessLog: Send + Sync {
    /// The last lines, the oldest first.
    fn recent(&self) -> Recent;

    /// Writes more or less from now on: 0 is what the program was started with.
    fn set_verbosity(&self, level: i32);

    /// Writes to a new file of the same name.
    fn reopen(&self);
}

#[derive(Debug, Clone, Default)]
pub struct Recent {
    pub lines: Vec<RecentLine>,
    /// How many were written since the program began.
    pub written: u64,
    /// How many of those were warnings from before it was ready.
    pub warnings_at_start: u64,
}

#[derive(Debug, Clone)]
pub struct RecentLine {
    pub text: String,
    /// A warning from before the server was ready.
    pub is_start_warning: bool,
}

#[derive(Default)]
pub struct ServerLog {
    /// Not held: the log ends with the program, whoever still holds the engine.
    log: OnceLock<Weak<dyn ProcessLog>>,
    level: AtomicI32,
}

impl ServerLog {
    /// Gives the engine its program's log; the first call counts.
    pub fn give(&self, log: Weak<dyn ProcessLog>) {
        let _ = self.log.set(log);
    }

    fn process_log(&self) -> Option<Arc<dyn ProcessLog>> {
        self.log.get()?.upgrade()
    }

    pub fn recent(&self) -> Recent {
        self.process_log().map_or_else(Recent::default, |log| log.recent())
    }

    pub fn reopen(&self) {
        if let Some(log) = self.process_log() {
            log.reopen();
        }
    }

    pub fn level(&self) -> i32 {
        self.level.load(Ordering::Relaxed)
    }

    pub fn set_level(&self, level: i32) {
        self.level.store(level, Ordering::Relaxed);
        if let Some(log) = self.process_log() {
            log.set_verbosity(level);
        }
    }
}
