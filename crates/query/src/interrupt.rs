//! The check by which a long evaluation notices that nobody waits for it any more.
//!
//! Expressions loop over what users made, deep below callers that know nothing of deadlines. So the check
//! belongs to the thread: whoever runs a command installs it, loops call [`tick`].
//!
//! Filters answer yes or no, and have no place for an error. They call [`goes_on`], which keeps the error. From then on
//! what they answer means nothing: whoever asked them calls [`settled`] before the answer is used.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use kilim_error::{Error, Result};

/// Something that can be asked whether to go on.
pub trait Interrupt: Send + Sync {
    fn check(&self) -> Result<()>;
}

/// Loop passes between two checks: noticed within microseconds, at no cost that shows.
const TICKS_PER_CHECK: u32 = 256;

/// Bytes that are copied or looked at in the time of one pass of a simple loop.
pub(crate) const BYTES_PER_TICK: usize = 4096;

/// Bytes that an operation takes between two checks: a loop over a few large documents asks as well.
const GROWTH_PER_CHECK: usize = 4 << 20;

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
    static TICKS: Cell<u32> = const { Cell::new(0) };
    /// What the operation held in memory at the last check.
    static ASKED_AT: Cell<usize> = const { Cell::new(0) };
    /// Whether [`goes_on`] has kept an error.
    static STOPPED: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<Option<Error>> = const { RefCell::new(None) };
    /// Bytes that the command has set aside for as long as it runs.
    static SET_ASIDE: Cell<usize> = const { Cell::new(0) };
}

/// Puts the former check back when it goes.
#[must_use]
pub struct Installed {
    former: Option<Arc<dyn Interrupt>>,
}

/// Makes evaluations on this thread ask `interrupt` until the result is dropped.
pub fn install(interrupt: Arc<dyn Interrupt>) -> Installed {
    forget_kept();
    Installed { former: CURRENT.with(|current| current.replace(Some(interrupt))) }
}

impl Drop for Installed {
    fn drop(&mut self) {
        forget_kept();
        CURRENT.with(|current| current.replace(self.former.take()));
    }
}

/// Counts bytes that the command keeps until it ends; how many it has counted so far.
pub(crate) fn set_aside(bytes: usize) -> usize {
    let all = SET_ASIDE.get().saturating_add(bytes);
    SET_ASIDE.set(all);
    all
}

fn forget_kept() {
    SET_ASIDE.set(0);
    ASKED_AT.set(0);
    STOPPED.set(false);
    KEPT.take();
}

/// One pass of a loop over what a user made.
#[inline]
pub fn tick() -> Result<()> {
    spend(1)
}

/// Work that takes as long as so many passes.
#[inline]
pub fn spend(passes: usize) -> Result<()> {
    let ticks = TICKS.get().saturating_add(u32::try_from(passes).unwrap_or(u32::MAX));
    let held = kilim_memory::operation_bytes();
    if ticks < TICKS_PER_CHECK && held < ASKED_AT.get() + GROWTH_PER_CHECK {
        TICKS.set(ticks);
        return Ok(());
    }
    TICKS.set(0);
    ASKED_AT.set(held);
    settled()?;
    CURRENT.with(|current| current.borrow().as_ref().map_or(Ok(()), |interrupt| interrupt.check()))
}

/// Asks at once, before work that takes a while and cannot be asked in between.
pub fn check() -> Result<()> {
    spend(TICKS_PER_CHECK as usize)
}

/// So many bytes were copied.
#[inline]
pub fn copied(bytes: usize) -> Result<()> {
    spend(1 + bytes / BYTES_PER_TICK)
}

/// One pass of a loop that has no place for an error; whether it is to go on.
#[inline]
pub fn goes_on(passes: usize) -> bool {
    if STOPPED.get() {
        return false;
    }
    match spend(passes) {
        Ok(()) => true,
        Err(error) => {
            KEPT.replace(Some(error));
            STOPPED.set(true);
            // The next pass of any other loop is told.
            TICKS.set(TICKS_PER_CHECK);
            false
        }
    }
}

/// The error that a loop without a place for it has met.
#[inline]
pub fn settled() -> Result<()> {
    match STOPPED.get() {
        false => Ok(()),
        true => KEPT.with(|kept| kept.borrow().clone()).map_or(Ok(()), Err),
    }
}

/// Sorts, stably, and asks now and then whether to go on.
///
/// Parts are sorted, then ever larger ones, which are two sorted halves by then: the sort takes these as runs and merges
/// them. Each part takes a few milliseconds at most.
pub fn sort<T>(rows: &mut [T], mut compare: impl FnMut(&T, &T) -> std::cmp::Ordering) -> Result<()> {
    const PART: usize = 4096;
    let mut part = PART;
    loop {
        for rows in rows.chunks_mut(part) {
            rows.sort_by(&mut compare);
            spend(rows.len())?;
        }
        if part >= rows.len() {
            return Ok(());
        }
        part *= 2;
    }
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
    fn a_loop_without_a_place_for_errors_ends_too_and_whoever_asked_is_told() {
        let installed = install(Arc::new(Never));
        let passes = (0..2 * TICKS_PER_CHECK).take_while(|_| goes_on(1)).count() as u32;
        assert!(passes <= TICKS_PER_CHECK);
        assert!(settled().is_err());
        assert!(tick().is_err(), "the next loop is told at once");
        drop(installed);
        assert!(settled().is_ok());
    }

    #[test]
    fn a_sort_is_stable_and_ends_when_it_is_told_to() {
        let mut rows: Vec<(u32, u32)> = (0..50_000).map(|at| (at * 7919 % 1000, at)).collect();
        let mut sorted = rows.clone();
        sorted.sort();
        sort(&mut rows, |a, b| a.0.cmp(&b.0)).unwrap();
        assert_eq!(rows, sorted);
        let _installed = install(Arc::new(Never));
        assert!(sort(&mut rows, |a, b| b.cmp(a)).is_err());
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
