//! A bound on what one input may make an evaluation do, counted in loop passes and so the same on every machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kilim_error::{Error, ErrorCode, Result};
use kilim_query::interrupt::{Interrupt, install};

/// Some hundred thousand loop passes.
const CHECKS_MAX: u32 = 1_000;

struct Patience(AtomicU32);

impl Interrupt for Patience {
    fn check(&self) -> Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0..CHECKS_MAX => Ok(()),
            _ => Err(Error::user(ErrorCode::MaxTimeMSExpired, "the fuzzer has no more patience")),
        }
    }
}

/// Runs something as a command with a time limit would.
pub fn patient<T>(work: impl FnOnce() -> T) -> T {
    let _installed = install(Arc::new(Patience(AtomicU32::new(0))));
    work()
}
