//! The check by which a long evaluation notices that nobody waits for it any more.
//!
//! Expressions loop over what users made, deep below callers that know nothing of deadlines. So the check
//! belongs to the thread: whoever runs a command installs it, loops call [`tick`].

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use kilim_error::Result;

/// Something that can be asked whether to go on.
pub trait Interrupt: Send + Sync {
    fn check(&self) -> Result<()>;
}

/// Loop passes between two checks: noticed within microseconds, at no cost that shows.
const TICKS_PER_CHECK: u32 = 256;

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
    static TICKS: Cell<u32> = const { Cell::new(0) };
}

/// Puts the former check back when it goes.
#[must_use]
pub struct Installed {
    former: Option<Arc<dyn Interrupt>>,
}

/// Makes evaluations on this thread ask `interrupt` until the result is dropped.
pub fn install(interrupt: Arc<dyn Interrupt>) -> Installed {
    Installed { former: CURRENT.with(|current| current.replace(Some(interrupt))) }
}

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.former.take()));
    }
}

/// One pass of a loop over what a user made.
#[inline]
pub fn tick() -> Result<()> {
    let ticks = TICKS.get() + 1;
    if ticks < TICKS_PER_CHECK {
        TICKS.set(ticks);
        return Ok(());
    }
    TICKS.set(0);
    CURRENT.with(|current| current.borrow().as_ref().map_or(Ok(()), |interrupt| interrupt.check()))
}

#[cfg(test)]
mod tests {
    use kilim_error::{Error, ErrorCode};

    use super::*;

    struct Never;

    impl Interrupt for Never {
        fn check(&self) -> Result<()> {
            Err(Error::user(ErrorCode::Interrupted, "no"))
        }
    }

    #[test]
    fn a_loop_ends_soon_after_it_is_told_to() {
        let ticks = || (0..2 * TICKS_PER_CHECK).take_while(|_| tick().is_ok()).count() as u32;
        let installed = install(Arc::new(Never));
        assert!(ticks() <= TICKS_PER_CHECK);
        drop(installed);
        assert_eq!(ticks(), 2 * TICKS_PER_CHECK);
    }
}
